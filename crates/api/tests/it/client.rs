//! A consumer that speaks the protocol by hand.

use std::collections::VecDeque;

use bytes::Bytes;
use portero_proto::v1;
use portero_proto::v1::subscriber_service_client::SubscriberServiceClient;
use portero_proto::v1::{subscribe_request, subscribe_response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::gateway::{Gateway, patient};

/// Largest message decoded: what a client without settings of its own takes.
const DECODE_BYTES_MAX: usize = 4 << 20;

/// A connection with a token.
pub(crate) struct Client {
    service: SubscriberServiceClient<Channel>,
    token: String,
}

/// An open stream.
pub(crate) struct Stream {
    to_gateway: mpsc::Sender<v1::SubscribeRequest>,
    from_gateway: Streaming<v1::SubscribeResponse>,
    /// Deliveries that came and were not asked for yet.
    came: VecDeque<v1::Delivery>,
}

/// A Hello of the instance `bare`.
pub(crate) fn hello() -> v1::Hello {
    v1::Hello {
        subscription: "subscriptions/billing".to_owned(),
        instance_id: "bare".to_owned(),
        boot_id: "1".to_owned(),
        protocol: 1,
        ..v1::Hello::default()
    }
}

/// An ack of each token.
pub(crate) fn acks<'a>(
    frame_no: u64,
    tokens: impl IntoIterator<Item = &'a Bytes>,
) -> subscribe_request::Frame {
    let ack = |token: &Bytes| v1::Settlement {
        token: token.clone(),
        outcome: v1::Outcome::Ack.into(),
        ..v1::Settlement::default()
    };
    let items = tokens.into_iter().map(ack).collect();
    subscribe_request::Frame::Settle(v1::Settle { frame_no, items })
}

impl Client {
    pub(crate) async fn connect(gateway: &Gateway) -> Self {
        Self::with_token(gateway, gateway.consumer_token()).await
    }

    pub(crate) async fn with_token(gateway: &Gateway, token: String) -> Self {
        let service = SubscriberServiceClient::connect(gateway.endpoint.clone()).await.expect("connected");
        Self { service: service.max_decoding_message_size(DECODE_BYTES_MAX), token }
    }

    /// Opens a stream; its Hello is sent, its Welcome not yet read.
    pub(crate) async fn open(&mut self, hello: v1::Hello) -> Stream {
        let (to_gateway, frames) = mpsc::channel(16);
        let mut request = Request::new(ReceiverStream::new(frames));
        let bearer = format!("Bearer {}", self.token).parse().expect("ASCII");
        request.metadata_mut().insert("authorization", bearer);
        let from_gateway =
            patient(self.service.subscribe(request)).await.expect("response headers").into_inner();
        let mut stream = Stream { to_gateway, from_gateway, came: VecDeque::new() };
        stream.send(subscribe_request::Frame::Hello(hello)).await;
        stream
    }

    /// Opens a stream that is refused before it opens.
    pub(crate) async fn refused(&mut self, hello: v1::Hello) -> Status {
        let frame = v1::SubscribeRequest { frame: Some(subscribe_request::Frame::Hello(hello)) };
        let mut request = Request::new(tokio_stream::iter([frame]));
        let bearer = format!("Bearer {}", self.token).parse().expect("ASCII");
        request.metadata_mut().insert("authorization", bearer);
        patient(self.service.subscribe(request)).await.expect_err("refused")
    }

    /// Settles without a stream.
    pub(crate) async fn settle(
        &mut self,
        subscription: &str,
        items: Vec<v1::Settlement>,
    ) -> Result<v1::SettleResponse, Status> {
        let subscription = format!("subscriptions/{subscription}");
        let mut request = Request::new(v1::SettleRequest { subscription, items });
        let bearer = format!("Bearer {}", self.token).parse().expect("ASCII");
        request.metadata_mut().insert("authorization", bearer);
        patient(self.service.settle(request)).await.map(tonic::Response::into_inner)
    }

    /// Opens a stream and reads its Welcome.
    pub(crate) async fn welcomed(&mut self, hello: v1::Hello) -> (Stream, v1::Welcome) {
        let mut stream = self.open(hello).await;
        match stream.next().await {
            Ok(subscribe_response::Frame::Welcome(welcome)) => (stream, welcome),
            other => panic!("expected Welcome, got {other:?}"),
        }
    }
}

impl Stream {
    /// Sends a frame; one that the gateway does not take any more is dropped.
    pub(crate) async fn send(&mut self, frame: subscribe_request::Frame) {
        let _ = patient(self.to_gateway.send(v1::SubscribeRequest { frame: Some(frame) })).await;
    }

    /// The next frame, or the stream's end.
    pub(crate) async fn next(&mut self) -> Result<subscribe_response::Frame, Status> {
        match patient(self.from_gateway.message()).await? {
            Some(response) => Ok(response.frame.expect("a frame")),
            None => Err(Status::ok("ended")),
        }
    }

    /// The next delivery.
    pub(crate) async fn delivery(&mut self) -> v1::Delivery {
        loop {
            if let Some(delivery) = self.came.pop_front() {
                return delivery;
            }
            if let Some(settled) = self.deliveries_or_statuses().await {
                panic!("expected a delivery, got {settled:?}");
            }
        }
    }

    /// The statuses of the next Settled frame.
    pub(crate) async fn statuses(&mut self) -> Vec<v1::SettlementStatus> {
        loop {
            if let Some(settled) = self.deliveries_or_statuses().await {
                return settled.results.iter().map(v1::SettlementResult::status).collect();
            }
        }
    }

    /// Takes a frame: deliveries are put by, statuses are given.
    async fn deliveries_or_statuses(&mut self) -> Option<v1::Settled> {
        match self.next().await {
            Ok(subscribe_response::Frame::Settled(settled)) => return Some(settled),
            Ok(subscribe_response::Frame::Deliver(deliver)) => self.came.extend(deliver.deliveries),
            Ok(subscribe_response::Frame::Heartbeat(_)) => {}
            other => panic!("expected deliveries or statuses, got {other:?}"),
        }
        None
    }

    /// The status with which the stream ends; what comes before is passed over and counted by `count`.
    pub(crate) async fn end(&mut self, mut count: impl FnMut(subscribe_response::Frame)) -> Status {
        loop {
            match self.next().await {
                Ok(frame) => count(frame),
                Err(status) => return status,
            }
        }
    }
}
