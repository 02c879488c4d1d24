//! `portero keyring`: make a keyring, and give it a new key.

use std::path::Path;

use portero_keyring::{KeyId, Keyring, SaveError};

use super::exit::Failure;
use crate::cli::KeyringCommand;
use crate::{entropy, print};

/// Runs one of its commands.
pub(crate) async fn run(command: KeyringCommand) -> anyhow::Result<()> {
    match command {
        KeyringCommand::Generate { path } => {
            let id = generate(&path)?;
            print::line(&format!("made {} with the key {id}", path.display()))?;
            print::note("Keep a copy apart from the database: without it, stored secrets cannot be read.");
        }
        KeyringCommand::Rotate { path } => {
            let id = rotate(&path)?;
            print::line(&format!("{} has the new key {id}, which is active", path.display()))?;
            print::note(
                "Values sealed before stay readable with their old key. Renew the copy, and restart the gateways: \
                 they read the keyring when they start.",
            );
        }
    }
    Ok(())
}

fn generate(path: &Path) -> Result<KeyId, Failure> {
    let ring = Keyring::generate(numbered(1), entropy::random())
        .map_err(|error| Failure::failed(error.to_string()))?;
    ring.create(path).map_err(|error| refused(&error))?;
    Ok(ring.active().clone())
}

fn rotate(path: &Path) -> Result<KeyId, Failure> {
    let ring = Keyring::edit(path, |ring| ring.rotate(next(ring), entropy::random()));
    ring.map(|ring| ring.active().clone()).map_err(|error| refused(&error))
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

    #[test]
    fn a_keyring_is_made_once_and_rotated_often() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("keyring.json");
        assert_eq!(generate(&path).expect("made").as_str(), "v1");
        let again = generate(&path).expect_err("never overwritten").to_string();
        assert!(again.contains("keyring.json"), "{again}");
        assert_eq!(rotate(&path).expect("rotated").as_str(), "v2");
        assert_eq!(rotate(&path).expect("rotated").as_str(), "v3");
        let ids: Vec<String> =
            Keyring::load(&path).expect("a keyring").ids().map(ToString::to_string).collect();
        assert_eq!(ids, ["v1", "v2", "v3"]);
    }

    #[test]
    fn other_names_do_not_disturb_the_numbers() {
        let ring = Keyring::generate(KeyId::new("dev").expect("valid"), [1; 32]).expect("made");
        assert_eq!(next(&ring).as_str(), "v1");
    }

    #[test]
    fn a_missing_keyring_says_how_to_make_one() {
        let error = rotate(Path::new("/nonexistent/keyring.json")).expect_err("missing").to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }
}
