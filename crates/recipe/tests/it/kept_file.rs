//! Files that are made from the crate and kept in the repository.

use std::path::Path;

/// Compares a file (relative to this crate) with what it must hold; with `UPDATE` set, writes it.
#[expect(clippy::disallowed_methods, reason = "whether to write is asked of whoever runs the test")]
pub(crate) fn kept_file(path: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var("UPDATE").is_ok() {
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{path}: {error}"));
        return;
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).position(|(kept, made)| kept != made);
    assert!(
        kept == text,
        "{path} is stale from line {}: run the test again with UPDATE=1",
        differs.map_or(0, |n| n + 1)
    );
}
