//! Hello and Welcome: what a stream is told, and what goes on from an earlier one.

use bytes::Bytes;
use portero_proto::v1;
use tonic::Code;

use crate::client::{Client, acks, hello};
use crate::gateway::Gateway;

/// F35: a consumer learns how many lanes there are, so that a spare knows what it is.
#[tokio::test]
async fn welcome_says_how_many_streams_can_have_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let mut client = Client::connect(&gateway).await;
    let mut streams = Vec::new();
    for number in 0..6 {
        let hello = v1::Hello { instance_id: format!("pod-{number}"), ..hello() };
        let (stream, welcome) = client.welcomed(hello).await;
        assert_eq!(welcome.subscription_lanes, 4);
        assert!(welcome.assigned_lanes <= 4 && welcome.resumed_tokens.is_empty());
        streams.push(stream);
    }
}

/// F32, S2: a stream that was cut goes on where it was; its event is neither offered again nor to anybody else.
#[tokio::test]
async fn a_delivery_goes_on_on_the_next_stream_of_its_consumer() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    gateway.accept("stripe:cus_1", &["evt_1", "evt_2"]).await;
    let mut client = Client::connect(&gateway).await;
    let (mut first, _) = client.welcomed(hello()).await;
    let delivery = first.delivery().await;
    drop(first);
    let unsettled = vec![delivery.token.clone(), Bytes::from_static(b"of another gateway")];
    let (mut second, welcome) = client.welcomed(v1::Hello { unsettled_tokens: unsettled, ..hello() }).await;
    assert_eq!(welcome.resumed_tokens, std::slice::from_ref(&delivery.token));
    second.send(acks(1, [&delivery.token])).await;
    assert_eq!(second.statuses().await, [v1::SettlementStatus::Durable]);
    let next = second.delivery().await;
    assert_eq!(next.event.expect("an event").event_id, "evt_2", "the first one did not come again");
}

#[tokio::test]
async fn what_another_consumer_works_on_by_now_does_not_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    gateway.accept("stripe:cus_1", &["evt_1"]).await;
    let mut client = Client::connect(&gateway).await;
    let (mut first, _) = client.welcomed(hello()).await;
    let delivery = first.delivery().await;
    drop(first);
    let (mut other, _) = client.welcomed(v1::Hello { instance_id: "other".to_owned(), ..hello() }).await;
    let again = other.delivery().await;
    assert_ne!(again.token, delivery.token);
    let unsettled_tokens = vec![delivery.token.clone()];
    let (_again, welcome) = client.welcomed(v1::Hello { unsettled_tokens, ..hello() }).await;
    assert!(welcome.resumed_tokens.is_empty(), "two would work on it");
    other.send(acks(1, [&again.token])).await;
    assert_eq!(other.statuses().await, [v1::SettlementStatus::Durable]);
}

#[tokio::test]
async fn a_hello_beyond_its_bounds_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let mut client = Client::connect(&gateway).await;
    let many = vec![Bytes::from_static(b"t"); 10_001];
    let cases = [
        (v1::Hello { unsettled_tokens: many, ..hello() }, "unsettled_tokens"),
        (v1::Hello { instance_id: String::new(), ..hello() }, "instance_id"),
        (v1::Hello { instance_id: "pod\0".to_owned(), ..hello() }, "instance_id"),
        (v1::Hello { boot_id: "b".repeat(129), ..hello() }, "boot_id"),
        (v1::Hello { protocol: 2, ..hello() }, "protocol"),
        (v1::Hello { max_message_bytes: 1, ..hello() }, "max_message_bytes"),
    ];
    for (hello, field) in cases {
        let status = client.open(hello).await.end(|frame| panic!("{frame:?}")).await;
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(field), "{status}");
    }
}
