//! Reading one file, bounded, and why it cannot be used. No error holds content.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Largest file that is read, MiB. A revocation list may name several hundred thousand certificates.
const FILE_MIB_MAX: u64 = 1;
const LIST_MIB_MAX: u64 = 16;
/// Others may neither read nor change a private key; its group may read it, because a mounted Secret with `fsGroup` is
/// readable that way (0440).
const KEY_FORBIDDEN: u32 = 0o027;

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// The certificate and the chain above it.
    Certificate,
    /// Its private key.
    Key,
    /// The authorities of client certificates.
    ClientCa,
    /// What these have revoked.
    ClientCrl,
}

impl File {
    const fn mib_max(self) -> u64 {
        match self {
            Self::Certificate | Self::Key | Self::ClientCa => FILE_MIB_MAX,
            Self::ClientCrl => LIST_MIB_MAX,
        }
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Certificate => "cert_file",
            Self::Key => "key_file",
            Self::ClientCa => "client_ca_file",
            Self::ClientCrl => "client_crl_file",
        })
    }
}

/// Why TLS files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Missing, no regular file, or not readable by this process.
    #[error("{file} {} cannot be read: {}", path.display(), words(*.kind))]
    Unreadable {
        /// Which file.
        file: File,
        /// Where.
        path: PathBuf,
        /// Why.
        kind: io::ErrorKind,
    },
    /// Larger than such a file may be.
    #[error("{file} {} is larger than {} MiB", path.display(), .file.mib_max())]
    TooLarge {
        /// Which file.
        file: File,
        /// Where.
        path: PathBuf,
    },
    /// A private key that others may read.
    #[error(
        "{} may be read or changed by others (mode {mode:04o}): give it mode 0400 or 0600, or 0440 (defaultMode of the \
         mounted Secret)",
        path.display()
    )]
    TooOpen {
        /// Where.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// No PEM of the right kind in it.
    #[error("{file} {} holds no {} in PEM", path.display(), wanted(*.file))]
    NothingInside {
        /// Which file.
        file: File,
        /// Where.
        path: PathBuf,
    },
    /// PEM whose content is damaged, or of a kind that is not supported.
    #[error("{file} {} holds a {} that is damaged or not supported", path.display(), wanted(*.file))]
    Unusable {
        /// Which file.
        file: File,
        /// Where.
        path: PathBuf,
    },
    /// The key is another one than the certificate's.
    #[error("the key in {} is not the key of the first certificate in {}", key.display(), certificate.display())]
    Mismatch {
        /// Where the certificate is.
        certificate: PathBuf,
        /// Where the key is.
        key: PathBuf,
    },
    /// A new certificate that is not valid now.
    #[error("the certificate in {} {}", path.display(), if *.expired { "has expired" } else { "is not valid yet" })]
    OutOfTime {
        /// Where the certificate is.
        path: PathBuf,
        /// Expired, or not valid yet.
        expired: bool,
    },
    /// A new revocation list that has ended.
    #[error(
        "client_crl_file {} holds a revocation list that has ended (its next update was due): get a newer one from the \
         authority",
        path.display()
    )]
    ListEnded {
        /// Where it is.
        path: PathBuf,
    },
}

impl LoadError {
    /// Whether it is about what clients' authorities have revoked.
    pub(crate) const fn is_of_lists(&self) -> bool {
        match self {
            Self::Unreadable { file, .. }
            | Self::TooLarge { file, .. }
            | Self::NothingInside { file, .. }
            | Self::Unusable { file, .. } => matches!(file, File::ClientCrl),
            Self::ListEnded { .. } => true,
            Self::TooOpen { .. } | Self::Mismatch { .. } | Self::OutOfTime { .. } => false,
        }
    }
}

/// Why it cannot be read. The standard library's own words for a missing file speak of an "entity".
fn words(kind: io::ErrorKind) -> String {
    if kind == io::ErrorKind::NotFound { "there is no such file".to_owned() } else { kind.to_string() }
}

const fn wanted(file: File) -> &'static str {
    match file {
        File::Certificate | File::ClientCa => "certificate",
        File::Key => "private key",
        File::ClientCrl => "revocation list",
    }
}

/// The content of a file.
pub(crate) fn read(file: File, path: &Path) -> Result<Zeroizing<Vec<u8>>, LoadError> {
    let unreadable = |kind| LoadError::Unreadable { file, path: path.into(), kind };
    // Looked at before it is opened: opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(|error| unreadable(error.kind()))?.is_file() {
        return Err(unreadable(io::ErrorKind::InvalidInput));
    }
    let opened = fs::File::open(path).map_err(|error| unreadable(error.kind()))?;
    let metadata = opened.metadata().map_err(|error| unreadable(error.kind()))?;
    if file == File::Key
        && let Some(mode) = mode_of(&metadata)
        && mode & KEY_FORBIDDEN != 0
    {
        return Err(LoadError::TooOpen { path: path.into(), mode });
    }
    let bytes_max = file.mib_max() << 20;
    let mut content = Zeroizing::new(Vec::with_capacity(16 * 1024));
    let read = opened.take(bytes_max + 1).read_to_end(&mut content);
    let length = read.map_err(|error| unreadable(error.kind()))?;
    if u64::try_from(length).unwrap_or(u64::MAX) > bytes_max {
        return Err(LoadError::TooLarge { file, path: path.into() });
    }
    Ok(content)
}

#[cfg(unix)]
fn mode_of(metadata: &fs::Metadata) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    Some(metadata.permissions().mode() & 0o7777)
}

#[cfg(not(unix))]
fn mode_of(_: &fs::Metadata) -> Option<u32> {
    None
}
