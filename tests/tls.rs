//! TLS on the edge and on the gRPC port: who is let in, who is told what, and how certificates change.

mod behind;
mod changing;
mod distrusted;
mod followed;
mod judged;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portero_client::{Outcome, Tls, v1};
use reqwest::{Certificate, Identity, Version};

use crate::harness::{
    Authority, Client, Consumer, Gateway, Issued, Kind, Provider, Setup, Site, raw, stripe_event,
};

const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// A gateway on a site with a tenant and so on, started again with TLS as `change` says.
async fn secure(site: &Arc<Site>, change: impl FnOnce(Gateway) -> Gateway) -> (Gateway, Setup) {
    let mut gateway = Gateway::start(site).await;
    let setup = Setup::new(&gateway).await;
    gateway.terminate();
    assert!(gateway.ended(PATIENCE).await.success());
    let mut gateway = change(gateway);
    gateway.launch().await;
    (gateway, setup)
}

/// An HTTP client that trusts these authorities.
fn http(authorities: &[&Authority]) -> reqwest::ClientBuilder {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pem =
        authorities.iter().map(|authority| Certificate::from_pem(authority.pem().as_bytes()).expect("PEM"));
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).tls_certs_only(pem)
}

/// A client's own certificate.
fn identity(issued: &Issued) -> Identity {
    Identity::from_pem(format!("{}{}", issued.certificate, issued.key).as_bytes()).expect("PEM")
}

/// The provider, by TLS.
fn provider(setup: &Setup, gateway: &Gateway, client: reqwest::ClientBuilder) -> Provider {
    setup.provider(gateway).by(client.build().expect("a client"), &gateway.secure_edge_url())
}

/// A consumer of `billing`, by TLS.
async fn consumer(gateway: &Gateway, tls: &Tls) -> Consumer {
    let token = gateway.site.consumer_token("billing");
    let client = Client::by_tls(gateway.secure_grpc_url(), &token, tls).await;
    Consumer::of(client, "billing", |_| async { Outcome::Ack })
}

/// What `portero tenant list` says with these arguments, and whether it succeeded.
fn tenant_list(site: &Site, endpoint: &str, more: &[&str]) -> (bool, String) {
    let token_file = site.path("admin.token");
    std::fs::write(&token_file, site.admin_token()).expect("written");
    let arguments = ["tenant", "list", "--endpoint", endpoint, "--token-file", &token_file];
    let done = site.run(&[&arguments, more].concat());
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(said).expect("text"))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_and_streams_go_over_tls_by_both_versions_of_http() {
    let site = Site::new(Kind::Sqlite);
    let authority = Authority::new("authority");
    authority.issue(&NAMES).write(&site, "gateway");
    let (gateway, setup) = secure(&site, |gateway| gateway.with_tls("gateway")).await;
    let consumer = consumer(&gateway, &authority.trusted(&site)).await;
    let client = |only_http1: bool| {
        let builder = http(&[&authority]);
        if only_http1 { builder.http1_only() } else { builder }
    };
    for (only_http1, version) in [(true, Version::HTTP_11), (false, Version::HTTP_2)] {
        let url = format!("{}{}", gateway.secure_edge_url(), setup.stripe.path);
        let answer = client(only_http1).build().expect("a client").head(url).send().await.expect("an answer");
        assert_eq!((answer.version(), answer.status().as_u16()), (version, 200));
        let provider = provider(&setup, &gateway, client(only_http1));
        for n in 0..20 {
            let body = stripe_event(&format!("evt_{only_http1}_{n}"), &format!("{only_http1}"), n);
            assert_eq!(provider.send(&body).await.field("status"), "accepted");
        }
    }
    consumer.has_acked(40, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
    let ca_file = text(&authority.file(&site));
    let (succeeded, said) = tenant_list(&site, &gateway.secure_grpc_url(), &["--ca-file", &ca_file]);
    assert!(succeeded && said.contains("acme"), "{said}");
    for listener in ["edge", "grpc"] {
        let labels = [&*format!("listener=\"{listener}\""), "outcome=\"done\""];
        assert!(gateway.metric("portero_tls_handshakes_total", &labels).await >= 2.0, "{listener}");
        let ends = gateway.metric("portero_tls_certificate_expiry_timestamp_seconds", &labels[..1]).await;
        assert!(ends > 4_000_000_000.0, "{ends}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_speaks_plainly_to_a_tls_port_is_told_so_and_the_other_way_round() {
    let site = Site::new(Kind::Sqlite);
    let authority = Authority::new("authority");
    authority.issue(&NAMES).write(&site, "gateway");
    let (mut gateway, setup) = secure(&site, |gateway| gateway.with_tls("gateway")).await;
    let request = format!("POST {} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{{}}", setup.stripe.path);
    let answer = raw(&gateway.edge_address(), request.as_bytes()).await;
    assert_eq!((answer.status, answer.field("error").as_str()), (400, "tls_required"), "{answer:?}");
    assert!(answer.text.contains("https://"), "{answer:?}");
    let answer = raw(&gateway.grpc_address(), b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(answer.status == 400 && answer.text.contains("https://"), "{answer:?}");

    let client = gateway.client(&site.admin_token()).await;
    let status = client.admin().list_tenants(v1::ListTenantsRequest::default()).await.expect_err("refused");
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("use https://"), "{status:?}");
    let (succeeded, said) = tenant_list(&site, &gateway.grpc_url(), &[]);
    assert!(!succeeded && said.contains("use https://"), "{said}");

    // A port without TLS.
    gateway.terminate();
    gateway.ended(PATIENCE).await;
    let mut gateway = gateway.without("GRPC__TLS__CERT_FILE").without("GRPC__TLS__KEY_FILE");
    gateway.launch().await;
    let ca_file = text(&authority.file(&site));
    let (succeeded, said) = tenant_list(&site, &gateway.secure_grpc_url(), &["--ca-file", &ca_file]);
    assert!(!succeeded && said.contains("does not speak TLS") && said.contains("http://"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_certificate_of_the_authority_is_refused_where_one_is_wanted() {
    let site = Site::new(Kind::Sqlite);
    let (authority, clients, strangers) =
        (Authority::new("authority"), Authority::new("clients"), Authority::new("strangers"));
    authority.issue(&NAMES).write(&site, "gateway");
    let known = clients.issue(&["consumer"]);
    let stranger = strangers.issue(&["consumer"]);
    let (gateway, setup) =
        secure(&site, |gateway| gateway.with_tls("gateway").with_clients_of(&clients)).await;

    let own = known.write(&site, "known");
    let tls = Tls { client_certificate: Some(own.clone()), ..authority.trusted(&site) };
    let consumer = consumer(&gateway, &tls).await;
    let allowed = provider(&setup, &gateway, http(&[&authority]).identity(identity(&known)));
    assert_eq!(allowed.send(&stripe_event("evt_1", "entity", 0)).await.status, 200);
    consumer.has_acked(1, PATIENCE).await;
    consumer.stop().await;
    for refused in [http(&[&authority]), http(&[&authority]).identity(identity(&stranger))] {
        let provider = provider(&setup, &gateway, refused);
        let signed = provider.sign(&stripe_event("evt_2", "entity", 1));
        assert!(provider.try_post(&signed).await.is_none(), "no word is exchanged");
    }

    let ca_file = text(&authority.file(&site));
    let (succeeded, said) = tenant_list(&site, &gateway.secure_grpc_url(), &["--ca-file", &ca_file]);
    assert!(
        !succeeded && said.contains("wants a client certificate") && said.contains("--client-cert"),
        "{said}"
    );
    let cases = [
        (own, true, "acme"),
        (stranger.write(&site, "stranger"), false, "does not accept the client certificate"),
    ];
    for (own, allowed, wanted) in cases {
        let (certificate, key) = (text(&own.cert_file), text(&own.key_file));
        let arguments = ["--ca-file", &ca_file, "--client-cert", &certificate, "--client-key", &key];
        let (succeeded, said) = tenant_list(&site, &gateway.secure_grpc_url(), &arguments);
        assert_eq!(succeeded, allowed, "{said}");
        assert!(said.contains(wanted), "{said}");
    }
    for outcome in ["no_client_certificate", "bad_client_certificate"] {
        let label = format!("outcome=\"{outcome}\"");
        assert!(gateway.metric("portero_tls_handshakes_total", &[&label]).await >= 1.0, "{outcome}");
    }
}
