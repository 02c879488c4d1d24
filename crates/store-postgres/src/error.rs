//! From the driver's errors to the store's kinds: one table. The driver's texts stop here, because they quote rows.

use std::fmt;

use portero_store::{Error, ErrorKind};
use rustls::CertificateError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// What a failed call could have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: it reads, or it was not yet under way.
    None,
    /// It commits: when the connection breaks, it may have been written.
    Commits,
}

/// What is kept of a driver's error: codes and names of our own schema, never a row's values.
#[derive(Debug)]
pub(crate) struct Cause {
    /// SQLSTATE, or a word for what is not the server's answer.
    code: String,
    constraint: Option<String>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres {}", self.code)?;
        self.constraint.iter().try_for_each(|name| write!(f, " at constraint {name}"))
    }
}

impl std::error::Error for Cause {}

/// Turns a driver's error into the store's.
pub(crate) fn store_error(error: &sqlx::Error, effect: Effect) -> Error {
    let kind = kind(error, effect);
    let constraint = server_error(error).and_then(|e| e.constraint()).map(str::to_owned);
    let message = match server_error(error).map(PgDatabaseError::code) {
        Some("3D000") => "the database does not exist on this server; create it first",
        Some("28000" | "28P01") => "the database refuses this user or password",
        _ => tls_message(error).unwrap_or_else(|| message(kind)),
    };
    Error::with_source(kind, message, Cause { code: code(error), constraint })
}

/// Whether the server undid the statement because of others, so that the same statement may succeed at once.
pub(crate) fn is_undone_by_others(error: &sqlx::Error) -> bool {
    server_error(error).is_some_and(|e| matches!(e.code(), "40P01" | "40001"))
}

/// Whether the statement was undone because a lock did not come free in time.
pub(crate) fn is_wait_in_vain(error: &sqlx::Error) -> bool {
    server_error(error).is_some_and(|e| e.code() == "55P03")
}

/// The name of the unique constraint or index that a row would have broken.
pub(crate) fn broken_unique(error: &sqlx::Error) -> Option<&str> {
    server_error(error).filter(|e| e.code() == "23505").and_then(PgDatabaseError::constraint)
}

/// Whether the connection may be used again: the server has answered and undone the statement.
pub(crate) fn leaves_connection_usable(error: &sqlx::Error) -> bool {
    server_error(error).is_some_and(|e| e.severity() == PgSeverity::Error)
}

/// A stored row that breaks an invariant.
pub(crate) fn corrupt(what: &'static str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the stored value of {what} is not valid"))
}

/// A value that no column can hold.
pub(crate) fn refused(what: &'static str) -> Error {
    Error::new(ErrorKind::Refused, format!("{what} is outside the range that the database stores"))
}

fn server_error(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error().and_then(|e| e.try_downcast_ref::<PgDatabaseError>())
}

fn code(error: &sqlx::Error) -> String {
    if let Some(error) = server_error(error) {
        return error.code().to_owned();
    }
    #[expect(clippy::wildcard_enum_match_arm, reason = "the driver's enum may grow")]
    let word = match error {
        sqlx::Error::Io(error) if tls_error(error).is_some() => "TLS",
        sqlx::Error::Io(error) => return format!("connection: {:?}", error.kind()),
        sqlx::Error::Tls(_) => "TLS",
        sqlx::Error::Protocol(_) => "protocol",
        sqlx::Error::PoolTimedOut => "no connection in time",
        sqlx::Error::PoolClosed => "closed",
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => "undecodable column",
        sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => "unencodable argument",
        _ => "driver",
    };
    word.to_owned()
}

fn tls_error(error: &std::io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// What is wrong with TLS, if that is what is wrong.
fn tls_message(error: &sqlx::Error) -> Option<&'static str> {
    use CertificateError as Bad;
    if matches!(error, sqlx::Error::Tls(_)) {
        return Some(
            "the database is to be reached by TLS, and that cannot be had: is it on in the server (ssl)?",
        );
    }
    let sqlx::Error::Io(error) = error else { return None };
    let tls = tls_error(error)?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enums may grow")]
    Some(match tls {
        rustls::Error::InvalidCertificate(bad) => match bad {
            // The latter: of one that has the name of a trusted one.
            Bad::UnknownIssuer | Bad::BadSignature => {
                "the database's certificate is of an authority that is not trusted here: see database.ca_file"
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the database's certificate is for another name than the one it is reached by"
            }
            Bad::Expired | Bad::ExpiredContext { .. } => "the database's certificate has expired",
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the database's certificate is not valid yet"
            }
            _ => "the database's certificate is not valid",
        },
        rustls::Error::AlertReceived(_) => {
            "the database refuses our side of the TLS handshake: does it want a certificate?"
        }
        _ => "the database does not speak TLS as we do",
    })
}

fn kind(error: &sqlx::Error, effect: Effect) -> ErrorKind {
    let broken = match effect {
        Effect::None => ErrorKind::Unavailable,
        Effect::Commits => ErrorKind::OutcomeUnknown,
    };
    if let Some(error) = server_error(error) {
        // A fatal message ends the connection and may come after the commit and before its answer.
        return match error.code() {
            // No such database, unknown role, wrong password: waiting does not mend them.
            "3D000" | "28000" | "28P01" => ErrorKind::FailedPrecondition,
            code if error.severity() == PgSeverity::Error => server_kind(code),
            _ => broken,
        };
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the driver's enum may grow; unavailable is the safe answer"
    )]
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            broken
        }
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::Decode(_) => ErrorKind::Corrupt,
        sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => ErrorKind::Refused,
        _ => ErrorKind::Unavailable,
    }
}

/// The kind of an error of severity ERROR: the statement was undone as a whole. Classes are SQLSTATE's first two letters.
fn server_kind(code: &str) -> ErrorKind {
    match code {
        // Read-only transaction: a standby, or a database that was made read-only because its disk is full.
        "25006" => ErrorKind::Unavailable,
        // No such schema.
        "3F000" => ErrorKind::SchemaMismatch,
        _ => match code.get(..2) {
            // A row given twice, data exceptions, broken constraints, rows too large for an index.
            Some("21" | "22" | "23" | "54") => ErrorKind::Refused,
            // Undefined table, column or function, or no privilege for it: the schema is not ours.
            Some("42") => ErrorKind::SchemaMismatch,
            Some("XX") => ErrorKind::Corrupt,
            // Connection, resources (disk full, too many connections), operator's intervention, system errors, locks,
            // serialization, and whatever is not known.
            _ => ErrorKind::Unavailable,
        },
    }
}

const fn message(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unavailable => "the database is not available",
        ErrorKind::OutcomeUnknown => {
            "the connection to the database broke during a commit; it may have been written"
        }
        ErrorKind::Refused => "the database refuses this data",
        ErrorKind::AlreadyExists => "a resource with this name exists",
        ErrorKind::NotFound => "the resource does not exist",
        ErrorKind::FailedPrecondition => "the resource cannot be changed in its present state",
        ErrorKind::Exhausted => "there are as many of these as there may be",
        ErrorKind::Fenced => "this session was fenced",
        ErrorKind::Corrupt => "a stored row is not valid",
        ErrorKind::SchemaMismatch => "the database's schema does not fit this program; run `portero migrate`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_unknown_only_where_something_commits() {
        let error = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert_eq!(store_error(&error, Effect::Commits).kind(), ErrorKind::OutcomeUnknown);
        assert_eq!(store_error(&error, Effect::None).kind(), ErrorKind::Unavailable);
        assert_eq!(store_error(&sqlx::Error::PoolTimedOut, Effect::Commits).kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn every_class_of_answer_has_its_kind() {
        for (code, kind) in [
            ("53100", ErrorKind::Unavailable),
            ("53300", ErrorKind::Unavailable),
            ("57014", ErrorKind::Unavailable),
            ("55P03", ErrorKind::Unavailable),
            ("40P01", ErrorKind::Unavailable),
            ("25006", ErrorKind::Unavailable),
            ("22021", ErrorKind::Refused),
            ("23514", ErrorKind::Refused),
            ("54000", ErrorKind::Refused),
            ("42P01", ErrorKind::SchemaMismatch),
            ("42501", ErrorKind::SchemaMismatch),
            ("XX001", ErrorKind::Corrupt),
        ] {
            assert_eq!(server_kind(code), kind, "{code}");
        }
    }
}
