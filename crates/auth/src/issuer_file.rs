//! The local issuer's key on disk: PKCS#8 in PEM (RFC 8410), as `openssl genpkey -algorithm ed25519` writes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, KeypairBytes, spki::der::pem::LineEnding};
use zeroize::Zeroizing;

use crate::Issuer;

/// Largest key file that is read, bytes; a key is about 120.
const FILE_BYTES_MAX: usize = 16 * 1024;

/// Why a key file cannot be used. Never shows its content.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// There is nothing at this path.
    #[error("no key file at {path}")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused to read or write.
    #[error("the key file {path} cannot be used ({kind})")]
    Io {
        /// The file.
        path: PathBuf,
        /// The file system's reason.
        kind: io::ErrorKind,
    },
    /// Others may read or change it.
    #[error("the key file {path} has mode {mode:04o}: others may read or change it; make it 0600")]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not an Ed25519 private key in PKCS#8 PEM.
    #[error("the key file {path} is not an Ed25519 private key in PKCS#8 PEM")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// A file is there already, and a key is never overwritten.
    #[error("{path} exists; a key is never overwritten")]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
}

impl Issuer {
    /// Reads the key file. On Unix it must be readable by its owner alone, or by its group too when it is mounted so
    /// (0440).
    ///
    /// # Errors
    /// [`KeyFileError`] for each of: missing, unreadable, open to others, malformed.
    pub fn load(path: &Path, name: &str, audience: &str) -> Result<Self, KeyFileError> {
        let malformed = || KeyFileError::Malformed { path: path.into() };
        let pem = read_private(path)?;
        let pem = std::str::from_utf8(&pem).map_err(|_| malformed())?;
        let key = SigningKey::from_pkcs8_pem(pem).map_err(|_| malformed())?;
        Ok(Self::from_key(name, audience, key))
    }

    /// Writes the key to a new file with mode 0600: completely, or not at all. Its folder must exist.
    ///
    /// # Errors
    /// [`KeyFileError::AlreadyExists`] when something is there, [`KeyFileError::Io`] when the file system refuses.
    pub fn create(&self, path: &Path) -> Result<(), KeyFileError> {
        // Without the public part: version 1 of the format, which every tool reads.
        let pem = KeypairBytes { secret_key: self.key.to_bytes(), public_key: None }
            .to_pkcs8_pem(LineEnding::LF)
            .expect("invariant: 32 bytes encode");
        write_new(path, pem.as_bytes()).map_err(|e| {
            if e.kind() == io::ErrorKind::AlreadyExists {
                KeyFileError::AlreadyExists { path: path.into() }
            } else {
                KeyFileError::Io { path: path.into(), kind: e.kind() }
            }
        })
    }
}

fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let failed = |e: io::Error| {
        if e.kind() == io::ErrorKind::NotFound {
            KeyFileError::Missing { path: path.into() }
        } else {
            KeyFileError::Io { path: path.into(), kind: e.kind() }
        }
    };
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(KeyFileError::Io { path: path.into(), kind: io::ErrorKind::InvalidInput });
    }
    let file = File::open(path).map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = file.metadata().map_err(failed)?.permissions().mode();
        if mode & 0o027 != 0 {
            return Err(KeyFileError::TooOpen { path: path.into(), mode: mode & 0o7777 });
        }
    }
    let mut content = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 1));
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() > FILE_BYTES_MAX {
        return Err(KeyFileError::Malformed { path: path.into() });
    }
    Ok(content)
}

/// A hard link, unlike a rename, fails when the target exists; what it names is complete.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    // A leftover of a process with the same number that died while it wrote.
    if let Err(e) = fs::remove_file(&temporary)
        && e.kind() != io::ErrorKind::NotFound
    {
        return Err(e);
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options.open(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::hard_link(&temporary, path)
    });
    let _ = fs::remove_file(&temporary);
    written
}
