//! Why a client call or a subscription ended.

use std::path::PathBuf;

use tonic::Code;

use crate::tls::TlsFailure;
use crate::token::TokenError;

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration or the request is wrong; the same again fails again.
    Invalid,
    /// No valid token.
    Unauthenticated,
    /// The token does not allow it.
    PermissionDenied,
    /// No such subscription, or not for this caller.
    NotFound,
    /// The gateway is away, or the connection broke. Safe to retry.
    Unavailable,
    /// The other side broke the protocol.
    Protocol,
}

/// Why a client call or a subscription ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of the configuration is out of its bounds.
    #[error("{field} must be {rule}")]
    Config {
        /// Which field.
        field: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// A file with a certificate or a key cannot be used.
    #[error("{field}: {} {reason}", path.display())]
    TlsFile {
        /// Which field of the configuration names it.
        field: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no TLS with the gateway.
    #[error("no TLS with the gateway: {0}")]
    Tls(TlsFailure),
    /// There is no token to send.
    #[error("no access token")]
    Token(#[from] TokenError),
    /// No connection to the gateway.
    #[error("cannot connect to the gateway")]
    Connect(#[source] tonic::transport::Error),
    /// The gateway refused, or the connection broke.
    #[error("the gateway answered {code:?}: {message}")]
    Status {
        /// The gRPC code.
        code: Code,
        /// The gateway's message; it is written for callers.
        message: String,
    },
    /// Nothing was heard from the gateway for 25 seconds.
    #[error("the gateway went silent")]
    Silent,
    /// The gateway closed the stream.
    #[error("the gateway closed the stream")]
    Closed,
    /// The gateway broke the protocol.
    #[error("the gateway broke the protocol: {0}")]
    Protocol(&'static str),
}

impl Error {
    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } => ErrorKind::Invalid,
            // Files may be in the middle of being replaced: at the start they are refused, later they are read again. So a
            // certificate that the gateway refuses is not refused for good as a fixed token is: the next connection shows
            // what is in the files then.
            Self::TlsFile { .. } | Self::Tls(_) => ErrorKind::Unavailable,
            Self::Token(_) => ErrorKind::Unauthenticated,
            Self::Connect(_) | Self::Silent | Self::Closed => ErrorKind::Unavailable,
            Self::Protocol(_) => ErrorKind::Protocol,
            Self::Status { code, .. } => kind_of(*code),
        }
    }

    /// Whether a subscription gives up on it. `can_renew`: the next attempt may carry another token.
    pub(crate) fn is_fatal(&self, can_renew: bool) -> bool {
        match self.kind() {
            ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::PermissionDenied => true,
            ErrorKind::Unauthenticated => !can_renew,
            ErrorKind::Unavailable | ErrorKind::Protocol => false,
        }
    }
}

/// One table from gRPC codes to kinds.
fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument => ErrorKind::Invalid,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::PermissionDenied,
        Code::NotFound => ErrorKind::NotFound,
        // A proxy in front of a gateway that is starting may answer anything else, so the rest is retried.
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => ErrorKind::Unavailable,
    }
}

impl From<tonic::transport::Error> for Error {
    fn from(error: tonic::transport::Error) -> Self {
        TlsFailure::of(&error).map_or_else(|| Self::Connect(error), Self::Tls)
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        if let Some(failure) = TlsFailure::of(&status) {
            return Self::Tls(failure);
        }
        // A status made by our own side of the connection may hold text of the layers below: its code says enough.
        let local = std::error::Error::source(&status).is_some();
        let message = if local {
            "the connection broke".to_owned()
        } else {
            status.message().chars().take(500).collect()
        };
        Self::Status { code: status.code(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fatal(code: Code, can_renew: bool) -> bool {
        Error::from(tonic::Status::new(code, "")).is_fatal(can_renew)
    }

    #[test]
    fn only_errors_that_another_attempt_cannot_mend_are_fatal() {
        for code in [Code::InvalidArgument, Code::NotFound, Code::PermissionDenied] {
            assert!(fatal(code, true) && fatal(code, false), "{code:?}");
        }
        assert!(fatal(Code::Unauthenticated, false));
        assert!(!fatal(Code::Unauthenticated, true));
        for code in
            [Code::Unavailable, Code::Aborted, Code::DeadlineExceeded, Code::Internal, Code::Unimplemented]
        {
            assert!(!fatal(code, false), "{code:?}");
        }
        let refused = Error::Tls(TlsFailure::CertificateRefused);
        assert!(!refused.is_fatal(false), "its file may hold another one at the next attempt");
    }
}
