//! Lists the presets: each file of `presets/` is one, named like the file.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[expect(clippy::disallowed_methods, reason = "cargo tells build scripts by the environment")]
fn main() {
    println!("cargo::rerun-if-changed=presets");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("presets");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of presets is part of the crate")
        .map(|entry| entry.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut list = "&[\n".to_owned();
    for file in &files {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a preset's name is ASCII");
        writeln!(list, "    ({name:?}, include_str!({file:?})),").expect("a String takes everything");
    }
    list.push_str("]\n");
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("presets.rs");
    fs::write(out, list).expect("the output folder can be written");
}
