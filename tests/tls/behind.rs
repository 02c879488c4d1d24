//! TLS to the servers behind: Postgres and Redis, reached through a proxy that ends TLS in front of the tests' own.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::{NAMES, PATIENCE, text};
use crate::harness::{
    Authority, Consumer, Gateway, Kind, PrivateRedis, Process, Setup, Site, eventually, stripe_event,
};

/// What a client says before TLS.
#[derive(Clone, Copy)]
enum Greeting {
    /// Nothing.
    None,
    /// The eight bytes with which TLS is asked for in Postgres' protocol.
    Postgres,
}

/// Ends TLS in front of a server.
struct Terminator {
    port: u16,
    _accepting: AbortOnDropHandle<()>,
}

impl Terminator {
    async fn start(authority: &Authority, upstream: String, greeting: Greeting) -> Self {
        let issued = authority.issue(&NAMES);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).expect("PEM")],
                PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("PEM"),
            )
            .expect("they fit");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, acceptor.clone(), upstream.clone(), greeting));
            }
        });
        Self { port, _accepting: AbortOnDropHandle::new(accepting) }
    }
}

async fn carry(
    mut stream: TcpStream,
    acceptor: TlsAcceptor,
    upstream: String,
    greeting: Greeting,
) -> Option<()> {
    if matches!(greeting, Greeting::Postgres) {
        let mut asked = [0; 8];
        stream.read_exact(&mut asked).await.ok()?;
        if asked != [0, 0, 0, 8, 4, 210, 22, 47] {
            // Who does not ask for TLS gets nothing.
            return None;
        }
        stream.write_all(b"S").await.ok()?;
    }
    let mut server = TcpStream::connect(upstream).await.ok()?;
    let mut client = acceptor.accept(stream).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok().map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_and_redis_are_reached_by_tls_when_their_authorities_are_named() {
    let authority = Authority::new("authority");
    let site = Site::new(Kind::Postgres);
    let ca_file = text(&authority.file(&site));
    let redis = PrivateRedis::start().await;
    let database = Terminator::start(&authority, Site::postgres_address(), Greeting::Postgres).await;
    let prefilter = Terminator::start(&authority, redis.address(), Greeting::None).await;
    let mut gateway = Gateway::new(&site)
        .set("DATABASE__URL", site.postgres_url_at(Some(database.port)))
        .set("DATABASE__CA_FILE", ca_file.as_str())
        .set("REDIS__URL", redis.secure_url_at(prefilter.port))
        .set("REDIS__CA_FILE", ca_file.as_str());
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    for n in 0..10 {
        let signed = provider.sign(&stripe_event(&format!("evt_{n}"), "entity", n));
        assert_eq!(provider.post(&signed).await.field("status"), "accepted");
        assert_eq!(provider.post(&signed).await.field("status"), "duplicate");
    }
    consumer.has_acked(10, PATIENCE).await;
    eventually("committed events are remembered in Redis", PATIENCE, async || {
        (redis.keys() > 0).then_some(())
    })
    .await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_a_strangers_certificate_is_never_logged_in_to_and_the_log_says_why() {
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    let site = Site::new(Kind::Postgres);
    let database = Terminator::start(&stranger, Site::postgres_address(), Greeting::Postgres).await;
    let gateway = Gateway::new(&site)
        .set("DATABASE__URL", site.postgres_url_at(Some(database.port)))
        .set("DATABASE__CA_FILE", text(&authority.file(&site)));
    let log = PathBuf::from(site.path("migrate.log"));
    let file = std::fs::File::create(&log).expect("a file");
    let mut command = gateway.command();
    command.arg("migrate").stdin(Stdio::null()).stdout(file.try_clone().expect("a handle")).stderr(file);
    let migrating = Process::spawn(&mut command);
    eventually("it says why", Duration::from_secs(30), async || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        said.contains("of an authority that is not trusted here").then_some(())
    })
    .await;
    drop(migrating);
    let tables = site.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'");
    assert_eq!(tables, "0");

    // A file without certificates is refused before anything is connected to.
    std::fs::write(site.path("empty.crt"), "").expect("written");
    let gateway = gateway.set("DATABASE__CA_FILE", site.path("empty.crt"));
    let refused = gateway.command().arg("migrate").output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("database.ca_file"), "{said}");
    assert!(said.contains("holds no certificates in PEM"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_says_at_its_start_which_servers_it_reaches_without_knowing_who_answers() {
    let site = Site::new(Kind::Sqlite);
    // Nobody answers there: TEST-NET-1 (RFC 5737).
    let gateway = Gateway::new(&site)
        .set("DATABASE__URL", "postgres://portero:hunter2@192.0.2.1/portero?sslmode=require")
        .set("REDIS__URL", "redis://:hunter2@192.0.2.2:6379");
    let log = PathBuf::from(site.path("serve.log"));
    let file = std::fs::File::create(&log).expect("a file");
    let mut command = gateway.command();
    command.arg("serve").stdin(Stdio::null()).stdout(file.try_clone().expect("a handle")).stderr(file);
    let serving = Process::spawn(&mut command);
    let said = eventually("it warns of both", Duration::from_secs(30), async || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        (said.contains("sslmode=verify-full") && said.contains("rediss://")).then_some(said)
    })
    .await;
    drop(serving);
    assert_eq!(said.matches("is on another machine").count(), 2, "{said}");
    assert!(said.contains("192.0.2.1") && said.contains("192.0.2.2") && !said.contains("hunter2"), "{said}");
}
