//! Clients that are trusted no longer: their authority was replaced or their certificate revoked while they were connected.

use std::io;
use std::sync::Arc;

use portero_client::{Outcome, Tls};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{NAMES, PATIENCE, http, identity, provider, secure, tenant_list, text};
use crate::harness::{
    Authority, Client, Consumer, Gateway, Issued, Kind, Provider, Setup, Signed, Site, eventually,
    stripe_event,
};

const CHANGED: &str =
    "whom the TLS files trust has changed: open connections of clients that are no longer trusted end";

/// A consumer of `billing` with a certificate of its own, which works on one event for as long as there is no permit.
async fn held(gateway: &Gateway, tls: &Tls, held_event: &'static str) -> (Consumer, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let waits = Arc::clone(&permits);
    let token = gateway.site.consumer_token("billing");
    let client = Client::by_tls(gateway.secure_grpc_url(), &token, tls).await;
    let consumer = Consumer::of(client, "billing", move |handled| {
        let waits = Arc::clone(&waits);
        async move {
            if handled.event_id == held_event {
                waits.acquire().await.expect("open").forget();
            }
            Outcome::Ack
        }
    });
    (consumer, permits)
}

/// A provider with a certificate of its own that keeps its connection.
fn steady(
    setup: &Setup,
    gateway: &Gateway,
    authority: &Authority,
    own: &Issued,
    only_http1: bool,
) -> Provider {
    let builder = http(&[authority]).identity(identity(own));
    provider(setup, gateway, if only_http1 { builder.http1_only() } else { builder })
}

/// Has the gateway take new files over that change whom both listeners trust.
async fn take_over(gateway: &Gateway) {
    let before = gateway.log.count(CHANGED);
    gateway.signal("HUP");
    eventually("both listeners take the files over", PATIENCE, async || {
        (gateway.log.count(CHANGED) >= before + 2).then_some(())
    })
    .await;
}

async fn distrusted(gateway: &Gateway, listener: &str, reason: &str) -> f64 {
    let labels = [format!("listener=\"{listener}\""), format!("reason=\"{reason}\"")];
    gateway.metric("portero_tls_distrusted_connections_total", &[&labels[0], &labels[1]]).await
}

async fn handshakes(gateway: &Gateway) -> f64 {
    let labels = ["listener=\"edge\"", "outcome=\"done\""];
    gateway.metric("portero_tls_handshakes_total", &labels).await
}

/// A request whose body is sent by and by.
struct Slow {
    stream: TlsStream<TcpStream>,
    rest: Vec<u8>,
}

impl Slow {
    /// Sends the head and, when the gateway wants it, a part of the body.
    async fn begin(
        gateway: &Gateway,
        provider: &Provider,
        authority: &Authority,
        own: &Issued,
        signed: &Signed,
    ) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("PEM"))
            .expect("an authority");
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots)
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).expect("PEM")],
                    PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("PEM"),
                )
                .expect("they fit");
        let tcp = TcpStream::connect(gateway.edge_address()).await.expect("connected");
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("TLS");
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n",
            provider.source.path,
            signed.body.len()
        );
        for (name, value) in &signed.headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).await.expect("sent");
        stream.flush().await.expect("sent");
        let mut interim = *b"HTTP/1.1 100 Continue\r\n\r\n";
        let wanted = interim;
        stream.read_exact(&mut interim).await.expect("the gateway waits for the body");
        assert_eq!(interim, wanted);
        let (part, rest) = signed.body.split_at(signed.body.len() / 2);
        stream.write_all(part).await.expect("sent");
        Self { stream, rest: rest.to_vec() }
    }

    /// Sends the rest; all that the gateway says until it closes.
    async fn finish(mut self) -> String {
        self.stream.write_all(&self.rest).await.expect("sent");
        self.stream.flush().await.expect("sent");
        let mut said = Vec::new();
        match self.stream.read_to_end(&mut said).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}"),
        }
        String::from_utf8(said).expect("text")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_came_by_an_authority_that_was_removed_finishes_what_is_begun_and_comes_no_more() {
    let site = Site::new(Kind::Sqlite);
    let authority = Authority::new("authority");
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    authority.issue(&NAMES).write(&site, "gateway");
    let file = text(&site.replace("clients.crt", &(old.pem() + &new.pem())));
    let (gateway, setup) = secure(&site, |gateway| gateway.with_tls("gateway").with_clients_in(&file)).await;
    let (of_old, of_new) = (old.issue(&["old"]), new.issue(&["new"]));
    let old_tls = Tls { client_certificate: Some(of_old.write(&site, "of_old")), ..authority.trusted(&site) };
    let new_tls = Tls { client_certificate: Some(of_new.write(&site, "of_new")), ..authority.trusted(&site) };

    let (consumer, permits) = held(&gateway, &old_tls, "evt_2").await;
    let [former, former2] = [true, false].map(|http1| steady(&setup, &gateway, &authority, &of_old, http1));
    let [steady1, steady2] = [true, false].map(|http1| steady(&setup, &gateway, &authority, &of_new, http1));
    for (n, provider) in [&former, &former2, &steady1, &steady2].into_iter().enumerate() {
        let body = stripe_event(&format!("evt_{n}"), &format!("entity-{n}"), 0);
        assert_eq!(provider.send(&body).await.field("status"), "accepted");
    }
    consumer.has_acked(3, PATIENCE).await;
    let signed = former.sign(&stripe_event("evt_slow", "slow", 0));
    let slow = Slow::begin(&gateway, &former, &authority, &of_old, &signed).await;

    site.replace("clients.crt", &new.pem());
    take_over(&gateway).await;
    eventually("each connection of the former authority is asked to leave", PATIENCE, async || {
        let (edge, grpc) =
            (distrusted(&gateway, "edge", "authority"), distrusted(&gateway, "grpc", "authority"));
        (edge.await == 3.0 && grpc.await >= 1.0).then_some(())
    })
    .await;

    // What was begun is finished.
    let said = slow.finish().await;
    assert!(said.starts_with("HTTP/1.1 200") && said.contains("accepted"), "{said}");
    assert!(said.to_ascii_lowercase().contains("connection: close"), "{said}");
    permits.add_permits(1);
    consumer.has_acked(4, PATIENCE).await;
    eventually("the stream ends and is not opened again", PATIENCE, async || {
        let is_refused = consumer.disconnections().iter().any(|why| why.contains("CertificateRefused"));
        (is_refused && gateway.metric("portero_api_connections", &[]).await == 0.0).then_some(())
    })
    .await;
    assert_eq!(consumer.connections(), 1, "{:?}", consumer.disconnections());
    for former in [&former, &former2] {
        assert!(former.try_post(&former.sign(&stripe_event("evt_9", "entity", 9))).await.is_none());
    }

    // Those of the other authority go on as they were.
    let before = handshakes(&gateway).await;
    for (n, provider) in [&steady1, &steady2].into_iter().enumerate() {
        let body = stripe_event(&format!("evt_1{n}"), "entity", 0);
        assert_eq!(provider.send(&body).await.field("status"), "accepted");
    }
    assert_eq!(handshakes(&gateway).await, before, "over the connections that they had");
    let (successor, _) = held(&gateway, &new_tls, "none").await;
    // Among them the one whose provider was slow.
    successor.has_acked(3, PATIENCE).await;
    assert!(successor.receipts().is_disjoint(&consumer.receipts()), "what was settled does not come again");
    successor.stop().await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_client_is_cut_off_and_others_go_on() {
    let site = Site::new(Kind::Sqlite);
    let (authority, clients) = (Authority::new("authority"), Authority::new("clients"));
    authority.issue(&NAMES).write(&site, "gateway");
    let file = text(&site.replace("clients.crl", &clients.revoked(&[], 2096)));
    let (mut gateway, setup) = secure(&site, |gateway| {
        let gateway = gateway.with_tls("gateway").with_clients_of(&clients).with_revoked_in(&file);
        gateway.expect("the new revocation list cannot be used")
    })
    .await;
    let (seven, eight) = (clients.issue_numbered(&["seven"], 7), clients.issue_numbered(&["eight"], 8));
    let own = seven.write(&site, "seven");
    let tls = Tls { client_certificate: Some(own.clone()), ..authority.trusted(&site) };
    let (consumer, _) = held(&gateway, &tls, "none").await;
    let [revoked, other] = [&seven, &eight].map(|own| steady(&setup, &gateway, &authority, own, true));
    for (n, provider) in [&revoked, &other].into_iter().enumerate() {
        let body = stripe_event(&format!("evt_{n}"), &format!("entity-{n}"), 0);
        assert_eq!(provider.send(&body).await.field("status"), "accepted");
    }
    consumer.has_acked(2, PATIENCE).await;
    let before = handshakes(&gateway).await;

    site.replace("clients.crl", &clients.revoked(&[7], 2096));
    take_over(&gateway).await;
    eventually("the stream ends and is not opened again", PATIENCE, async || {
        let is_refused = consumer.disconnections().iter().any(|why| why.contains("CertificateRefused"));
        (is_refused && gateway.metric("portero_api_connections", &[]).await == 0.0).then_some(())
    })
    .await;
    assert!(distrusted(&gateway, "grpc", "revoked").await >= 1.0);
    assert!(revoked.try_post(&revoked.sign(&stripe_event("evt_3", "entity", 3))).await.is_none());
    assert_eq!(other.send(&stripe_event("evt_4", "entity", 4)).await.field("status"), "accepted");
    assert_eq!(handshakes(&gateway).await, before);
    let (certificate, key) = (text(&own.cert_file), text(&own.key_file));
    let ca_file = text(&authority.file(&site));
    let arguments = ["--ca-file", &ca_file, "--client-cert", &certificate, "--client-key", &key];
    let (succeeded, said) = tenant_list(&site, &gateway.secure_grpc_url(), &arguments);
    assert!(!succeeded && said.contains("does not accept the client certificate"), "{said}");
    let label = ["outcome=\"revoked_client_certificate\""];
    assert!(gateway.metric("portero_tls_handshakes_total", &label).await >= 2.0);

    // A list that cannot be used changes nothing, and nothing starts with it.
    let ended = clients.revoked(&[], 2021);
    for (content, words) in [(ended.as_str(), "has ended"), ("no list", "holds no revocation list in PEM")] {
        site.replace("clients.crl", content);
        gateway.signal("HUP");
        eventually("it is told as an error", PATIENCE, async || {
            let text = gateway.log.text();
            text.lines().any(|line| line.contains("\"ERROR\"") && line.contains(words)).then_some(())
        })
        .await;
        assert!(revoked.try_post(&revoked.sign(&stripe_event("evt_5", "entity", 5))).await.is_none());
        assert_eq!(
            other.send(&stripe_event(&format!("evt_{}", words.len()), "entity", 6)).await.field("status"),
            "accepted"
        );
    }
    consumer.stop().await;
    gateway.terminate();
    assert!(gateway.ended(PATIENCE).await.success());
    let refused = gateway.command().arg("serve").output().expect("it runs");
    let said =
        String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success() && said.contains("client_crl_file"), "{said}");
    assert!(said.contains("holds no revocation list in PEM"), "{said}");
}
