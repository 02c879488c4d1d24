//! A stream whose token expires.

use std::time::Duration;

use portero_auth::{Grant, LEEWAY};
use portero_proto::v1;
use portero_types::SubscriptionId;
use tonic::Code;

use crate::client::{Client, acks, hello};
use crate::gateway::Gateway;

/// What a token lives, and how much of that is left when its stream opens.
const LIFE: Duration = Duration::from_secs(60);
const LEFT: Duration = Duration::from_secs(2);

/// S7: the end of a token is nobody's fault: what was settled is answered, what is unsettled goes on with a new token.
#[tokio::test]
async fn a_stream_ends_in_order_when_its_token_expires_and_its_work_goes_on_with_a_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    gateway.accept("stripe:cus_1", &["evt_1"]).await;
    gateway.accept("stripe:cus_2", &["evt_2"]).await;
    let billing = SubscriptionId::new("billing").expect("valid");
    let token = gateway.token(Grant::consumer(vec![billing]), LIFE);
    gateway.clock.advance(LIFE + LEEWAY - LEFT);
    let mut client = Client::with_token(&gateway, token.clone()).await;
    let (mut stream, _) = client.welcomed(hello()).await;
    let mut deliveries = vec![stream.delivery().await, stream.delivery().await];
    let done = deliveries.remove(0);
    stream.send(acks(1, [&done.token])).await;
    assert_eq!(stream.statuses().await, [v1::SettlementStatus::Durable]);
    let status = stream.end(|_| {}).await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(status.message().contains("new one"), "{status}");

    let mut client = Client::connect(&gateway).await;
    let unsettled_tokens = vec![deliveries[0].token.clone()];
    let (mut stream, welcome) = client.welcomed(v1::Hello { unsettled_tokens, ..hello() }).await;
    if welcome.resumed_tokens.is_empty() {
        // Its lane was free for a moment and was claimed again: then it comes again, uncounted.
        deliveries[0] = stream.delivery().await;
    }
    stream.send(acks(1, [&deliveries[0].token])).await;
    assert_eq!(stream.statuses().await, [v1::SettlementStatus::Durable]);
}

#[tokio::test]
async fn an_expired_token_opens_no_stream() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let billing = SubscriptionId::new("billing").expect("valid");
    let token = gateway.token(Grant::consumer(vec![billing]), LIFE);
    gateway.clock.advance(LIFE + LEEWAY);
    let mut client = Client::with_token(&gateway, token).await;
    let refused = client.refused(hello()).await;
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}
