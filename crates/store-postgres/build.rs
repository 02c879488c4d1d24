//! The migrations are compiled in: build again when the folder changes.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations/postgres");
}
