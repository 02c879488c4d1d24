//! Keyrings on disk.
#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Barrier;

use portero_keyring::{ErrorKind, KeyId, Keyring, LoadError, Problem};
use portero_types::{TenantId, WrappedKey};
use tempfile::TempDir;

const A: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const B: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";

fn id(text: &str) -> KeyId {
    KeyId::new(text).unwrap()
}

fn write(path: &Path, content: impl AsRef<[u8]>, mode: u32) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn load_text(content: impl AsRef<[u8]>) -> Result<Keyring, LoadError> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("keyring.json");
    write(&path, content, 0o600);
    Keyring::load(&path)
}

fn problem(content: impl AsRef<[u8]>) -> Problem {
    match load_text(content) {
        Err(LoadError::Malformed { problem, .. }) => problem,
        other => panic!("not malformed: {other:?}"),
    }
}

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn wrapped(ring: &Keyring) -> WrappedKey {
    ring.new_data_key(1, &tenant(), [9; 32], [3; 12])
}

fn entries(dir: &TempDir) -> usize {
    fs::read_dir(dir.path()).unwrap().count()
}

#[test]
fn a_created_keyring_is_private_and_reads_back() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("keyring.json");
    let ring = Keyring::generate(id("v1"), [1; 32]).unwrap();
    let wrapped = wrapped(&ring);
    ring.create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(entries(&dir), 1, "no temporary file stays");
    let read = Keyring::load(&path).unwrap();
    assert!(read.unwrap(&wrapped, &tenant()).is_ok());
}

#[test]
fn an_existing_keyring_is_never_overwritten_by_create() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("keyring.json");
    Keyring::generate(id("v1"), [1; 32]).unwrap().create(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let error = Keyring::generate(id("v1"), [2; 32]).unwrap().create(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(entries(&dir), 1);
}

#[test]
fn a_keyring_in_a_folder_that_is_not_there_says_so() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("missing").join("keyring.json");
    let error = Keyring::generate(id("v1"), [1; 32]).unwrap().create(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unwritable);
    assert!(error.to_string().ends_with("cannot be written (there is no such folder)"), "{error}");
}

#[test]
fn rotation_on_disk_keeps_old_versions_and_the_mode() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("keyring.json");
    let first = Keyring::generate(id("v1"), [1; 32]).unwrap();
    let wrapped = wrapped(&first);
    first.create(&path).unwrap();
    Keyring::edit(&path, |ring| ring.rotate(id("v2"), [2; 32])).unwrap();
    let read = Keyring::load(&path).unwrap();
    assert_eq!(read.active(), &id("v2"));
    assert!(read.unwrap(&wrapped, &tenant()).is_ok());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

/// Who may not give files away changes only those that are his own.
#[test]
fn a_changed_keyring_stays_with_its_owner_and_behind_its_link() {
    let [dir, links] = [(); 2].map(|()| TempDir::new().unwrap());
    let (path, link) = (dir.path().join("keyring.json"), links.path().join("link.json"));
    Keyring::generate(id("v1"), [1; 32]).unwrap().create(&path).unwrap();
    let _ = std::os::unix::fs::chown(&path, Some(12_345), Some(12_345));
    let owner = fs::metadata(&path).unwrap().uid();
    symlink(&path, &link).unwrap();
    Keyring::edit(&link, |ring| ring.rotate(id("v2"), [2; 32])).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let changed = fs::metadata(&path).unwrap();
    assert_eq!((changed.uid(), changed.permissions().mode() & 0o7777), (owner, 0o600));
    assert_eq!(Keyring::load(&path).unwrap().active(), &id("v2"));
    assert_eq!((entries(&dir), entries(&links)), (1, 1));
}

#[test]
fn a_refused_change_leaves_the_file_as_it_was() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("keyring.json");
    Keyring::generate(id("v1"), [1; 32]).unwrap().create(&path).unwrap();
    let before = fs::read(&path).unwrap();
    let error = Keyring::edit(&path, |ring| ring.remove(&id("v1"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(entries(&dir), 1);
}

#[test]
fn changes_at_the_same_moment_do_not_undo_each_other() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("keyring.json");
    Keyring::generate(id("v0"), [100; 32]).unwrap().create(&path).unwrap();
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for n in 1..=8_u8 {
            let (path, start) = (&path, &start);
            scope.spawn(move || {
                start.wait();
                Keyring::edit(path, |ring| ring.add(id(&format!("v{n}")), [n; 32])).unwrap();
            });
        }
    });
    assert_eq!(Keyring::load(&path).unwrap().ids().count(), 9);
}

#[test]
fn each_way_a_file_can_be_wrong_is_told_apart() {
    let dir = TempDir::new().unwrap();
    assert_eq!(Keyring::load(&dir.path().join("no")).unwrap_err().kind(), ErrorKind::Missing);
    assert_eq!(Keyring::load(dir.path()).unwrap_err().kind(), ErrorKind::Unreadable);
    for mode in [0o604, 0o640, 0o644, 0o622, 0o610] {
        let path = dir.path().join(format!("{mode:o}"));
        write(&path, format!(r#"{{"active":"a","keys":{{"a":"{A}"}}}}"#), mode);
        assert_eq!(Keyring::load(&path).unwrap_err().kind(), ErrorKind::TooOpen, "{mode:o}");
    }
    assert!(load_text(format!(r#"{{"active":"a","keys":{{"a":"{A}"}}}}"#)).is_ok());
    let unknown = load_text(format!(r#"{{"active":"b","keys":{{"a":"{A}"}}}}"#)).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownKey);
    assert!(unknown.to_string().contains("no key b"), "{unknown}");

    assert!(matches!(problem(""), Problem::NotJson { .. }));
    assert!(matches!(problem([0xff, 0xfe]), Problem::NotJson { .. }));
    assert!(matches!(problem(r#"{"active":"a"}"#), Problem::NotJson { .. }));
    assert!(matches!(
        problem(format!(r#"{{"active":"a","keys":{{"a":"{A}"}},"x":1}}"#)),
        Problem::NotJson { .. }
    ));
    assert_eq!(problem(r#"{"active":"a","keys":{}}"#), Problem::NoKeys);
    assert_eq!(problem(r#"{"active":"a","keys":{"a":"AAAA"}}"#), Problem::WrongKeyLength);
    assert_eq!(problem(r#"{"active":"a","keys":{"a":"%%%%"}}"#), Problem::NotBase64);
    assert!(matches!(problem(format!(r#"{{"active":"a","keys":{{"a/b":"{A}"}}}}"#)), Problem::BadKeyId(_)));
    assert_eq!(
        problem(format!(r#"{{"active":"a","keys":{{"a":"{A}","a":"{B}"}}}}"#)),
        Problem::RepeatedKeyId
    );
    assert_eq!(problem(format!(r#"{{"active":"a","keys":{{"a":"{A}","b":"{A}"}}}}"#)), Problem::RepeatedKey);
    let zero = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    assert_eq!(problem(format!(r#"{{"active":"a","keys":{{"a":"{zero}"}}}}"#)), Problem::ZeroKey);
    assert_eq!(problem(" ".repeat(70_000)), Problem::TooLarge);
}

#[test]
fn no_error_shows_key_material() {
    for content in [
        format!(r#"{{"active":"a","keys":{{"a":"{A}x"}}}}"#),
        format!(r#"{{"active":"{A}","keys":{{"a":"{A}"}}}}"#),
        format!(r#"{{"active":"a","keys":{{"{A}":"{A}"}}}}"#),
        format!(r#"{{"active":"a","keys":["{A}"]}}"#),
    ] {
        let error = load_text(&content).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("AQEB"), "{error:?}");
    }
}

#[test]
fn a_mounted_secret_with_its_links_and_hidden_entries_loads() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("..2026_01_01");
    fs::create_dir(&data).unwrap();
    write(&data.join("v1"), format!("{A}\n"), 0o440);
    write(&data.join("v2"), B, 0o440);
    symlink("..2026_01_01", dir.path().join("..data")).unwrap();
    symlink("..data/v1", dir.path().join("v1")).unwrap();
    symlink("..data/v2", dir.path().join("v2")).unwrap();
    let ring = Keyring::load_folder(dir.path(), id("v2")).unwrap();
    assert_eq!(ring.ids().map(KeyId::as_str).collect::<Vec<_>>(), ["v1", "v2"]);
    let file = Keyring::generate(id("v1"), [1; 32]).unwrap();
    assert!(ring.unwrap(&wrapped(&file), &tenant()).is_ok(), "the same key as in a file");
    assert_eq!(Keyring::load_folder(dir.path(), id("v3")).unwrap_err().kind(), ErrorKind::UnknownKey);
}

#[test]
fn a_folder_with_an_open_missing_or_foreign_file_is_refused() {
    let dir = TempDir::new().unwrap();
    assert_eq!(
        Keyring::load_folder(&dir.path().join("no"), id("v1")).unwrap_err().kind(),
        ErrorKind::Missing
    );
    assert_eq!(Keyring::load_folder(dir.path(), id("v1")).unwrap_err().kind(), ErrorKind::Malformed);
    write(&dir.path().join("v1"), A, 0o644);
    assert_eq!(Keyring::load_folder(dir.path(), id("v1")).unwrap_err().kind(), ErrorKind::TooOpen);
    write(&dir.path().join("v1"), A, 0o440);
    assert!(Keyring::load_folder(dir.path(), id("v1")).is_ok());
    fs::create_dir(dir.path().join("lost")).unwrap();
    assert_eq!(Keyring::load_folder(dir.path(), id("v1")).unwrap_err().kind(), ErrorKind::Unreadable);
}
