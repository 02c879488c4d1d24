//! `[keyring]`: what encrypts tenants' data keys, and so their secrets and events.

use std::path::PathBuf;

use super::Reader;

/// `[keyring]`.
#[derive(Clone, Debug)]
pub(crate) struct KeyringSection {
    /// File made by `portero keyring generate`, or a folder with one file per key.
    pub(crate) path: Option<PathBuf>,
    /// Name of the key that wraps; needed when `path` is a folder, which does not say.
    pub(crate) active: Option<String>,
    /// Without `path`: to go without a keyring. Beside it: to take data keys too that nothing encrypts yet.
    pub(crate) unprotected: bool,
}

impl KeyringSection {
    pub(super) fn read(section: &mut Reader) -> Self {
        Self {
            path: section.optional_path("path"),
            active: section.optional("active"),
            unprotected: section.or("unprotected", false),
        }
    }
}
