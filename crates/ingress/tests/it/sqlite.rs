//! Concurrency, restarts, remembered refusals and secrets of handshakes on a real store.

use std::net::SocketAddr;
use std::path::Path;

use portero_keyring::rejection_aad;
use portero_store::{
    AcceptStore as _, Actor, CapturedRequest, Change, ConfigStore as _, RejectionStore as _, SourceUpdate,
};
use portero_types::{ProviderName, SourceId, TenantId, TenantNo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Answer, Endpoint, Gateway, Message, NOW, tenant_keys};

const SECRET: &str = "whsec_4f1c9a70b2e35d6888a1c0ffee123456";

fn stripe() -> Endpoint {
    Endpoint::new("stripe", SECRET)
}

/// A new database with one tenant and one Stripe source.
async fn create(path: &Path) {
    crate::support::create(path, &[stripe()]).await;
}

async fn deliver(address: SocketAddr, id: &str, entity: &str) -> Answer {
    let body = format!(r#"{{"id":"{id}","type":"invoice.paid","data":{{"object":{{"id":"{entity}"}}}}}}"#);
    post(address, &Message::signed(&stripe(), body.as_bytes())).await
}

async fn post(address: SocketAddr, message: &Message) -> Answer {
    let mut stream = TcpStream::connect(address).await.expect("listening");
    stream.write_all(&message.to_bytes(&stripe().path())).await.expect("sent");
    Answer::read(&mut stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_copies_at_once_are_one_receipt_and_two_hundred_good_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = Gateway::open(&path, 1).await;
    let address = gateway.address;
    let copies: Vec<_> = (0..200).map(|_| tokio::spawn(deliver(address, "evt_1", "in_1"))).collect();
    let mut accepted = 0;
    for copy in copies {
        let answer = copy.await.expect("no panic");
        assert_eq!(answer.status, 200, "{answer:?}");
        accepted += usize::from(answer.field("status") == "accepted");
    }
    assert_eq!(accepted, 1);
    gateway.stop().await;

    // A restart remembers.
    let gateway = Gateway::open(&path, 2).await;
    assert_eq!(deliver(gateway.address, "evt_1", "in_1").await.field("status"), "duplicate");
    deliver(gateway.address, "evt_2", "in_1").await.is_accepted("a new one");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_answered_as_accepted_has_its_receipt_and_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = Gateway::open(&path, 1).await;
    let address = gateway.address;
    let sends: Vec<_> = (0..300)
        .map(|n| {
            tokio::spawn(
                async move { deliver(address, &format!("evt_{n}"), &format!("in_{}", n % 17)).await },
            )
        })
        .collect();
    for send in sends {
        send.await.expect("no panic").is_accepted("one of three hundred");
    }
    let provider = ProviderName::new("stripe").expect("valid");
    let mut places = std::collections::HashSet::new();
    for n in 0..300 {
        let receipt = gateway.store.receipt_by_event_id(TenantNo(1), &provider, &format!("evt_{n}")).await;
        let receipt = receipt.expect("readable").expect("there");
        assert!(receipt.secret_no.is_some(), "it says which secret verified");
        assert!(places.insert(receipt.position.expect("in the log")), "a place of its own");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_is_found_again_after_a_restart_with_what_it_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = Gateway::open(&path, 1).await;
    let forged = Message::post(&[("stripe-signature", "t=1,v1=00")], b"{\"id\":\"evt_1\"}");
    let answer = post(gateway.address, &forged).await;
    assert_eq!(answer.status, 401, "{answer:?}");
    // Shutting down writes what waits.
    gateway.stop().await;

    let gateway = Gateway::open(&path, 2).await;
    let (tenant, source) = (TenantId::new("acme").expect("valid"), SourceId::new("stripe").expect("valid"));
    let page = gateway.store.list(&tenant, &source, None, 10).await.expect("readable");
    let [row] = &page.items[..] else { panic!("one: {page:?}") };
    let told = (answer.field("request_id"), answer.field("reason"));
    assert_eq!(told, (row.request_id.to_string(), row.reason.clone()), "{answer:?}");
    let stored = gateway.store.get(&tenant, row.request_id).await.expect("readable").expect("there");
    let capture = stored.capture.expect("captured");
    let aad = rejection_aad(&tenant, &source, row.request_id);
    let bytes = tenant_keys().open(&aad, &capture.0).expect("opens");
    let request = CapturedRequest::decode(&bytes).expect("in the format");
    assert_eq!(request.body, "{\"id\":\"evt_1\"}");
    assert!(request.headers.iter().any(|header| header.name == "stripe-signature"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_brings_the_secret_once_and_events_verify_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = Gateway::open(&path, 1).await;
    let (tenant, source) = (TenantId::new("acme").expect("valid"), SourceId::new("stripe").expect("valid"));
    let update = SourceUpdate {
        preset: Some("asana".to_owned()),
        recipe: Some(String::new()),
        secret_expected_until: Some(Some(NOW.plus(std::time::Duration::from_secs(60)))),
        ..SourceUpdate::new(tenant, source)
    };
    let change = Change::new(Actor::local("test"), "req-1", NOW);
    gateway.store.update_source(update, &change).await.expect("updated");
    gateway.directory.refresh_now().await.expect("readable");

    let secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
    let hook = Message::post(&[("x-hook-secret", secret)], b"");
    let shakes: Vec<_> = (0..8)
        .map(|_| {
            let (address, hook) = (gateway.address, hook.clone());
            tokio::spawn(async move { post(address, &hook).await })
        })
        .collect();
    let mut taken = 0;
    for shake in shakes {
        let answer = shake.await.expect("no panic");
        let good = answer.status == 200;
        assert!(good || answer.field("reason") == "HANDSHAKE_NOT_EXPECTED", "{answer:?}");
        assert_eq!(answer.header("x-hook-secret"), good.then_some(secret), "{answer:?}");
        taken += usize::from(good);
    }
    assert_eq!(taken, 1, "of many at once one succeeds");

    let body = br#"{"events":[{"action":"changed","resource":{"gid":"7","resource_type":"task"}}]}"#;
    post(gateway.address, &Message::signed(&Endpoint::new("asana", secret), body))
        .await
        .is_accepted("signed");
    gateway.stop().await;
}
