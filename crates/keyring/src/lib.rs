//! Key-encryption keys: what webhook secrets are encrypted with before they reach the database.
//!
//! A [`Keyring`] holds several versions of a key. The active one seals; every one opens, so that a new version can be
//! activated first and old values rewritten later. It is read from one JSON file ([`Keyring::load`]) or from a folder
//! with one file per version ([`Keyring::load_folder`]), which is how Kubernetes mounts a Secret.
//!
//! A lost key means lost webhook secrets: a keyring is backed up apart from the database.
//!
//! This crate must never write key material or plaintext anywhere but into the keyring file, show it in Debug or an error,
//! make its own randomness, or accept a key file that strangers on the machine can read.

mod error;
mod file;
mod folder;
mod key;
mod ring;

pub use error::{ErrorKind, LoadError, OpenError, Problem, RingError, SaveError};
pub use file::FILE_BYTES_MAX;
pub use key::{InvalidKeyId, KEY_BYTES, KeyId};
pub use ring::{KEYS_MAX, Keyring, NONCE_BYTES, PLAINTEXT_BYTES_MAX, Sealed, rejection_aad, secret_aad};
