//! Redis behind TLS: a real server with certificates made for the test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use portero_prefilter::{InvalidRedis, Layered, Redis, RedisConfig, RedisTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::server::{hit, lookup, remember, until};

/// Certificates for names, called by one: servers take those that are called as their issuer for self-signed.
fn params(names: Vec<String>, called: &str) -> CertificateParams {
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, called);
    params
}

/// An authority, and what it issued: certificate and key in PEM.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = params(Vec::new(), "Test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params(vec![name.to_owned()], name).signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// A Redis that speaks TLS only, on a free port.
struct TlsServer {
    _dir: TempDir,
    child: Child,
    port: u16,
}

impl TlsServer {
    /// With a certificate for a name; it wants clients' certificates of `clients`.
    fn start(authority: &Authority, name: &str, clients: Option<&Authority>) -> Self {
        let dir = TempDir::new().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let write = |file: &str, content: &str| {
            let path = dir.path().join(file);
            std::fs::write(&path, content).unwrap();
            path
        };
        let (certificate, key) = authority.issue(name);
        let clients_pem = clients.unwrap_or(authority).0.pem();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--tls-port").arg(port.to_string());
        command.arg("--tls-cert-file").arg(write("server.crt", &certificate));
        command.arg("--tls-key-file").arg(write("server.key", &key));
        command.arg("--tls-ca-cert-file").arg(write("clients.crt", &clients_pem));
        command.args(["--tls-auth-clients", if clients.is_some() { "yes" } else { "no" }, "--dir"]);
        let child = command.arg(dir.path() as &Path).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self { _dir: dir, child: child.expect("these tests need the program redis-server, with TLS"), port }
    }

    fn over(&self, tls: RedisTls) -> Layered {
        let url = format!("rediss://127.0.0.1:{}", self.port);
        let config = RedisConfig { tls, call_timeout: Duration::from_millis(500), ..RedisConfig::new(url) };
        Layered::new(None, Some(Redis::new(config).unwrap()))
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn trusting(authority: &Authority) -> RedisTls {
    RedisTls { authorities: Some(authority.0.pem().into_bytes()), ..RedisTls::default() }
}

/// Waits until what is remembered is found.
async fn works(layered: &Layered) {
    until("Redis is reached by TLS", async || {
        remember(layered, "db-1", 1).await;
        lookup(layered, "db-1", 1).await == Some(hit(1))
    })
    .await;
}

#[tokio::test]
async fn a_redis_behind_tls_is_used_when_its_authority_is_trusted() {
    let authority = Authority::new();
    let server = TlsServer::start(&authority, "127.0.0.1", None);
    works(&server.over(trusting(&authority))).await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_or_name_is_never_accepted() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = TlsServer::start(&authority, "127.0.0.1", None);
    works(&server.over(trusting(&authority))).await;
    let misnamed = TlsServer::start(&authority, "redis.example", None);
    for layered in [
        server.over(trusting(&stranger)),
        server.over(RedisTls::default()),
        misnamed.over(trusting(&authority)),
    ] {
        for _ in 0..5 {
            remember(&layered, "db-1", 1).await;
            assert_eq!(lookup(&layered, "db-1", 1).await, None);
        }
    }
}

#[tokio::test]
async fn a_certificate_of_our_own_is_shown_where_the_server_wants_one() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = TlsServer::start(&authority, "127.0.0.1", Some(&clients));
    let (certificate, key) = clients.issue("portero");
    let tls = RedisTls {
        client_certificate: Some(certificate.into_bytes()),
        client_key: Some(key.into_bytes().into()),
        ..trusting(&authority)
    };
    works(&server.over(tls)).await;
    let without = server.over(trusting(&authority));
    remember(&without, "db-1", 1).await;
    assert_eq!(lookup(&without, "db-1", 1).await, None);
}

#[tokio::test]
async fn certificates_need_a_url_with_tls_and_debug_shows_nothing_of_them() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("portero");
    let key_line = key.lines().nth(1).unwrap().to_owned();
    let tls = RedisTls {
        client_certificate: Some(certificate.into_bytes()),
        client_key: Some(key.into_bytes().into()),
        ..trusting(&authority)
    };
    let config = RedisConfig { tls, ..RedisConfig::new("redis://127.0.0.1:1") };
    assert!(!format!("{config:?}").contains(&key_line));
    assert_eq!(Redis::new(config.clone()).err(), Some(InvalidRedis::Tls));
    let tls = RedisTls { client_key: Some(b"hush".to_vec().into()), ..config.tls };
    let error = Redis::new(RedisConfig { tls, ..RedisConfig::new("rediss://127.0.0.1:1") }).err();
    assert_eq!(error, Some(InvalidRedis::Tls));
    let insecure =
        RedisConfig { tls: trusting(&authority), ..RedisConfig::new("rediss://127.0.0.1:1/#insecure") };
    assert!(Redis::new(insecure).is_err(), "there is no way to trust anybody");
}
