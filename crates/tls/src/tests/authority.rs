//! Authorities, certificates, and a folder for them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portero_types::{ManualClock, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;

use crate::TlsFiles;

/// The present moment of these tests' clocks: in 2026.
pub(super) const NOW: Timestamp = Timestamp::from_secs(1_790_000_000);

/// An authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        Self::called("authority")
    }

    /// One whose certificates and lists bear this name.
    pub(super) fn called(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed"))
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a name and its key, in PEM.
    pub(super) fn issue(&self, name: &str) -> (String, String) {
        self.sign(CertificateParams::new(vec![name.to_owned()]).expect("a name"))
    }

    /// One that ends at a moment, in Unix time.
    pub(super) fn issue_until(&self, name: &str, end: i64) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        let since = end - params.not_before.unix_timestamp();
        params.not_after = params.not_before + Duration::from_secs(u64::try_from(since).expect("later"));
        self.sign(params)
    }

    /// One with this serial number.
    pub(super) fn issue_numbered(&self, name: &str, number: u64) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.serial_number = Some(SerialNumber::from(number));
        self.sign(params)
    }

    /// A list of the serial numbers that it has revoked, as of a day before [`NOW`] and good until a moment in Unix time.
    pub(super) fn revoked(&self, numbers: &[u64], until: Timestamp) -> String {
        let at = |at: Timestamp| {
            let since = u64::try_from(at.as_secs()).expect("after 1970");
            date_time_ymd(1970, 1, 1) + Duration::from_secs(since)
        };
        let begins = at(NOW.minus(Duration::from_secs(86_400)));
        let revoked = numbers.iter().map(|number| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: begins,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: begins,
            next_update: at(until),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).expect("signed").pem().expect("PEM")
    }

    fn sign(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("signed").pem(), key.serialize_pem())
    }

    /// A client that trusts it.
    pub(super) fn client(&self) -> ClientConfig {
        self.client_of(rustls::ALL_VERSIONS, None)
    }

    /// The same with these versions, and a certificate and key of its own.
    pub(super) fn client_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<(String, String)>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"),
                )
                .expect("they fit"),
        }
    }
}

/// A folder with a listener's files, and a clock.
pub(super) struct Place {
    folder: TempDir,
    pub(super) clock: Arc<ManualClock>,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { folder: TempDir::new().expect("a folder"), clock: Arc::new(ManualClock::at(NOW)) }
    }

    /// Writes a certificate for a name and its key.
    pub(super) fn write(&self, authority: &Authority, name: &str) -> TlsFiles {
        let (certificate, key) = authority.issue(name);
        TlsFiles {
            cert_file: self.put("tls.crt", &certificate, 0o644),
            key_file: self.put("tls.key", &key, 0o600),
            client_ca_file: None,
            client_crl_file: None,
        }
    }

    /// Writes a file in place.
    pub(super) fn put(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its owner may");
        path
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("readable")
    }

    pub(super) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("removed");
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
