//! Migrations are compiled in: a new file must be noticed.

fn main() {
    println!("cargo::rerun-if-changed=../../migrations/sqlite");
}
