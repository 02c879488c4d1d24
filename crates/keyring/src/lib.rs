//! Encryption at rest: what tenants' secrets, secret settings, refused requests and events are encrypted with before they reach the database.
//!
//! ```text
//! key-encryption key (keyring file) ──wraps──▶ data key (one tenant) ──HMAC──▶ value key     ──▶ secrets, secret settings, refused requests
//!                                                                     └──────▶ a key per event ──▶ the event's content
//! ```
//!
//! A [`Keyring`] holds several versions of a key-encryption key. The active one wraps; every one unwraps, so that a new
//! version can be activated first and old keys be wrapped again later. It is read from one JSON file ([`Keyring::load`])
//! or from a folder with one file per version ([`Keyring::load_folder`]), which is how Kubernetes mounts a Secret.
//! [`TenantKeys`] are the versions of one tenant's data key: the newest seals, every one opens.
//!
//! A lost key-encryption key means lost secrets and events: a keyring is backed up apart from the database. A destroyed data
//! key means the same for one tenant, and that is how a tenant is erased.
//!
//! This crate must never write key material or plaintext anywhere but into the keyring file, show it in Debug or an error,
//! make its own randomness, or accept a key file that strangers on the machine can read.

mod cipher;
mod data_key;
mod error;
mod file;
mod folder;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_entry;
mod key;
mod ring;
mod tenant_keys;
mod wrapping;

pub use cipher::NONCE_BYTES;
pub use data_key::DataKey;
pub use error::{ErrorKind, LoadError, OpenError, Problem, RingError, SaveError};
pub use file::FILE_BYTES_MAX;
pub use key::{InvalidKeyId, KEY_BYTES, KeyId};
pub use ring::{KEYS_MAX, Keyring};
pub use tenant_keys::{DATA_KEYS_MAX, TenantKeys, rejection_aad, secret_aad, setting_aad};
pub use wrapping::UNPROTECTED;
