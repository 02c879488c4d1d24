//! Subscriptions and grants that another gateway has made a moment ago. To a consumer a refusal is final.

use std::time::Duration;

use bytes::Bytes;
use portero_proto::v1;
use portero_store::testing::fixture::{self, NOW};
use portero_store::{ConfigStore as _, NewGrant};
use portero_types::{GrantId, SubscriptionId};
use tonic::Code;

use crate::client::{Client, hello};
use crate::gateway::Gateway;

const LIFE: Duration = Duration::from_secs(86_400);

/// Makes both past the gateway.
async fn make(gateway: &Gateway, subscription: &str, subject: &str) {
    let new = fixture::new_subscription(subscription);
    gateway.store.create_subscription(new, &fixture::tester()).await.expect("a subscription");
    let grant = NewGrant {
        id: GrantId::new(subject).expect("valid"),
        issuer: "portero".to_owned(),
        subject: subject.to_owned(),
        role: "consumer".to_owned(),
        tenant: None,
        subscriptions: vec![SubscriptionId::new(subscription).expect("valid")],
        created_at: NOW,
    };
    gateway.store.create_grant(grant, &fixture::tester()).await.expect("granted");
}

fn to(subscription: &str) -> v1::Hello {
    v1::Hello { subscription: format!("subscriptions/{subscription}"), ..hello() }
}

#[tokio::test]
async fn a_stream_opens_at_the_first_try() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start_late(folder.path()).await;
    for subscription in ["orders", "refunds"] {
        make(&gateway, subscription, subscription).await;
        let token = gateway.token_of(subscription, None, LIFE);
        let (_stream, welcome) = Client::with_token(&gateway, token).await.welcomed(to(subscription)).await;
        assert!(welcome.subscription_lanes > 0);
    }
}

#[tokio::test]
async fn settlements_are_taken_at_the_first_try() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start_late(folder.path()).await;
    make(&gateway, "orders", "orders").await;
    let token = gateway.token_of("orders", None, LIFE);
    let mut client = Client::with_token(&gateway, token).await;
    let ack = v1::Settlement {
        token: Bytes::from_static(b"of nothing"),
        outcome: v1::Outcome::Ack.into(),
        ..v1::Settlement::default()
    };
    assert_eq!(client.settle("orders", vec![ack]).await.expect("allowed").results.len(), 1);
}

#[tokio::test]
async fn what_does_not_exist_and_what_is_not_granted_are_refused_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start_late(folder.path()).await;
    make(&gateway, "orders", "orders").await;
    let token = gateway.token_of("orders", None, LIFE);
    let mut told = Vec::new();
    for subscription in ["billing", "missing"] {
        let mut client = Client::with_token(&gateway, token.clone()).await;
        let status = client.open(to(subscription)).await.end(|frame| panic!("{frame:?}")).await;
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        told.push((status.message().to_owned(), status.details().to_vec()));
    }
    assert_eq!(told[0], told[1]);
}
