//! Whom clients refuse, who is slow, and TLS to the servers behind.

use std::time::Duration;

use portero_client::{Tls, TlsFailure, v1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{NAMES, PATIENCE, consumer, http, provider, secure, tenant_list, text};
use crate::harness::{Authority, Client, Kind, Site, eventually, stripe_event};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_has_ended_bears_another_name_or_is_a_strangers_is_refused_in_clear_words() {
    let site = Site::new(Kind::Sqlite);
    let (authority, stranger) = (Authority::new("authority"), Authority::new("stranger"));
    authority.issue(&["gateway.example"]).write(&site, "gateway");
    let (mut gateway, setup) = secure(&site, |gateway| gateway.with_tls("gateway")).await;
    let url = gateway.secure_grpc_url();
    let (ca_file, other) = (text(&authority.file(&site)), text(&stranger.file(&site)));

    let sdk = async |tls: &Tls| {
        let client = Client::by_tls(url.as_str(), &site.admin_token(), tls).await;
        let mut admin = portero_client::Client::admin(&client);
        let listed = admin.list_tenants(v1::ListTenantsRequest::default()).await;
        listed.map(drop).map_err(|status| TlsFailure::of(&status).expect("TLS is the cause"))
    };
    let trusted = authority.trusted(&site);
    assert_eq!(sdk(&trusted).await, Err(TlsFailure::WrongName));
    assert_eq!(sdk(&stranger.trusted(&site)).await, Err(TlsFailure::UnknownAuthority));
    let named = Tls { server_name: Some("gateway.example".to_owned()), ..trusted.clone() };
    assert_eq!(sdk(&named).await, Ok(()));

    let (succeeded, said) = tenant_list(&site, &url, &["--ca-file", &ca_file]);
    assert!(!succeeded && said.contains("bears another name") && said.contains("--server-name"), "{said}");
    let (succeeded, said) = tenant_list(&site, &url, &["--ca-file", &other]);
    assert!(!succeeded && said.contains("not trusted here") && said.contains("--ca-file"), "{said}");
    let (succeeded, said) =
        tenant_list(&site, &url, &["--ca-file", &ca_file, "--server-name", "gateway.example"]);
    assert!(succeeded && said.contains("acme"), "{said}");
    let refused = provider(&setup, &gateway, http(&[&authority]));
    assert!(refused.try_post(&refused.sign(&stripe_event("evt_1", "entity", 0))).await.is_none());

    // It starts all the same: what else it does may be in order.
    authority.issue_expired(&NAMES).write(&site, "gateway");
    gateway.kill();
    gateway.launch().await;
    assert_eq!(sdk(&trusted).await, Err(TlsFailure::Expired));
    let (succeeded, said) = tenant_list(&site, &url, &["--ca-file", &ca_file]);
    assert!(!succeeded && said.contains("its certificate has expired"), "{said}");
    assert!(gateway.log.count("the TLS certificate has expired: clients refuse it") > 0);
    let sent = site.run(&[
        "send",
        "stripe",
        "--url",
        &format!("{}{}", gateway.secure_edge_url(), setup.stripe.path),
        "--secret-file",
        &secret_file(&site, &setup.stripe.secret),
        "--ca-file",
        &ca_file,
    ]);
    let said = String::from_utf8_lossy(&sent.stdout).into_owned() + &String::from_utf8_lossy(&sent.stderr);
    assert!(!sent.status.success() && said.contains("its certificate has expired"), "{said}");
}

fn secret_file(site: &Site, secret: &str) -> String {
    let path = site.path("stripe.secret");
    std::fs::write(&path, secret).expect("written");
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_handshakes_hold_nobody_up_and_end() {
    const SLOW: usize = 30;
    let site = Site::new(Kind::Sqlite);
    let authority = Authority::new("authority");
    authority.issue(&NAMES).write(&site, "gateway");
    let (gateway, setup) =
        secure(&site, |gateway| gateway.with_tls("gateway").set("EDGE__HEADER_TIMEOUT", "2s")).await;
    let mut slow = Vec::new();
    for address in [gateway.edge_address(), gateway.grpc_address()] {
        for n in 0..SLOW {
            let mut stream = TcpStream::connect(&address).await.expect("connected");
            // Every other one begins a handshake.
            stream.write_all(if n % 2 == 0 { &[] } else { &[22, 3, 1, 2] }).await.expect("sent");
            slow.push(stream);
        }
    }
    let consumer = consumer(&gateway, &authority.trusted(&site)).await;
    let provider = provider(&setup, &gateway, http(&[&authority]));
    for n in 0..5 {
        assert_eq!(provider.send(&stripe_event(&format!("evt_{n}"), "entity", n)).await.status, 200);
    }
    consumer.has_acked(5, PATIENCE).await;
    eventually("slow handshakes are given up", PATIENCE, async || {
        let given_up = gateway.metric("portero_tls_handshakes_total", &["outcome=\"timed_out\""]).await;
        (given_up >= 2.0 * SLOW as f64).then_some(())
    })
    .await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_in_their_handshake_count_against_the_bound() {
    let site = Site::new(Kind::Sqlite);
    let authority = Authority::new("authority");
    authority.issue(&NAMES).write(&site, "gateway");
    let (gateway, setup) = secure(&site, |gateway| {
        let gateway = gateway.with_tls("gateway").set("EDGE__HEADER_TIMEOUT", "2s");
        gateway.set("EDGE__CONNECTIONS_MAX", "3").set("GRPC__CONNECTIONS_MAX", "3")
    })
    .await;
    let mut held = Vec::new();
    for address in [gateway.edge_address(), gateway.grpc_address()] {
        for _ in 0..3 {
            held.push(TcpStream::connect(&address).await.expect("connected"));
        }
        // One more is closed without a word, since nobody there speaks plainly.
        let mut more = TcpStream::connect(&address).await.expect("connected");
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_secs(1), more.read(&mut byte)).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "{address}");
    }
    // Those that never got further are gone after a while, and there is room again.
    let provider = provider(&setup, &gateway, http(&[&authority]));
    let signed = provider.sign(&stripe_event("evt_1", "entity", 0));
    provider.deliver(&signed, PATIENCE).await;
    assert!(gateway.metric("portero_api_connections_refused_total", &[]).await >= 1.0);
}
