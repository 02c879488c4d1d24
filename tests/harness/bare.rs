//! A client of the protocol that is written against the generated code alone.

use std::time::Duration;

use portero_client::v1::subscriber_service_client::SubscriberServiceClient;
use portero_client::v1::{self, subscribe_request, subscribe_response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{Gateway, Heard, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// A client of the protocol without the SDK, with a token for one subscription.
pub(crate) struct Bare {
    client: SubscriberServiceClient<Heard>,
    pub(crate) subscription: String,
}

impl Bare {
    /// With a token for one subscription.
    pub(crate) async fn new(gateway: &Gateway, subscription: &str) -> Self {
        let token = gateway.site.consumer_token(subscription);
        let client = SubscriberServiceClient::new(Heard::new(gateway.grpc_url(), &token));
        Self { client, subscription: format!("subscriptions/{subscription}") }
    }

    /// Opens a stream with these flow limits; dropping the sender closes it.
    pub(crate) async fn open(
        &mut self,
        flow: v1::Flow,
    ) -> (mpsc::Sender<v1::SubscribeRequest>, Streaming<v1::SubscribeResponse>) {
        let hello = v1::Hello {
            subscription: self.subscription.clone(),
            instance_id: "bare".to_owned(),
            boot_id: "1".to_owned(),
            protocol: 1,
            flow: Some(flow),
            ..v1::Hello::default()
        };
        self.open_with(subscribe_request::Frame::Hello(hello)).await
    }

    /// Opens a stream with this first frame.
    pub(crate) async fn open_with(
        &mut self,
        first: subscribe_request::Frame,
    ) -> (mpsc::Sender<v1::SubscribeRequest>, Streaming<v1::SubscribeResponse>) {
        let (sender, receiver) = mpsc::channel(16);
        sender.send(v1::SubscribeRequest { frame: Some(first) }).await.expect("room");
        let stream = self
            .client
            .subscribe(ReceiverStream::new(receiver))
            .await
            .expect("response headers")
            .into_inner();
        (sender, stream)
    }

    /// Acks by a unary call, again while the answer is to send it again.
    pub(crate) async fn ack(&mut self, token: &bytes::Bytes) -> v1::SettlementStatus {
        let item =
            v1::Settlement { token: token.clone(), outcome: v1::Outcome::Ack.into(), ..Default::default() };
        let message = v1::SettleRequest { subscription: self.subscription.clone(), items: vec![item] };
        eventually("the ack has a final status", PATIENCE, async || {
            let status =
                self.client.settle(message.clone()).await.expect("statuses").into_inner().results[0].status();
            (status != v1::SettlementStatus::TryAgain).then_some(status)
        })
        .await
    }
}

/// The next delivery of a stream.
pub(crate) async fn next_delivery(stream: &mut Streaming<v1::SubscribeResponse>) -> v1::Delivery {
    let next = async {
        loop {
            let frame = stream.message().await.expect("the stream goes on").expect("a frame").frame;
            if let Some(subscribe_response::Frame::Deliver(mut deliver)) = frame {
                return deliver.deliveries.remove(0);
            }
        }
    };
    tokio::time::timeout(PATIENCE, next).await.expect("a delivery in time")
}
