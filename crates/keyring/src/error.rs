//! What can go wrong. Texts name files, key ids and what to do; never key material.

use std::io;
use std::path::{Path, PathBuf};

use crate::{DATA_KEYS_MAX, InvalidKeyId, KEY_BYTES, KEYS_MAX, KeyId, UNPROTECTED};

/// A stable code for each failure of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The file or folder does not exist.
    Missing,
    /// The file system refused.
    Unreadable,
    /// Others on this machine may read or change it.
    TooOpen,
    /// Its content is not a keyring.
    Malformed,
    /// A key id that the keyring does not hold.
    UnknownKey,
    /// A sealed value that was changed, cut, or sealed for another purpose.
    Tampered,
    /// A key version of this name, or this file, exists.
    AlreadyExists,
    /// The keyring's own rules forbid the change.
    FailedPrecondition,
    /// The file could not be written.
    Unwritable,
}

/// What is wrong with a keyring's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Longer than [`crate::FILE_BYTES_MAX`].
    #[error("it is larger than {max} bytes", max = crate::FILE_BYTES_MAX)]
    TooLarge,
    /// Not JSON of the documented shape.
    #[error("it must be a JSON object with \"active\" and \"keys\" (line {line}, column {column})")]
    NotJson {
        /// Line of the first offence, from 1.
        line: usize,
        /// Column of the first offence, from 1.
        column: usize,
    },
    /// A key id breaks its rule.
    #[error(transparent)]
    BadKeyId(#[from] InvalidKeyId),
    /// A key id stands there twice.
    #[error("a key id is repeated")]
    RepeatedKeyId,
    /// A key is not standard base64.
    #[error("a key is not standard base64 with padding")]
    NotBase64,
    /// A key is not 256 bits long.
    #[error("a key does not hold {KEY_BYTES} bytes")]
    WrongKeyLength,
    /// A key is all zeros: a placeholder that was never replaced.
    #[error("a key is all zeros")]
    ZeroKey,
    /// A key has the name that stands for no key at all.
    #[error("no key may be called {UNPROTECTED:?}: that name stands for data keys that nothing encrypts")]
    ReservedKeyId,
    /// Two versions hold the same key.
    #[error("two key ids hold the same key")]
    RepeatedKey,
    /// No key at all.
    #[error("it holds no key")]
    NoKeys,
    /// More than [`KEYS_MAX`] keys.
    #[error("it holds more than {KEYS_MAX} keys")]
    TooManyKeys,
}

/// The file system's reason. The standard library's own words for what is missing speak of an "entity".
fn words(kind: io::ErrorKind) -> String {
    if kind == io::ErrorKind::NotFound { "there is no such file".to_owned() } else { kind.to_string() }
}

/// The same of a file that is made: what is missing is its folder.
fn words_of_writing(kind: io::ErrorKind) -> String {
    if kind == io::ErrorKind::NotFound { "there is no such folder".to_owned() } else { words(kind) }
}

/// Why a keyring could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is nothing at this path.
    #[error("no keyring at {path}; make one with `portero keyring generate`")]
    Missing {
        /// The file or folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("the keyring at {path} cannot be read ({})", words(*.kind))]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The file system's reason.
        kind: io::ErrorKind,
    },
    /// Others may read or change it.
    #[error("{path} has mode {mode:04o}: others may read or change it; make it {wanted}")]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What it may be at most.
        wanted: &'static str,
    },
    /// The content is not a keyring.
    #[error("the keyring at {path} is malformed: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: Problem,
    },
    /// The active key is not among the keys.
    #[error("the keyring at {path} has no key {id}, which is named as the active one")]
    UnknownActive {
        /// The file or folder.
        path: PathBuf,
        /// The name of the missing key.
        id: KeyId,
    },
}

impl LoadError {
    pub(crate) fn of_io(path: &Path, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            Self::Missing { path: path.into() }
        } else {
            Self::Unreadable { path: path.into(), kind: error.kind() }
        }
    }

    /// The stable code.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. } => ErrorKind::Missing,
            Self::Unreadable { .. } => ErrorKind::Unreadable,
            Self::TooOpen { .. } => ErrorKind::TooOpen,
            Self::Malformed { .. } => ErrorKind::Malformed,
            Self::UnknownActive { .. } => ErrorKind::UnknownKey,
        }
    }
}

/// Why a keyring could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// A file is there already, and it was not to be replaced.
    #[error("{path} exists; a keyring is never overwritten")]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("the keyring at {path} cannot be written ({})", words_of_writing(*.kind))]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The file system's reason.
        kind: io::ErrorKind,
    },
    /// The keyring that was to be changed could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The change itself was refused.
    #[error(transparent)]
    Change(#[from] RingError),
}

impl SaveError {
    /// The stable code.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            Self::Unwritable { .. } => ErrorKind::Unwritable,
            Self::Load(error) => error.kind(),
            Self::Change(error) => error.kind(),
        }
    }
}

/// Why a keyring refuses a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// A version of this name is there. Names are never reused.
    #[error("the keyring has a key {id} already")]
    AlreadyExists {
        /// The name.
        id: KeyId,
    },
    /// No version of this name is there.
    #[error("the keyring has no key {id}")]
    UnknownKey {
        /// The name.
        id: KeyId,
    },
    /// The active version cannot be removed.
    #[error("key {id} is the active one; activate another first")]
    Active {
        /// The name.
        id: KeyId,
    },
    /// The new key is not usable.
    #[error("the new key was refused: {0}")]
    Unusable(Problem),
}

impl RingError {
    /// The stable code.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            Self::UnknownKey { .. } => ErrorKind::UnknownKey,
            Self::Active { .. } | Self::Unusable(_) => ErrorKind::FailedPrecondition,
        }
    }
}

/// Why a sealed value could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The keyring does not hold the key that sealed it: a version was removed too early, or this is another
    /// installation's keyring. The id is a stored name, shown only when it has the form of one.
    #[error("the keyring has no key {}, which sealed this value", .id.as_ref().map_or("of that name", KeyId::as_str))]
    UnknownKey {
        /// The name, when it has the form of one.
        id: Option<KeyId>,
    },
    /// A data key that nothing encrypts, and this keyring takes none of those.
    #[error("the data key is not encrypted, and this keyring takes only encrypted ones")]
    Unprotected,
    /// The tenant has no data key of this version, or none is known yet.
    #[error("version {version} of the tenant's data key, which sealed this value, is not here")]
    UnknownVersion {
        /// The version.
        version: u16,
    },
    /// A tenant without a data key, with more than [`DATA_KEYS_MAX`], or with two of one version.
    #[error("a tenant has 1 to {DATA_KEYS_MAX} data keys of different versions")]
    NoKeySet,
    /// The value was changed or cut, or was sealed for another place.
    #[error("the sealed value was changed, or belongs elsewhere")]
    Tampered,
    /// The value has a format that this program does not know: a newer one wrote it.
    #[error("the sealed value has a format that this version does not know")]
    UnknownFormat,
}

impl OpenError {
    /// The stable code.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownKey { .. } | Self::UnknownVersion { .. } | Self::Unprotected => {
                ErrorKind::UnknownKey
            }
            Self::Tampered => ErrorKind::Tampered,
            Self::UnknownFormat | Self::NoKeySet => ErrorKind::Malformed,
        }
    }
}
