//! What may go over a stream, in size and in number.

use bytes::Bytes;
use portero_proto::v1;
use portero_proto::v1::subscribe_response;
use portero_store::{ConfigStore as _, LaneStore as _};
use portero_types::limits::BODY_BYTES_MAX;
use prost::Message as _;
use tonic::Code;

use crate::client::{Client, acks, hello};
use crate::gateway::Gateway;

/// The largest frame that a gateway sends.
const SERVER_FRAME_BYTES_MAX: usize = (1 << 20) + (1 << 18);

#[tokio::test]
async fn a_frame_above_one_mebibyte_ends_its_stream_with_a_reason_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let mut client = Client::connect(&gateway).await;
    let (mut large, _) = client.welcomed(hello()).await;
    let (mut other, _) = client.welcomed(v1::Hello { instance_id: "other".to_owned(), ..hello() }).await;
    large.send(acks(1, [&Bytes::from(vec![0; 1 << 20])])).await;
    let status = large.end(|_| {}).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("at most 1 MiB"), "{status}");
    other.send(acks(1, [&Bytes::from_static(b"nonsense")])).await;
    assert_eq!(other.statuses().await, [v1::SettlementStatus::UnknownToken]);
}

/// S6: a consumer that settles and never reads costs a bounded number of statuses.
#[tokio::test]
async fn settlements_whose_statuses_nobody_reads_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let mut client = Client::connect(&gateway).await;
    let (mut stream, _) = client.welcomed(hello()).await;
    let token = Bytes::from_static(b"nonsense of the usual length..");
    let tokens = vec![token; 1_000];
    // Far more than the bound and what lies between the two sides.
    for frame_no in 1..=200 {
        stream.send(acks(frame_no, &tokens)).await;
    }
    let mut answered = 0;
    let status = stream
        .end(|frame| {
            if let subscribe_response::Frame::Settled(settled) = frame {
                answered += settled.results.len();
            }
        })
        .await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(answered < 150_000, "{answered} statuses were kept for a client that took none");
}

#[tokio::test]
async fn a_settle_frame_holds_one_to_a_thousand_items() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let mut client = Client::connect(&gateway).await;
    for count in [0, 1_001] {
        let (mut stream, _) = client.welcomed(hello()).await;
        stream.send(acks(1, &vec![Bytes::from_static(b"t"); count])).await;
        let status = stream.end(|_| {}).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{count}: {status}");
    }
}

/// F40: the largest event that is accepted fits a frame that every client decodes.
#[tokio::test]
async fn the_largest_event_reaches_a_client_without_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let body = Bytes::from(vec![b'x'; BODY_BYTES_MAX]);
    gateway.accept_with("stripe:cus_1", &[("evt_1", Some(body.clone()))]).await;
    let mut client = Client::connect(&gateway).await;
    let (mut stream, _) = client.welcomed(hello()).await;
    let delivery = stream.delivery().await;
    assert!(delivery.encoded_len() < SERVER_FRAME_BYTES_MAX);
    assert_eq!(delivery.event.expect("an event").body, body);
}

/// F40: an event that its consumer cannot decode breaks no stream, and holds up only its own entity until it is a dead letter.
#[tokio::test]
async fn an_event_too_large_for_its_consumer_becomes_a_dead_letter_and_the_stream_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(folder.path()).await;
    let body = Bytes::from(vec![b'x'; 200 << 10]);
    gateway.accept_with("stripe:cus_1", &[("evt_large", Some(body)), ("evt_small", None)]).await;
    gateway.accept("stripe:cus_2", &["evt_other"]).await;
    let mut client = Client::connect(&gateway).await;
    let (mut stream, _) = client.welcomed(v1::Hello { max_message_bytes: 64 << 10, ..hello() }).await;
    let mut came = Vec::new();
    for frame_no in 1..=2 {
        let delivery = stream.delivery().await;
        stream.send(acks(frame_no, [&delivery.token])).await;
        assert_eq!(stream.statuses().await, [v1::SettlementStatus::Durable]);
        came.push(delivery.event.expect("an event").event_id);
    }
    came.sort_unstable();
    assert_eq!(came, ["evt_other", "evt_small"]);
    let billing = "billing".parse().expect("valid");
    let no = gateway.store.subscription(&billing).await.expect("read").expect("there").no;
    let letters = gateway.store.dead_letters(no, None, 10).await.expect("read");
    let codes: Vec<_> = letters.iter().map(|(_, letter)| letter.reason_code.as_str()).collect();
    assert_eq!(codes, ["TOO_LARGE_FOR_CLIENT"]);
}
