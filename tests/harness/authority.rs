//! A certificate authority, and files with what it issues.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use portero_client::{ClientCertificate, Tls};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};

use super::{Gateway, Site, canaries};

/// An authority. Each has another name.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    called: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

fn params(names: &[&str], called: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, called);
    params
}

impl Authority {
    /// One with this name.
    pub(crate) fn new(called: &str) -> Self {
        let mut params = params(&[], called);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
        Self { issuer, called: called.to_owned() }
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for names.
    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.sign(&params(names, "gateway"))
    }

    /// One that ended in 2020.
    pub(crate) fn issue_expired(&self, names: &[&str]) -> Issued {
        let mut params = params(names, "gateway");
        params.not_after = date_time_ymd(2020, 1, 1);
        self.sign(&params)
    }

    /// One with this serial number.
    pub(crate) fn issue_numbered(&self, names: &[&str], number: u64) -> Issued {
        let mut params = params(names, "client");
        params.serial_number = Some(SerialNumber::from(number));
        self.sign(&params)
    }

    /// The list of the serial numbers that it has revoked, from 2020 until a year.
    pub(crate) fn revoked(&self, numbers: &[u64], until_year: i32) -> String {
        let since = date_time_ymd(2020, 1, 1);
        let revoked = numbers.iter().map(|number| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: since,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: since,
            next_update: date_time_ymd(until_year, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("signed").pem().expect("PEM")
    }

    fn sign(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        let key = key.serialize_pem();
        // Its first line says only that it is one.
        canaries::plant("private key", key.lines().nth(1).expect("content"));
        Issued { certificate, key }
    }

    /// A file of the site with its certificate.
    pub(crate) fn file(&self, site: &Site) -> PathBuf {
        let path = PathBuf::from(site.path(&format!("{}.ca.crt", self.called)));
        fs::write(&path, self.pem()).expect("written");
        path
    }

    /// How clients of a gateway with its certificates trust it.
    pub(crate) fn trusted(&self, site: &Site) -> Tls {
        Tls { ca_file: Some(self.file(site)), ..Tls::default() }
    }
}

impl Issued {
    /// Writes both to files of the site: `name.crt` and `name.key`. Each is there as a whole or not at all.
    pub(crate) fn write(&self, site: &Site, name: &str) -> ClientCertificate {
        ClientCertificate {
            cert_file: site.replace(&format!("{name}.crt"), &self.certificate),
            key_file: site.replace(&format!("{name}.key"), &self.key),
        }
    }
}

impl Site {
    /// Writes a file: it is there as a whole or not at all.
    pub(crate) fn replace(&self, file: &str, content: &str) -> PathBuf {
        let (path, beside) = (PathBuf::from(self.path(file)), self.path(&format!("{file}.new")));
        fs::write(&beside, content).expect("written");
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).expect("its owner may");
        fs::rename(beside, &path).expect("renamed");
        path
    }
}

impl Gateway {
    /// With TLS on both ports, by the site's files `name.crt` and `name.key`.
    pub(crate) fn with_tls(self, name: &str) -> Self {
        let (certificate, key) =
            (self.site.path(&format!("{name}.crt")), self.site.path(&format!("{name}.key")));
        self.set("EDGE__TLS__CERT_FILE", certificate.as_str())
            .set("EDGE__TLS__KEY_FILE", key.as_str())
            .set("GRPC__TLS__CERT_FILE", certificate)
            .set("GRPC__TLS__KEY_FILE", key)
    }

    /// Every client must show a certificate of this authority.
    pub(crate) fn with_clients_of(self, authority: &Authority) -> Self {
        let file = authority.file(&self.site).display().to_string();
        self.with_clients_in(&file)
    }

    /// Every client must show a certificate of an authority in this file.
    pub(crate) fn with_clients_in(self, file: &str) -> Self {
        self.set("EDGE__TLS__CLIENT_CA_FILE", file).set("GRPC__TLS__CLIENT_CA_FILE", file)
    }

    /// The revocation lists in this file count.
    pub(crate) fn with_revoked_in(self, file: &str) -> Self {
        self.set("EDGE__TLS__CLIENT_CRL_FILE", file).set("GRPC__TLS__CLIENT_CRL_FILE", file)
    }

    /// Where webhooks go by TLS.
    pub(crate) fn secure_edge_url(&self) -> String {
        format!("https://{}", self.edge_address())
    }

    /// Where gRPC is by TLS.
    pub(crate) fn secure_grpc_url(&self) -> String {
        format!("https://{}", self.grpc_address())
    }
}
