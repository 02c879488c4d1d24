//! What the files hold, put together and checked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portero_types::{Clock, Timestamp};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use sha2::{Digest as _, Sha256};
use x509_cert::der::Decode as _;
use zeroize::Zeroizing;

use crate::Purpose;
use crate::clients::{Clients, HandshakeTime};
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
    /// What these authorities have revoked (PEM, one list of each authority that issues certificates of clients or of other
    /// authorities in their chains). Without it nothing is known to be revoked.
    pub client_crl_file: Option<PathBuf>,
}

/// The bytes of the files at one time.
pub(crate) struct Content {
    certificate: Zeroizing<Vec<u8>>,
    key: Zeroizing<Vec<u8>>,
    client_ca: Option<Zeroizing<Vec<u8>>>,
    client_crl: Option<Zeroizing<Vec<u8>>>,
}

/// What tells one content from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; 32]);

/// Everything that handshakes need.
pub(crate) struct Material {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) config: Arc<ServerConfig>,
    /// What clients' certificates are judged by; `None` where they need none. The same one for as long as its files are.
    pub(crate) clients: Option<Arc<Clients>>,
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
            client_crl: self
                .client_crl_file
                .as_deref()
                .map(|path| read(File::ClientCrl, path))
                .transpose()?,
        })
    }

    /// All of one kind in a file; at least one.
    fn all<T: PemObject>(&self, file: File, pem: &[u8]) -> Result<Vec<T>, LoadError> {
        let found: Result<Vec<T>, pem::Error> = T::pem_slice_iter(pem).collect();
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

    pub(crate) fn unusable(&self, file: File) -> LoadError {
        LoadError::Unusable { file, path: self.path(file) }
    }

    pub(crate) fn path(&self, file: File) -> PathBuf {
        match file {
            File::Certificate => self.cert_file.clone(),
            File::Key => self.key_file.clone(),
            File::ClientCa => self.client_ca_file.clone().unwrap_or_default(),
            File::ClientCrl => self.client_crl_file.clone().unwrap_or_default(),
        }
    }
}

impl Content {
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of([
            Some(&self.certificate),
            Some(&self.key),
            self.client_ca.as_ref(),
            self.client_crl.as_ref(),
        ])
    }

    /// Checks that everything fits together. Of `present`, what is in use now, the clients' part is kept where it is the same.
    pub(crate) fn build(
        &self,
        purpose: Purpose,
        files: &TlsFiles,
        clock: &Arc<dyn Clock>,
        present: Option<&Material>,
    ) -> Result<Material, LoadError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = files.all(File::Certificate, &self.certificate)?;
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
        let clients =
            self.clients(files, clock.now(), present.and_then(|present| present.clients.as_ref()))?;
        let time = Arc::new(HandshakeTime(Arc::clone(clock)));
        let builder = ServerConfig::builder_with_details(provider, time)
            .with_safe_default_protocol_versions()
            .map_err(|_| files.unusable(File::Key))?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(&clients.verifier)),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = purpose.protocols();
        if clients.is_some() {
            // What is resumed is not verified again, and a client's certificate may have ended since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Material {
            fingerprint: self.fingerprint(),
            config: Arc::new(config),
            clients,
            not_before,
            not_after,
        })
    }

    /// What clients are judged by. Lists that have ended are refused when they are new: those in use may end, and a new
    /// certificate of the listener must not wait for new lists.
    fn clients(
        &self,
        files: &TlsFiles,
        now: Timestamp,
        present: Option<&Arc<Clients>>,
    ) -> Result<Option<Arc<Clients>>, LoadError> {
        let Some(authorities) = &self.client_ca else { return Ok(None) };
        let fingerprint = Fingerprint::of([Some(authorities), self.client_crl.as_ref()]);
        if let Some(same) = present.filter(|present| present.fingerprint == fingerprint) {
            return Ok(Some(Arc::clone(same)));
        }
        let authorities = files.all::<CertificateDer<'static>>(File::ClientCa, authorities)?;
        let lists = self.client_crl.as_ref();
        let lists = lists
            .map(|pem| files.all::<CertificateRevocationListDer<'static>>(File::ClientCrl, pem))
            .transpose()?;
        let clients = Clients::build(fingerprint, authorities, lists, files)?;
        if clients.lists.is_some_and(|life| life.ends <= now) {
            return Err(LoadError::ListEnded { path: files.path(File::ClientCrl) });
        }
        Ok(Some(Arc::new(clients)))
    }
}

impl Fingerprint {
    fn of<const N: usize>(parts: [Option<&Zeroizing<Vec<u8>>>; N]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let bytes = part.map_or(&[][..], |part| part.as_slice());
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(bytes);
        }
        Self(hash.finalize().into())
    }
}

/// From when and until when every certificate of the chain is valid.
fn times(chain: &[CertificateDer<'_>]) -> Option<(Timestamp, Timestamp)> {
    let mut whole = (Timestamp::EPOCH, Timestamp::from_micros(i64::MAX));
    for der in chain {
        let certificate = x509_cert::Certificate::from_der(der).ok()?;
        let begins = certificate.tbs_certificate().validity().not_before.to_unix_duration();
        whole = (whole.0.max(Timestamp::EPOCH.plus(begins)), whole.1.min(end_of(&certificate)));
    }
    Some(whole)
}

/// The last moment of a certificate's time.
pub(crate) fn end_of(certificate: &x509_cert::Certificate) -> Timestamp {
    let not_after = certificate.tbs_certificate().validity().not_after.to_unix_duration();
    // The last second belongs to it (RFC 5280, 4.1.2.5).
    Timestamp::EPOCH.plus(not_after).plus(Duration::from_micros(999_999))
}
