//! TLS to a real server, with certificates made for the test.

use std::path::PathBuf;

use portero_store::testing::assert_fails;
use portero_store::{ErrorKind, SchemaStore};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use sqlx::{ConnectOptions, Connection, Row};
use tempfile::TempDir;

use super::server::Server;

/// Certificates for names, called by one.
fn params(names: &[&str], called: &str) -> CertificateParams {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, called);
    params
}

/// An authority, and a folder with its certificate and what it issued.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = params(&[], "Test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signed");
        Self { issuer, folder: tempfile::tempdir().expect("a folder") }
    }

    /// The authority's own certificate in a file.
    fn file(&self) -> PathBuf {
        self.write("ca.crt", &self.issuer.pem())
    }

    /// A certificate and its key in PEM.
    fn sign(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.issuer).expect("signed").pem(), key.serialize_pem())
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    /// A running server with a certificate for these names.
    async fn server(&self, params: &CertificateParams) -> Server {
        let server = Server::prepare().await;
        let (certificate, key) = self.sign(params);
        server.write("server.crt", &certificate).await;
        server.write("server.key", &key).await;
        let clients = server.write("clients.crt", &self.issuer.pem()).await;
        server.start(&format!("-c ssl=on -c ssl_ca_file={}", clients.display())).await;
        server
    }
}

/// The store at `host` with verified TLS.
fn verified(server: &Server, host: &str, authority: &Authority) -> PostgresConfig {
    let url = format!("postgres://postgres@{host}:{}/postgres", server.port);
    PostgresConfig { ca_file: Some(authority.file()), ..PostgresConfig::new(url) }
}

async fn refused(config: PostgresConfig) -> String {
    let error = PostgresStore::connect(config).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "a certificate may be renewed");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_a_certificate_of_the_authority_is_used_and_only_by_tls() {
    let authority = Authority::new();
    let server = authority.server(&params(&["127.0.0.1", "localhost"], "postgres")).await;
    let store = PostgresStore::connect(verified(&server, "localhost", &authority)).await.expect("connected");
    store.migrate().await.expect("migrated");
    store.check_writable().await.expect("writable");

    // The same by the URL alone, as in libpq.
    let url = format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), authority.file().display());
    let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a URL");
    let mut raw = options.connect().await.expect("connected");
    let query = "SELECT count(*) AS plain FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                 WHERE NOT ssl AND backend_type = 'client backend'";
    let row = sqlx::query(query).fetch_one(&mut raw).await.expect("asked");
    assert_eq!(row.get::<i64, _>("plain"), 0);
    raw.close().await.expect("closed");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_name_or_time_is_refused_in_clear_words() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = authority.server(&params(&["localhost"], "postgres")).await;
    let unknown = refused(verified(&server, "localhost", &stranger)).await;
    assert!(unknown.contains("authority that is not trusted"), "{unknown}");
    let misnamed = refused(verified(&server, "127.0.0.1", &authority)).await;
    assert!(misnamed.contains("for another name"), "{misnamed}");

    let mut params = params(&["localhost"], "postgres");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let server = authority.server(&params).await;
    let expired = refused(verified(&server, "localhost", &authority)).await;
    assert!(expired.contains("has expired"), "{expired}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_tls_is_not_talked_to_when_tls_is_wanted() {
    let authority = Authority::new();
    let server = Server::prepare().await;
    server.start("").await;
    let text = refused(verified(&server, "localhost", &authority)).await;
    assert!(text.contains("is it on in the server"), "{text}");
    let plain = PostgresStore::connect(PostgresConfig::new(server.url())).await.expect("connected");
    plain.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_a_certificate_gets_the_one_of_the_url() {
    let authority = Authority::new();
    let server = authority.server(&params(&["localhost"], "postgres")).await;
    server.write("pg_hba.conf", "hostssl all all all trust clientcert=verify-ca\n").await;
    server.reload().await;
    let config = verified(&server, "localhost", &authority);
    assert_fails(PostgresStore::connect(config).await, ErrorKind::FailedPrecondition);

    let (certificate, key) = authority.sign(&params(&[], "postgres"));
    let (certificate, key) = (authority.write("own.crt", &certificate), authority.write("own.key", &key));
    let url = format!(
        "postgres://postgres@localhost:{}/postgres?sslcert={}&sslkey={}",
        server.port,
        certificate.display(),
        key.display()
    );
    let config = PostgresConfig { ca_file: Some(authority.file()), ..PostgresConfig::new(url) };
    let store = PostgresStore::connect(config).await.expect("connected");
    store.close().await;
}
