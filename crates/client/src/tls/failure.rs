//! What went wrong with TLS.

use std::error::Error as StdError;
use std::fmt;
use std::io;

/// Why there is no TLS with the gateway. The same again fails again until somebody mends certificates or settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TlsFailure {
    /// The gateway's certificate comes from an authority that is not trusted.
    UnknownAuthority,
    /// The gateway's certificate has expired.
    Expired,
    /// The gateway's certificate is not valid yet, or this machine's clock is wrong.
    NotYetValid,
    /// The gateway's certificate bears another name than the endpoint's.
    WrongName,
    /// The gateway's certificate cannot be used for another reason.
    BadCertificate,
    /// The gateway wants a client certificate.
    CertificateWanted,
    /// The gateway does not accept our certificate.
    CertificateRefused,
    /// What answers does not speak TLS.
    NotTls,
    /// No version of TLS or protocol in common, or the handshake failed otherwise.
    Handshake,
}

impl TlsFailure {
    /// The failure of TLS below an error, if that is its cause.
    #[must_use]
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(this) = cause {
            let inner = innermost(this);
            if let Some(failure) = inner.downcast_ref::<Self>() {
                return Some(*failure);
            }
            if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
                return Some(Self::of_tls(tls));
            }
            // What breaks a connection after the handshake comes as words: a gateway that refuses our certificate says so
            // when we believe to be done (TLS 1.3). A status has the gateway's words.
            if !inner.is::<tonic::Status>()
                && let Some(failure) = Self::of_words(&inner.to_string())
            {
                return Some(failure);
            }
            cause = this.source();
        }
        None
    }

    fn of_tls(error: &rustls::Error) -> Self {
        use rustls::CertificateError as Bad;
        use rustls::Error as Tls;
        #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enums may grow")]
        match error {
            Tls::InvalidCertificate(bad) => match bad {
                // The latter: of one that has the name of a trusted one.
                Bad::UnknownIssuer | Bad::BadSignature => Self::UnknownAuthority,
                Bad::Expired | Bad::ExpiredContext { .. } => Self::Expired,
                Bad::NotValidYet | Bad::NotValidYetContext { .. } => Self::NotYetValid,
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => Self::WrongName,
                _ => Self::BadCertificate,
            },
            Tls::InvalidMessage(_) => Self::NotTls,
            Tls::AlertReceived(_) => Self::of_words(&error.to_string()).unwrap_or(Self::Handshake),
            _ => Self::Handshake,
        }
    }

    fn of_words(words: &str) -> Option<Self> {
        let (_, alert) = words.split_once("received fatal alert: ")?;
        Some(match alert {
            _ if alert.starts_with("CertificateRequired") => Self::CertificateWanted,
            _ if [
                "BadCertificate",
                "UnknownCA",
                "DecryptError",
                "AccessDenied",
                "UnsupportedCertificate",
            ]
            .iter()
            .any(|name| alert.starts_with(name))
                || alert.starts_with("Certificate") =>
            {
                Self::CertificateRefused
            }
            _ => Self::Handshake,
        })
    }
}

/// What is packed in errors of the operating system's kind, which are not in each other's chain.
fn innermost<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    error
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownAuthority => "its certificate comes from an authority that is not trusted here",
            Self::Expired => "its certificate has expired",
            Self::NotYetValid => "its certificate is not valid yet, or this machine's clock is wrong",
            Self::WrongName => "its certificate bears another name than the endpoint",
            Self::BadCertificate => "its certificate cannot be used",
            Self::CertificateWanted => "it wants a client certificate",
            Self::CertificateRefused => "it does not accept the client certificate",
            Self::NotTls => "what answers there does not speak TLS",
            Self::Handshake => "the TLS handshake failed",
        })
    }
}

impl StdError for TlsFailure {}
