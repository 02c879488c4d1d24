//! One error type for all aggregates. Its text is safe to show to a caller; the driver's own words are only in `source`.

use std::error::Error as StdError;

/// What a storage call returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, as far as a caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The database cannot be reached, is overloaded, full, read-only or shutting down. Nothing was written. Retry later.
    Unavailable,
    /// The connection broke while a commit was under way: it may or may not have been written. Retry with the same keys.
    OutcomeUnknown,
    /// The database refuses this very data (not its neighbours). Retrying does not help.
    Refused,
    /// A resource with this name exists.
    AlreadyExists,
    /// The named resource does not exist.
    NotFound,
    /// The resource cannot be changed or deleted in its present state.
    FailedPrecondition,
    /// There are as many of these as there may be. Deleting some helps, retrying does not.
    Exhausted,
    /// This session was fenced: another owner took over. Stop all work of this session.
    Fenced,
    /// A stored row breaks an invariant; the text names table and column. Someone must act.
    Corrupt,
    /// The schema does not fit this program. Someone must act.
    SchemaMismatch,
}

/// A failed storage call.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error whose text is safe to show.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same with the driver's error kept for logs.
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later without anyone acting.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::OutcomeUnknown)
    }
}
