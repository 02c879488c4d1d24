//! A stream whose caller loses its grant.

use std::time::Duration;

use portero_auth::Grant;
use portero_proto::v1;
use portero_store::testing::fixture::{self, NOW};
use portero_store::{Change, ConfigStore as _, NewGrant};
use portero_types::{Clock as _, GrantId, SubscriptionId};
use tonic::Code;

use crate::client::{Client, acks, hello};
use crate::gateway::Gateway;

const LIFE: Duration = Duration::from_secs(86_400);
/// After so many deliveries that ended without a word an event becomes a dead letter.
const INTERRUPTIONS_MAX: usize = 5;

async fn grant(gateway: &Gateway, id: &str, subject: &str) {
    let new = NewGrant {
        id: GrantId::new(id).expect("valid"),
        issuer: "portero".to_owned(),
        subject: subject.to_owned(),
        role: "consumer".to_owned(),
        tenant: None,
        subscriptions: vec![SubscriptionId::new("billing").expect("valid")],
        created_at: NOW,
    };
    gateway.store.create_grant(new, &fixture::tester()).await.expect("granted");
}

async fn take_back(gateway: &Gateway, id: &str) {
    let id = GrantId::new(id).expect("valid");
    gateway.store.delete_grant(&id, &fixture::tester()).await.expect("deleted");
}

fn receipt(delivery: &v1::Delivery) -> &str {
    &delivery.event.as_ref().expect("an event").receipt_id
}

/// A client whose token says only who it is, once the gateway has seen a grant for it.
async fn welcomed_once_granted(gateway: &Gateway) -> (crate::client::Stream, v1::Welcome) {
    let token = gateway.token_of("billing-service", None, LIFE);
    loop {
        let mut client = Client::with_token(gateway, token.clone()).await;
        let mut stream = client.open(hello()).await;
        match stream.next().await {
            Ok(v1::subscribe_response::Frame::Welcome(welcome)) => return (stream, welcome),
            Err(status) => assert_eq!(status.code(), Code::PermissionDenied, "{status}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_stream_ends_in_order_when_its_grant_is_taken_back_and_its_work_goes_on_uncounted() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    gateway.accept("stripe:cus_1", &["evt_1"]).await;
    gateway.accept("stripe:cus_2", &["evt_2"]).await;
    grant(&gateway, "billing", "billing-*").await;
    let (mut stream, _) = welcomed_once_granted(&gateway).await;
    let (done, held) = (stream.delivery().await, stream.delivery().await);
    stream.send(acks(1, [&done.token])).await;
    assert_eq!(stream.statuses().await, [v1::SettlementStatus::Durable]);
    take_back(&gateway, "billing").await;
    let status = stream.end(|_| {}).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(status.message().contains("taken back"), "{status}");

    let token = gateway.token_of("billing-service", None, LIFE);
    let mut refused = Client::with_token(&gateway, token).await.open(hello()).await;
    let status = refused.end(|frame| panic!("nothing is sent any more: {frame:?}")).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");

    // Often enough that the event would be a dead letter if each of these ends counted as an interruption.
    for round in 0..INTERRUPTIONS_MAX {
        grant(&gateway, "again", "billing-service").await;
        let (mut stream, _) = welcomed_once_granted(&gateway).await;
        let again = stream.delivery().await;
        assert_eq!(receipt(&again), receipt(&held), "round {round}");
        take_back(&gateway, "again").await;
        assert_eq!(stream.end(|_| {}).await.code(), Code::PermissionDenied);
    }
    grant(&gateway, "last", "billing-service").await;
    let (mut stream, _) = welcomed_once_granted(&gateway).await;
    let again = stream.delivery().await;
    assert_eq!(receipt(&again), receipt(&held));
    stream.send(acks(1, [&again.token])).await;
    assert_eq!(stream.statuses().await, [v1::SettlementStatus::Durable]);
}

#[tokio::test]
async fn a_stream_stays_while_anything_else_allows_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    grant(&gateway, "first", "tester").await;
    grant(&gateway, "second", "test*").await;
    let billing = SubscriptionId::new("billing").expect("valid");
    let token = gateway.token_of("tester", Some(Grant::consumer(vec![billing])), LIFE);
    let (mut stream, _) = Client::with_token(&gateway, token).await.welcomed(hello()).await;
    take_back(&gateway, "first").await;
    take_back(&gateway, "second").await;
    let changed = gateway.store.revision().await.expect("read");
    gateway.has_seen(changed).await;
    gateway.accept("stripe:cus_1", &["evt_1"]).await;
    let delivery = stream.delivery().await;
    stream.send(acks(1, [&delivery.token])).await;
    assert_eq!(stream.statuses().await, [v1::SettlementStatus::Durable]);
}

/// Both between two looks of the gateway at the configuration, or not: it makes no difference.
#[tokio::test]
async fn a_stream_of_a_deleted_subscription_ends_and_its_token_is_nothing_to_the_next_one_of_that_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let billing = SubscriptionId::new("billing").expect("valid");
    let consumer = || Some(Grant::consumer(vec![billing.clone()]));
    let token = gateway.token_of("tester", consumer(), LIFE);
    let (mut stream, _) = Client::with_token(&gateway, token.clone()).await.welcomed(hello()).await;
    gateway.clock.advance(Duration::from_secs(2));
    let change = Change { at: gateway.clock.now(), ..fixture::tester() };
    gateway.store.delete_subscription(&billing, &change).await.expect("deleted");
    let again = fixture::new_subscription("billing");
    gateway.store.create_subscription(again, &change).await.expect("created again");
    let status = stream.end(|frame| panic!("nothing is sent any more: {frame:?}")).await;
    assert_eq!(status.code(), Code::NotFound, "{status}");
    gateway.has_seen(gateway.store.revision().await.expect("read")).await;

    let mut refused = Client::with_token(&gateway, token).await.open(hello()).await;
    let status = refused.end(|frame| panic!("it is another subscription: {frame:?}")).await;
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(status.message().contains("get a new token"), "{status}");
    gateway.clock.advance(Duration::from_secs(2));
    let token = gateway.token_of("tester", consumer(), LIFE);
    Client::with_token(&gateway, token).await.welcomed(hello()).await;
}
