//! From the driver's errors to the store's kinds: one table. The driver's texts stop here, because they may quote rows.

use std::fmt;

use portero_store::{Error, ErrorKind};

/// What a failed step could have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing that lasts: it reads, or stands before the commit.
    Statement,
    /// The commit itself.
    Commit,
}

/// What is kept of a driver's error: SQLite's extended result code, never a text.
#[derive(Debug)]
struct Cause(String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite {}", self.0)
    }
}

impl std::error::Error for Cause {}

/// Turns a statement's error into the store's.
pub(crate) fn statement(error: sqlx::Error) -> Error {
    store_error(&error, Step::Statement)
}

/// Turns a driver's error into the store's.
pub(crate) fn store_error(error: &sqlx::Error, step: Step) -> Error {
    let code = code(error);
    let kind = code.map_or_else(|| driver_kind(error, step), |code| kind(code, step));
    let cause = code.map_or_else(|| driver_word(error).to_owned(), |code| code.to_string());
    Error::with_source(kind, message(kind), Cause(cause))
}

/// Whether a row would have broken a unique key.
pub(crate) fn breaks_unique(error: &sqlx::Error) -> bool {
    const CONSTRAINT_PRIMARYKEY: u32 = 1555;
    const CONSTRAINT_UNIQUE: u32 = 2067;
    matches!(code(error), Some(CONSTRAINT_PRIMARYKEY | CONSTRAINT_UNIQUE))
}

/// A stored value that breaks an invariant, by table and column.
pub(crate) fn corrupt(what: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the stored value of {what} is not valid"))
}

/// A value that no column can hold.
pub(crate) fn refused(what: &'static str) -> Error {
    Error::new(ErrorKind::Refused, format!("{what} cannot be stored"))
}

/// Something that is not there.
pub(crate) fn not_found(what: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, format!("the {what} does not exist"))
}

fn code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// The kind of an extended result code; its low byte is the primary code (<https://sqlite.org/rescode.html>).
fn kind(code: u32, step: Step) -> ErrorKind {
    const ERROR: u32 = 1;
    const IOERR: u32 = 10;
    const CORRUPT: u32 = 11;
    const TOOBIG: u32 = 18;
    const CONSTRAINT: u32 = 19;
    const MISMATCH: u32 = 20;
    const NOTADB: u32 = 26;
    match code & 0xff {
        // "no such table", "no such column": every statement of ours is valid on a schema that is ours.
        ERROR => ErrorKind::SchemaMismatch,
        CORRUPT | NOTADB => ErrorKind::Corrupt,
        TOOBIG | CONSTRAINT | MISMATCH => ErrorKind::Refused,
        // The pages may be in the write-ahead log although their sync failed.
        IOERR if step == Step::Commit => ErrorKind::OutcomeUnknown,
        // Full, read-only, busy, locked, not openable, out of memory, interrupted, and whatever is not known.
        _ => ErrorKind::Unavailable,
    }
}

fn driver_kind(error: &sqlx::Error, step: Step) -> ErrorKind {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the driver's enum may grow; unavailable is the safe answer"
    )]
    match error {
        sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) if step == Step::Commit => ErrorKind::OutcomeUnknown,
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::Decode(_) => ErrorKind::Corrupt,
        sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => ErrorKind::Refused,
        _ => ErrorKind::Unavailable,
    }
}

fn driver_word(error: &sqlx::Error) -> &'static str {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the driver's enum may grow")]
    match error {
        sqlx::Error::PoolTimedOut => "no connection in time",
        sqlx::Error::PoolClosed => "closed",
        sqlx::Error::WorkerCrashed => "worker crashed",
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => "undecodable column",
        sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => "unencodable argument",
        _ => "driver",
    }
}

const fn message(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable => "the database is not available",
        ErrorKind::OutcomeUnknown => "the database failed during a commit; it may have been written",
        ErrorKind::Refused => "the database refuses this data",
        ErrorKind::AlreadyExists => "a resource with this name exists",
        ErrorKind::NotFound => "the resource does not exist",
        ErrorKind::FailedPrecondition => "the resource cannot be changed in its present state",
        ErrorKind::Exhausted => "there are as many of these as there may be",
        ErrorKind::Fenced => "this session was fenced",
        ErrorKind::Corrupt => "the database file or a stored row is not valid",
        ErrorKind::SchemaMismatch => "the database's schema does not fit this program; run `portero migrate`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_code_has_its_kind() {
        for (code, expected) in [
            (1, ErrorKind::SchemaMismatch),
            (5, ErrorKind::Unavailable),
            (6, ErrorKind::Unavailable),
            (8, ErrorKind::Unavailable),
            (10, ErrorKind::Unavailable),
            (11, ErrorKind::Corrupt),
            (13, ErrorKind::Unavailable),
            (14, ErrorKind::Unavailable),
            (18, ErrorKind::Refused),
            (275, ErrorKind::Refused),
            (26, ErrorKind::Corrupt),
        ] {
            assert_eq!(kind(code, Step::Statement), expected, "{code}");
        }
    }

    #[test]
    fn only_a_commit_whose_sync_failed_is_unknown() {
        const IOERR_FSYNC: u32 = 1034;
        assert_eq!(kind(IOERR_FSYNC, Step::Commit), ErrorKind::OutcomeUnknown);
        assert_eq!(kind(IOERR_FSYNC, Step::Statement), ErrorKind::Unavailable);
        assert_eq!(kind(13, Step::Commit), ErrorKind::Unavailable);
    }
}
