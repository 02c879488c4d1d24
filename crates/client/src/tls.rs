//! TLS with a gateway: whom to believe, what to show, and what went wrong.

mod connector;
mod failure;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use crate::error::Error;

pub(crate) use connector::{Connector, LastFailure};
pub use failure::TlsFailure;

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

/// A certificate and its key in PEM files. They are read again for each new connection, so that renewed ones are taken
/// up without a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, with the chain above it.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
}

impl Tls {
    /// What a connection is made with, as the files are now. Blocks for as long as reading them takes.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut roots = RootCertStore::empty();
        match &self.ca_file {
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(Error::Config {
                        field: "tls.ca_file",
                        rule: "given: no certificate authorities are installed here",
                    });
                }
            }
            Some(path) => {
                let field = "tls.ca_file";
                for certificate in certificates(field, path)? {
                    let added = roots.add(certificate);
                    added.map_err(|_| unusable(field, path, "holds a damaged certificate"))?;
                }
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| Error::Config { field: "tls", rule: "possible" })?
            .with_root_certificates(roots);
        let mut config = match &self.client_certificate {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = certificates("tls.client_certificate.cert_file", &own.cert_file)?;
                let field = "tls.client_certificate.key_file";
                let key = key(field, &own.key_file)?;
                let built = builder.with_client_auth_cert(chain, key);
                built.map_err(|_| unusable(field, &own.key_file, "is not the key of the certificate"))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

fn unusable_reason(kind: io::ErrorKind) -> &'static str {
    if kind == io::ErrorKind::NotFound {
        "does not exist"
    } else if kind == io::ErrorKind::PermissionDenied {
        "may not be read by this user"
    } else {
        "cannot be read"
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

fn certificates(field: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = read(field, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| unusable(field, path, "holds no certificates in PEM"))
}

fn key(field: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    let pem = read(field, path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| unusable(field, path, "holds no private key in PEM"))
}
