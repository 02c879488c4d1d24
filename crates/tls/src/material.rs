//! What the files hold, put together and checked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portero_types::Timestamp;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use x509_cert::der::Decode as _;
use zeroize::Zeroizing;

use crate::Purpose;
use crate::file::{File, LoadError, read};

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate in PEM, with the chain above it.
    pub cert_file: PathBuf,
    /// Its private key in PEM (PKCS #8, PKCS #1 or SEC1).
    pub key_file: PathBuf,
    /// Authorities (PEM) one of which every client's certificate must come from. Without it clients need none.
    pub client_ca_file: Option<PathBuf>,
}

/// The bytes of the files at one time.
pub(crate) struct Content {
    certificate: Zeroizing<Vec<u8>>,
    key: Zeroizing<Vec<u8>>,
    client_ca: Option<Zeroizing<Vec<u8>>>,
}

/// What tells one content from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// Everything that handshakes need.
pub(crate) struct Material {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) not_before: Timestamp,
    /// When the first certificate of the chain ends.
    pub(crate) not_after: Timestamp,
}

impl TlsFiles {
    /// Reads all files. Blocks.
    pub(crate) fn read(&self) -> Result<Content, LoadError> {
        Ok(Content {
            certificate: read(File::Certificate, &self.cert_file)?,
            key: read(File::Key, &self.key_file)?,
            client_ca: self.client_ca_file.as_deref().map(|path| read(File::ClientCa, path)).transpose()?,
        })
    }

    fn certificates(&self, file: File, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, LoadError> {
        let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
        match found {
            Ok(found) if found.is_empty() => Err(LoadError::NothingInside { file, path: self.path(file) }),
            Ok(found) => Ok(found),
            Err(_) => Err(self.unusable(file)),
        }
    }

    fn key(&self, pem: &[u8]) -> Result<PrivateKeyDer<'static>, LoadError> {
        PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
            if matches!(error, pem::Error::NoItemsFound) {
                LoadError::NothingInside { file: File::Key, path: self.path(File::Key) }
            } else {
                self.unusable(File::Key)
            }
        })
    }

    fn unusable(&self, file: File) -> LoadError {
        LoadError::Unusable { file, path: self.path(file) }
    }

    fn path(&self, file: File) -> PathBuf {
        match file {
            File::Certificate => self.cert_file.clone(),
            File::Key => self.key_file.clone(),
            File::ClientCa => self.client_ca_file.clone().unwrap_or_default(),
        }
    }
}

impl Content {
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut hash = Sha256::new();
        let nothing = Zeroizing::default();
        for part in [&self.certificate, &self.key, self.client_ca.as_ref().unwrap_or(&nothing)] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part.as_slice());
        }
        Fingerprint(hash.finalize().into())
    }

    /// Checks that everything fits together.
    pub(crate) fn build(&self, purpose: Purpose, files: &TlsFiles) -> Result<Material, LoadError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = files.certificates(File::Certificate, &self.certificate)?;
        let (not_before, not_after) = times(&chain).ok_or_else(|| files.unusable(File::Certificate))?;
        let key = files.key(&self.key)?;
        let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
            if matches!(error, rustls::Error::InconsistentKeys(_)) {
                LoadError::Mismatch { certificate: files.cert_file.clone(), key: files.key_file.clone() }
            } else if matches!(error, rustls::Error::InvalidCertificate(_)) {
                files.unusable(File::Certificate)
            } else {
                files.unusable(File::Key)
            }
        })?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|_| files.unusable(File::Key))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in files.certificates(File::ClientCa, pem)? {
                    roots.add(certificate).map_err(|_| files.unusable(File::ClientCa))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|_| files.unusable(File::ClientCa))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = purpose.protocols();
        if self.client_ca.is_some() {
            // What is resumed is not verified again, and a client's certificate may have ended since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Material { fingerprint: self.fingerprint(), config: Arc::new(config), not_before, not_after })
    }
}

/// From when and until when every certificate of the chain is valid.
fn times(chain: &[CertificateDer<'_>]) -> Option<(Timestamp, Timestamp)> {
    let mut whole = (Timestamp::EPOCH, Timestamp::from_micros(i64::MAX));
    for der in chain {
        let certificate = x509_cert::Certificate::from_der(der).ok()?;
        let validity = certificate.tbs_certificate().validity();
        let at = |time: &x509_cert::time::Time| Timestamp::EPOCH.plus(time.to_unix_duration());
        // The last second belongs to it (RFC 5280, 4.1.2.5).
        let last = at(&validity.not_after).plus(Duration::from_micros(999_999));
        whole = (whole.0.max(at(&validity.not_before)), whole.1.min(last));
    }
    Some(whole)
}
