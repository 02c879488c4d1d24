//! The keyring as a folder with one file per key version: the file's name is the key id, its content the key in base64.
//! This is how Kubernetes mounts a Secret (kubernetes.io/docs/concepts/configuration/secret), which also puts hidden
//! entries there (`..data`); names that start with a dot are skipped.

use std::fs;
use std::path::Path;

use crate::file::read_private;
use crate::key::Key;
use crate::{KEYS_MAX, KeyId, Keyring, LoadError, Problem};

/// Others may neither read nor change a key file; its group may read it, because a mounted Secret with `fsGroup` is
/// readable that way (0440).
const FORBIDDEN: u32 = 0o027;

impl Keyring {
    /// Reads a folder of key files. The active key is named by the configuration, not by the folder.
    ///
    /// # Errors
    /// [`LoadError`] for each of: missing, unreadable, a file open to others, a malformed name or key, active key not
    /// among the files.
    pub fn load_folder(path: &Path, active: KeyId) -> Result<Self, LoadError> {
        let unreadable = |e: std::io::Error| LoadError::of_io(path, &e);
        let mut keys = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let file = entry.path();
            let malformed = |problem| LoadError::Malformed { path: file.clone(), problem };
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if keys.len() == KEYS_MAX {
                return Err(LoadError::Malformed { path: path.into(), problem: Problem::TooManyKeys });
            }
            let id =
                KeyId::new(name.to_str().unwrap_or_default()).map_err(|invalid| malformed(invalid.into()))?;
            let content = read_private(&file, FORBIDDEN, "0440 (defaultMode of the mounted Secret) or 0600")?;
            let text = std::str::from_utf8(&content).map_err(|_| malformed(Problem::NotBase64))?;
            keys.push((id, Key::from_base64(text).map_err(malformed)?));
        }
        let ring = Self::from_keys(active, keys)
            .map_err(|problem| LoadError::Malformed { path: path.into(), problem })?;
        if ring.contains(ring.active()) {
            Ok(ring)
        } else {
            Err(LoadError::UnknownActive { path: path.into(), id: ring.active().clone() })
        }
    }
}
