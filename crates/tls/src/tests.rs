//! Real sockets, real certificates.

mod authority;
mod clients;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use portero_types::Clock;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use self::authority::{Authority, NOW, Place};
use crate::{LoadError, Purpose, Refused, Secured, ServerTls};

fn load(place: &Place, files: crate::TlsFiles) -> Result<ServerTls, LoadError> {
    ServerTls::load(Purpose::Edge, files, Arc::clone(&place.clock) as Arc<dyn Clock>)
}

/// What the server and the client make of one connection; the server greets.
async fn shake(
    tls: &ServerTls,
    client: rustls::ClientConfig,
) -> (Result<Secured, Refused>, io::Result<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = async {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut accepted = tls.accept(stream, Instant::now() + Duration::from_secs(10)).await;
        if let Ok(Secured { stream, .. }) = &mut accepted {
            stream.write_all(b"hello").await.expect("written");
            stream.flush().await.expect("flushed");
        }
        accepted
    };
    let client = async {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("gateway.test").expect("a name");
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
        // With TLS 1.3 a client hears only now that its certificate was not good enough.
        let mut greeting = vec![0; 5];
        stream.read_exact(&mut greeting).await?;
        Ok(greeting)
    };
    tokio::join!(server, client)
}

fn tls_error(error: &io::Error) -> &rustls::Error {
    error
        .get_ref()
        .and_then(|inner| inner.downcast_ref())
        .unwrap_or_else(|| panic!("no TLS error: {error:?}"))
}

#[tokio::test]
async fn a_client_that_trusts_the_authority_is_served_in_both_versions() {
    let authority = Authority::new();
    let place = Place::new();
    let tls = load(&place, place.write(&authority, "gateway.test")).expect("loaded");
    for version in rustls::ALL_VERSIONS {
        let (server, client) = shake(&tls, authority.client_of(&[version], None)).await;
        let server = server.expect("a handshake");
        assert_eq!(server.stream.get_ref().1.protocol_version(), Some(version.version));
        assert_eq!(client.expect("a greeting"), b"hello");
    }
}

#[tokio::test]
async fn protocols_are_agreed_on_by_what_the_listener_is_for() {
    let authority = Authority::new();
    let place = Place::new();
    let files = place.write(&authority, "gateway.test");
    let offers: [(Purpose, &[&[u8]], Option<&[u8]>); 5] = [
        (Purpose::Edge, &[b"http/1.1", b"h2"], Some(b"h2")),
        (Purpose::Edge, &[b"http/1.1"], Some(b"http/1.1")),
        (Purpose::Edge, &[], None),
        (Purpose::Grpc, &[b"h2"], Some(b"h2")),
        (Purpose::Grpc, &[], None),
    ];
    for (purpose, offered, agreed) in offers {
        let tls = ServerTls::load(purpose, files.clone(), place.clock.clone()).expect("loaded");
        let mut client = authority.client();
        client.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let (server, _) = shake(&tls, client).await;
        assert_eq!(
            server.expect("a handshake").stream.get_ref().1.alpn_protocol(),
            agreed,
            "{purpose:?} {offered:?}"
        );
    }
    let tls = ServerTls::load(Purpose::Grpc, files, place.clock.clone()).expect("loaded");
    let mut client = authority.client();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let (server, client) = shake(&tls, client).await;
    assert!(matches!(server, Err(Refused::NothingInCommon)), "{server:?}");
    assert!(tls_error(&client.expect_err("refused")).to_string().contains("NoApplicationProtocol"));
}

#[tokio::test]
async fn with_a_client_authority_every_client_must_show_a_certificate_of_its() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let place = Place::new();
    let mut files = place.write(&authority, "gateway.test");
    files.client_ca_file = Some(place.put("clients.pem", &clients.pem(), 0o644));
    let tls = load(&place, files).expect("loaded");
    for version in rustls::ALL_VERSIONS {
        let known = authority.client_of(&[version], Some(clients.issue("consumer")));
        assert_eq!(shake(&tls, known).await.1.expect("a greeting"), b"hello");
        let (server, client) = shake(&tls, authority.client_of(&[version], None)).await;
        assert!(matches!(server, Err(Refused::NoClientCertificate)), "{server:?}");
        let alert = tls_error(&client.expect_err("refused")).clone();
        assert!(matches!(alert, rustls::Error::AlertReceived(_)), "{alert:?}");
        let stranger = authority.client_of(&[version], Some(strangers.issue("consumer")));
        // A client may well leave without a word when none of its certificates is asked for.
        let (server, client) = shake(&tls, stranger).await;
        assert!(
            matches!(server, Err(Refused::NoClientCertificate | Refused::BadClientCertificate)),
            "{server:?}"
        );
        assert!(client.is_err());
    }
}

/// What is resumed is not looked at again: a certificate that has ended since would be good for as long as its ticket.
#[tokio::test]
async fn a_clients_certificate_is_looked_at_in_every_handshake() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let place = Place::new();
    let mut files = place.write(&authority, "gateway.test");
    files.client_ca_file = Some(place.put("clients.pem", &clients.pem(), 0o644));
    let tls = load(&place, files).expect("loaded");
    for version in rustls::ALL_VERSIONS {
        let known = authority.client_of(&[version], Some(clients.issue("consumer")));
        for n in 0..2 {
            let (server, client) = shake(&tls, known.clone()).await;
            assert_eq!(client.expect("a greeting"), b"hello");
            let kind = server.expect("a handshake").stream.get_ref().1.handshake_kind();
            assert_eq!(kind, Some(rustls::HandshakeKind::Full), "{:?}, connection {n}", version.version);
        }
    }
}

#[tokio::test]
async fn a_peer_without_tls_is_told_and_garbage_does_no_harm() {
    let authority = Authority::new();
    let place = Place::new();
    let tls = load(&place, place.write(&authority, "gateway.test")).expect("loaded");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let far = || Instant::now() + Duration::from_secs(10);

    let mut plain = TcpStream::connect(address).await.expect("connected");
    plain.write_all(&[b'x'; 100_000]).await.expect("sent");
    let refused = tls.accept(listener.accept().await.expect("accepted").0, far()).await;
    let Err(Refused::Plain(stream)) = refused else { panic!("{refused:?}") };
    let reading = async {
        let mut words = String::new();
        plain.read_to_string(&mut words).await.expect("words, not a reset");
        drop(plain);
        words
    };
    let ((), words) = tokio::join!(crate::turn_away(stream, b"TLS, please"), reading);
    assert_eq!(words, "TLS, please");

    let mut garbage = TcpStream::connect(address).await.expect("connected");
    garbage.write_all(&[22, 3, 1, 0, 5, 1, 2, 3, 4, 5, 6]).await.expect("sent");
    garbage.shutdown().await.expect("open");
    let refused = tls.accept(listener.accept().await.expect("accepted").0, far()).await;
    assert!(matches!(refused, Err(Refused::Failed | Refused::Gone)), "{refused:?}");

    drop(TcpStream::connect(address).await.expect("connected"));
    let refused = tls.accept(listener.accept().await.expect("accepted").0, far()).await;
    assert!(matches!(refused, Err(Refused::Gone)), "{refused:?}");
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_is_given_up() {
    let authority = Authority::new();
    let place = Place::new();
    let tls = load(&place, place.write(&authority, "gateway.test")).expect("loaded");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    for sent in [&b""[..], &[22, 3, 1]] {
        let mut slow = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
        slow.write_all(sent).await.expect("sent");
        let (stream, _) = listener.accept().await.expect("accepted");
        let refused = tls.accept(stream, Instant::now() + Duration::from_millis(50)).await;
        assert!(matches!(refused, Err(Refused::TimedOut)), "{refused:?}");
    }
}

#[tokio::test]
async fn new_files_are_taken_over_as_a_whole_and_broken_ones_change_nothing() {
    let (first, second) = (Authority::new(), Authority::new());
    let place = Place::new();
    let tls = load(&place, place.write(&first, "gateway.test")).expect("loaded");
    let (open, greeting) = shake(&tls, first.client()).await;
    greeting.expect("a greeting");

    // The certificate comes first, its key a moment later.
    let (certificate, key) = second.issue("gateway.test");
    place.put("tls.crt", &certificate, 0o644);
    tls.look(false).await;
    shake(&tls, first.client()).await.1.expect("the former ones are in use");
    place.put("tls.key", &key, 0o600);
    tls.look(false).await;
    shake(&tls, second.client()).await.1.expect("the new ones are in use");
    assert!(shake(&tls, first.client()).await.1.is_err());

    for (name, broken) in
        [("tls.crt", "nothing"), ("tls.key", "nothing"), ("tls.crt", ""), ("tls.key", &key[..90])]
    {
        let former = place.read(name);
        place.put(name, broken, 0o600);
        tls.look(true).await;
        tls.look(false).await;
        shake(&tls, second.client()).await.1.expect("the former ones are in use");
        place.put(name, &former, 0o600);
    }
    place.remove("tls.key");
    tls.look(true).await;
    shake(&tls, second.client()).await.1.expect("the former ones are in use");
    drop(open);
}

#[tokio::test]
async fn an_expired_certificate_does_not_replace_a_valid_one_but_is_better_than_none() {
    let authority = Authority::new();
    let place = Place::new();
    let files = place.write(&authority, "gateway.test");
    let tls = load(&place, files.clone()).expect("loaded");
    let valid_until = tls.not_after();
    let (certificate, key) = authority.issue_until("gateway.test", NOW.as_secs() - 3_600);
    place.put("tls.crt", &certificate, 0o644);
    place.put("tls.key", &key, 0o600);
    tls.look(true).await;
    assert_eq!(tls.not_after(), valid_until, "the valid one stays");

    let at_start = load(&place, files).expect("an operator can start all the same");
    assert!(at_start.not_after() < NOW);
    let (_, client) = shake(&at_start, authority.client()).await;
    let refused = tls_error(&client.expect_err("clients refuse it")).to_string();
    assert!(refused.contains("expired"), "{refused}");
}

#[test]
fn what_is_wrong_with_a_file_is_said_by_name_and_never_by_content() {
    let authority = Authority::new();
    let place = Place::new();
    let good = place.write(&authority, "gateway.test");
    let (_, other_key) = authority.issue("gateway.test");
    let cases: [(&str, &str, u32, &str); 6] = [
        ("tls.crt", "hush", 0o644, "holds no certificate in PEM"),
        ("tls.crt", "-----BEGIN CERTIFICATE-----\naHVzaA==\n-----END CERTIFICATE-----\n", 0o644, "damaged"),
        ("tls.key", "hush", 0o600, "holds no private key in PEM"),
        ("tls.key", "-----BEGIN PRIVATE KEY-----\naHVzaA==\n-----END PRIVATE KEY-----\n", 0o600, "damaged"),
        ("tls.key", &other_key, 0o600, "is not the key of"),
        ("tls.key", &other_key, 0o644, "mode 0644"),
    ];
    for (name, content, mode, wanted) in cases {
        let former = place.read(name);
        place.put(name, content, mode);
        let error = load(&place, good.clone()).expect_err("refused").to_string();
        assert!(error.contains(wanted) && error.contains(name), "{wanted}: {error}");
        assert!(!error.contains("hush") && !error.contains("aHVzaA"), "{error}");
        place.put(name, &former, 0o600);
    }
    let mut files = good.clone();
    files.client_ca_file = Some(place.put("clients.pem", "hush", 0o644));
    let error = load(&place, files).expect_err("refused").to_string();
    assert!(error.starts_with("client_ca_file"), "{error}");
    let error =
        load(&place, crate::TlsFiles { cert_file: "/nonexistent".into(), ..good }).expect_err("refused");
    assert_eq!(error.to_string(), "cert_file /nonexistent cannot be read: there is no such file");
}

#[test]
fn debug_shows_no_key() {
    let authority = Authority::new();
    let place = Place::new();
    let tls = load(&place, place.write(&authority, "gateway.test")).expect("loaded");
    let key = place.read("tls.key");
    let line = key.lines().nth(1).expect("content");
    assert!(!format!("{tls:?}").contains(line));
    let mode = std::fs::metadata(place.path("tls.key")).expect("there").permissions().mode();
    assert_eq!(mode & 0o077, 0);
}
