//! TLS with a gateway: whom to believe, what to show, and what went wrong.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use zeroize::Zeroizing;

use crate::error::Error;

/// Largest file that is read, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// TLS for `https` endpoints. The default trusts the platform's certificate authorities and shows no certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates (PEM) that the gateway's must come from, in place of the platform's.
    pub ca_file: Option<PathBuf>,
    /// A certificate of our own, for gateways that want one.
    pub client_certificate: Option<ClientCertificate>,
    /// The name that the gateway's certificate must bear. Default: the endpoint's host.
    pub server_name: Option<String>,
}

/// A certificate and its key in PEM files. They are read again for each new connection of a subscription, so that renewed
/// ones are taken up without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, with the chain above it.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

impl Tls {
    /// Whether anything of it is in files.
    pub(crate) const fn has_files(&self) -> bool {
        self.ca_file.is_some() || self.client_certificate.is_some()
    }

    /// Puts it on an endpoint. Blocks for as long as reading files takes.
    pub(crate) fn apply(&self, endpoint: Endpoint) -> Result<Endpoint, Error> {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca_file {
            None => config.with_native_roots(),
            Some(path) => config.ca_certificate(Certificate::from_pem(certificates("tls.ca_file", path)?)),
        };
        if let Some(own) = &self.client_certificate {
            let certificate = certificates("tls.client_certificate.cert_file", &own.cert_file)?;
            let key = key("tls.client_certificate.key_file", &own.key_file)?;
            config = config.identity(Identity::from_pem(certificate, key.as_slice()));
        }
        if let Some(name) = &self.server_name {
            if rustls::pki_types::ServerName::try_from(name.as_str()).is_err() {
                return Err(Error::Config { field: "tls.server_name", rule: "a host name or an address" });
            }
            config = config.domain_name(name);
        }
        endpoint.tls_config(config).map_err(|_| match &self.client_certificate {
            // The files were looked at: what is left is that they do not belong together.
            Some(own) => {
                unusable("tls.client_certificate.key_file", &own.key_file, "is not the certificate's key")
            }
            None => {
                Error::Config { field: "tls", rule: "possible: are certificate authorities installed here?" }
            }
        })
    }
}

const fn unusable_reason(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "does not exist",
        io::ErrorKind::PermissionDenied => "may not be read by this user",
        _ => "cannot be read",
    }
}

fn unusable(field: &'static str, path: &Path, reason: &'static str) -> Error {
    Error::TlsFile { field, path: path.into(), reason }
}

fn read(field: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let failed = |error: io::Error| unusable(field, path, unusable_reason(error.kind()));
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(unusable(field, path, "is no file of at most 1 MiB"));
    }
    std::fs::read(path).map(Zeroizing::new).map_err(failed)
}

fn certificates(field: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    let pem = read(field, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    if found.is_ok_and(|found| !found.is_empty()) {
        Ok(pem.to_vec())
    } else {
        Err(unusable(field, path, "holds no certificates in PEM"))
    }
}

fn key(field: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let pem = read(field, path)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(pem),
        Err(_) => Err(unusable(field, path, "holds no private key in PEM")),
    }
}

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
            let inner = this.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let tls = this.downcast_ref::<rustls::Error>();
            if let Some(tls) = tls.or_else(|| inner.and_then(|inner| inner.downcast_ref())) {
                return Some(Self::of_tls(tls));
            }
            // What breaks a connection after the handshake comes as words: a gateway that refuses our certificate says so
            // when we believe to be done (TLS 1.3).
            if let Some(failure) =
                this.downcast_ref::<io::Error>().and_then(|error| Self::of_words(&error.to_string()))
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
