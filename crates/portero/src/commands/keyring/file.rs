//! The keyring's file.

use std::path::Path;

use portero_keyring::{KeyId, Keyring, RingError, SaveError};

use crate::commands::exit::Failure;
use crate::entropy;

pub(super) fn key_id(text: &str) -> Result<KeyId, Failure> {
    KeyId::new(text).map_err(|error| Failure::usage(error.to_string()))
}

pub(super) fn generate(path: &Path, id: Option<String>) -> Result<KeyId, Failure> {
    let id = id.map_or_else(|| Ok(numbered(1)), |id| key_id(&id))?;
    let ring = Keyring::generate(id, entropy::random()).map_err(|error| Failure::usage(error.to_string()))?;
    ring.create(path).map_err(|error| refused(&error))?;
    Ok(ring.active().clone())
}

pub(super) fn add(path: &Path, id: Option<String>) -> Result<KeyId, Failure> {
    renewed(path, id, |ring, id| ring.add(id, entropy::random()))
}

pub(super) fn rotate(path: &Path, id: Option<String>) -> Result<KeyId, Failure> {
    renewed(path, id, |ring, id| ring.rotate(id, entropy::random()))
}

fn renewed(
    path: &Path,
    id: Option<String>,
    change: impl FnOnce(&mut Keyring, KeyId) -> Result<(), RingError>,
) -> Result<KeyId, Failure> {
    let given = id.map(|id| key_id(&id)).transpose()?;
    let mut named = None;
    Keyring::edit(path, |ring| {
        let id = given.unwrap_or_else(|| next(ring));
        named = Some(id.clone());
        change(ring, id)
    })
    .map_err(|error| refused(&error))?;
    named.ok_or_else(|| Failure::failed("the keyring was not changed"))
}

pub(super) fn activate(path: &Path, id: &str) -> Result<KeyId, Failure> {
    let id = key_id(id)?;
    Keyring::edit(path, |ring| ring.activate(&id)).map_err(|error| refused(&error))?;
    Ok(id)
}

pub(super) fn remove(path: &Path, id: &KeyId) -> Result<(), Failure> {
    Keyring::edit(path, |ring| ring.remove(id)).map(drop).map_err(|error| refused(&error))
}

fn refused(error: &SaveError) -> Failure {
    Failure::usage(error.to_string())
}

/// `v` and the number after the highest of such names.
fn next(ring: &Keyring) -> KeyId {
    let numbers = ring.ids().filter_map(|id| id.as_str().strip_prefix('v')?.parse::<u32>().ok());
    numbered(numbers.max().map_or(1, |highest| u64::from(highest) + 1))
}

fn numbered(number: u64) -> KeyId {
    KeyId::new(format!("v{number}")).expect("a letter and digits are a key id")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(path: &Path) -> Vec<String> {
        Keyring::load(path).expect("a keyring").ids().map(ToString::to_string).collect()
    }

    #[test]
    fn a_keyring_is_made_once_and_rotated_often() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("keyring.json");
        assert_eq!(generate(&path, None).expect("made").as_str(), "v1");
        let again = generate(&path, None).expect_err("never overwritten").to_string();
        assert!(again.contains("keyring.json"), "{again}");
        assert_eq!(rotate(&path, None).expect("rotated").as_str(), "v2");
        assert_eq!(rotate(&path, None).expect("rotated").as_str(), "v3");
        assert_eq!(ids(&path), ["v1", "v2", "v3"]);
    }

    #[test]
    fn a_key_is_added_then_activated_and_only_an_inactive_one_removed() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("keyring.json");
        generate(&path, Some("first".to_owned())).expect("made");
        assert_eq!(add(&path, Some("second".to_owned())).expect("added").as_str(), "second");
        assert_eq!(Keyring::load(&path).expect("a keyring").active().as_str(), "first");
        let first = key_id("first").expect("valid");
        let active = remove(&path, &first).expect_err("active").to_string();
        assert!(active.contains("activate another"), "{active}");
        activate(&path, "second").expect("activated");
        remove(&path, &first).expect("removed");
        assert_eq!(ids(&path), ["second"]);
        let twice = add(&path, Some("second".to_owned())).expect_err("taken").to_string();
        assert!(twice.contains("already"), "{twice}");
        assert!(add(&path, Some("none".to_owned())).is_err(), "the name that stands for no key");
        assert!(activate(&path, "../x").is_err());
    }

    #[test]
    fn other_names_do_not_disturb_the_numbers() {
        let ring = Keyring::generate(KeyId::new("dev").expect("valid"), [1; 32]).expect("made");
        assert_eq!(next(&ring).as_str(), "v1");
    }

    #[test]
    fn a_missing_keyring_says_how_to_make_one() {
        let error = rotate(Path::new("/nonexistent/keyring.json"), None).expect_err("missing").to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }
}
