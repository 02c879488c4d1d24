//! The local issuer's key on disk.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use portero_auth::{Issuer, KeyFileError};
use tempfile::TempDir;

fn load(path: &std::path::Path) -> Result<Issuer, KeyFileError> {
    Issuer::load(path, "https://portero.test", "portero")
}

#[test]
fn a_created_key_is_private_and_reads_back() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("issuer.pem");
    let issuer = Issuer::generate("https://portero.test", "portero", [3; 32]);
    issuer.create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(load(&path).unwrap().key_id(), issuer.key_id());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn a_key_is_never_overwritten() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("issuer.pem");
    let issuer = Issuer::generate("https://portero.test", "portero", [3; 32]);
    issuer.create(&path).unwrap();
    let other = Issuer::generate("https://portero.test", "portero", [4; 32]);
    assert!(matches!(other.create(&path), Err(KeyFileError::AlreadyExists { .. })));
    assert_eq!(load(&path).unwrap().key_id(), issuer.key_id());
}

#[test]
fn a_key_made_by_openssl_is_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("issuer.pem");
    fs::write(&path, include_str!("../data/ed25519.pem")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(load(&path).is_ok());
}

#[test]
fn a_missing_open_or_foreign_file_is_refused() {
    let dir = TempDir::new().unwrap();
    assert!(matches!(load(&dir.path().join("no")), Err(KeyFileError::Missing { .. })));
    assert!(matches!(load(dir.path()), Err(KeyFileError::Io { .. })));
    let path = dir.path().join("issuer.pem");
    for (content, mode) in [(include_str!("../data/ed25519.pem"), 0o644), ("", 0o604)] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(matches!(load(&path), Err(KeyFileError::TooOpen { .. })));
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    for content in ["", "hello", crate::forge::RSA, crate::forge::P256, &"x".repeat(20_000)] {
        fs::write(&path, content).unwrap();
        assert!(matches!(load(&path), Err(KeyFileError::Malformed { .. })));
    }
}
