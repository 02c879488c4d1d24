//! `[keyring]`: what encrypts the secrets of sources.

use std::path::PathBuf;

use super::Reader;

/// `[keyring]`.
#[derive(Clone, Debug)]
pub(crate) struct KeyringSection {
    /// File made by `portero keyring generate`, or a folder with one file per key.
    pub(crate) path: Option<PathBuf>,
    /// Name of the key that seals; needed when `path` is a folder, which does not say.
    pub(crate) active: Option<String>,
}

impl KeyringSection {
    pub(super) fn read(section: &mut Reader) -> Self {
        Self { path: section.optional_path("path"), active: section.optional("active") }
    }
}
