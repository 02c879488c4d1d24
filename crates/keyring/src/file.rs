//! The keyring as one JSON file: `{"active": "v2", "keys": {"v1": "<base64>", "v2": "<base64>"}}`.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::{self, MapAccess, Visitor};
use zeroize::Zeroizing;

use crate::key::Key;
use crate::{KeyId, Keyring, LoadError, Problem, RingError, SaveError};

/// Largest keyring file, and largest key file in a folder, that is read, bytes.
pub const FILE_BYTES_MAX: usize = 64 * 1024;

impl Keyring {
    /// Reads a keyring file. On Unix it must be readable by its owner alone (mode 0600 or 0400).
    ///
    /// # Errors
    /// [`LoadError`] for each of: missing, unreadable, open to others, malformed, active key not among the keys.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let text = read_private(path, 0o077, "0600")?;
        let malformed = |problem| LoadError::Malformed { path: path.into(), problem };
        let shape: Shape = serde_json::from_slice(&text)
            .map_err(|e| malformed(Problem::NotJson { line: e.line(), column: e.column() }))?;
        let active = KeyId::new(shape.active).map_err(|e| malformed(e.into()))?;
        let mut keys = Vec::with_capacity(shape.keys.0.len());
        for (id, value) in &shape.keys.0 {
            let id = KeyId::new(id.as_str()).map_err(|e| malformed(e.into()))?;
            keys.push((id, Key::from_base64(value).map_err(malformed)?));
        }
        let ring = Self::from_keys(active, keys).map_err(malformed)?;
        if ring.contains(ring.active()) {
            Ok(ring)
        } else {
            Err(LoadError::UnknownActive { path: path.into(), id: ring.active().clone() })
        }
    }

    /// Writes a new keyring file with mode 0600: completely, or not at all. Its folder must exist.
    ///
    /// # Errors
    /// [`SaveError::AlreadyExists`] when something is there: an existing keyring is never overwritten by this.
    pub fn create(&self, path: &Path) -> Result<(), SaveError> {
        let unwritable = |e: io::Error| {
            if e.kind() == io::ErrorKind::AlreadyExists {
                SaveError::AlreadyExists { path: path.into() }
            } else {
                SaveError::Unwritable { path: path.into(), kind: e.kind() }
            }
        };
        // A hard link, unlike a rename, fails when the target exists.
        self.write_beside(path, |temporary| fs::hard_link(temporary, path)).map_err(unwritable)
    }

    /// Changes a keyring file: loads it, applies `change`, and replaces it atomically. Callers on the same machine wait for
    /// each other, so that none undoes the other's change. A crash leaves the old or the new file. Its owner stays the same, for
    /// gateways run as somebody who is not always the one who changes it; a link goes on leading to it.
    ///
    /// # Errors
    /// Whatever loading, `change` or writing fails with; the file is then as it was.
    pub fn edit(
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<(), RingError>,
    ) -> Result<Self, SaveError> {
        let unwritable = |e: io::Error| SaveError::Unwritable { path: path.into(), kind: e.kind() };
        let file = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let _lock = lock_folder_of(&file).map_err(unwritable)?;
        let mut ring = Self::load(path)?;
        change(&mut ring)?;
        let publish = |temporary: &Path| {
            keep_owner(&file, temporary)?;
            fs::rename(temporary, &file)
        };
        ring.write_beside(&file, publish).map_err(unwritable)?;
        Ok(ring)
    }

    /// Writes to a temporary file in the same folder, makes it durable, and lets `publish` put it in place.
    fn write_beside(&self, path: &Path, publish: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let temporary = Temporary(temporary_beside(path)?);
        let mut file = create_private(&temporary.0)?;
        file.write_all(self.to_json().as_bytes())?;
        file.sync_all()?;
        drop(file);
        publish(&temporary.0)?;
        sync_folder_of(path)
    }

    /// Ids and base64 need no escapes, and a buffer that never grows leaves no copies behind.
    fn to_json(&self) -> Zeroizing<String> {
        let mut json = Zeroizing::new(String::with_capacity(256 + self.ids().count() * 128));
        json.push_str("{\n  \"active\": \"");
        json.push_str(self.active().as_str());
        json.push_str("\",\n  \"keys\": {");
        for (i, (id, key)) in self.keys().enumerate() {
            json.push_str(if i == 0 { "\n    \"" } else { ",\n    \"" });
            json.push_str(id.as_str());
            json.push_str("\": \"");
            json.push_str(&key.to_base64());
            json.push('"');
        }
        json.push_str("\n  }\n}\n");
        json
    }
}

/// Reads a file after its permissions were checked on the open handle. `forbidden` are the mode bits that must be clear.
pub(crate) fn read_private(
    path: &Path,
    forbidden: u32,
    wanted: &'static str,
) -> Result<Zeroizing<Vec<u8>>, LoadError> {
    let unreadable = |e: io::Error| LoadError::of_io(path, &e);
    // Looked at before it is opened: opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(LoadError::Unreadable { path: path.into(), kind: io::ErrorKind::InvalidInput });
    }
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if let Some(mode) = mode_of(&metadata)
        && mode & forbidden != 0
    {
        return Err(LoadError::TooOpen { path: path.into(), mode: mode & 0o7777, wanted });
    }
    let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(LoadError::Malformed { path: path.into(), problem: Problem::TooLarge });
    }
    Ok(text)
}

#[cfg(unix)]
pub(crate) fn mode_of(metadata: &fs::Metadata) -> Option<u32> {
    Some(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()))
}

#[cfg(not(unix))]
pub(crate) fn mode_of(_metadata: &fs::Metadata) -> Option<u32> {
    None
}

fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Gives a file to the owner of the one that it is to replace, who alone may read either.
#[cfg(unix)]
fn keep_owner(replaced: &Path, file: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let (replaced, made) = (fs::metadata(replaced)?, fs::metadata(file)?);
    if replaced.uid() == made.uid() {
        return Ok(());
    }
    chown(file, Some(replaced.uid()), Some(replaced.gid()))
}

#[cfg(not(unix))]
fn keep_owner(_replaced: &Path, _file: &Path) -> io::Result<()> {
    Ok(())
}

/// A name in the same folder that only this process uses; leftovers of a process with the same number are removed.
fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    match fs::remove_file(&temporary) {
        Ok(()) => Ok(temporary),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(temporary),
        Err(e) => Err(e),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Waits until no other `edit` works in this folder. The lock ends with the handle, also when the process dies.
#[cfg(unix)]
fn lock_folder_of(path: &Path) -> io::Result<File> {
    let folder = File::open(folder_of(path))?;
    folder.lock()?;
    Ok(folder)
}

#[cfg(not(unix))]
fn lock_folder_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Removes the temporary file on every way out; after a rename there is nothing left to remove.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    active: String,
    keys: Entries,
}

/// The pairs of a JSON object in order, repeated names included, values wiped on drop.
struct Entries(Vec<(String, Zeroizing<String>)>);

impl<'de> serde::Deserialize<'de> for Entries {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of keys")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut pairs = Vec::new();
                while let Some(id) = map.next_key::<String>()? {
                    pairs.push((id, Zeroizing::new(map.next_value::<String>()?)));
                }
                Ok(Entries(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
