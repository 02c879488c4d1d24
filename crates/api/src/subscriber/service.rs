//! The two calls of the service.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use portero_auth::{Action, Caller, SubscriptionRef};
use portero_directory::{Directory, Snapshot};
use portero_dispatcher::{AttachError, Dispatcher};
use portero_proto::v1;
use portero_proto::v1::subscriber_service_server::SubscriberService;
use portero_types::{Clock, SubscriptionId, SubscriptionNo};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{convert, session};
use crate::admin::reference;
use crate::authenticate::{Gate, Metadata};
use crate::connection::Peer;
use crate::{error, name};

/// Frames that wait for the transport of one stream.
const OUTGOING_MAX: usize = 4;

/// A call of this service, for the permission table.
#[derive(Clone, Copy)]
pub(super) enum Call {
    Subscribe,
    Settle,
}

impl Call {
    const fn of(self, subscription: SubscriptionRef<'_>) -> Action<'_> {
        match self {
            Self::Subscribe => Action::Subscribe(subscription),
            Self::Settle => Action::Settle(subscription),
        }
    }
}

/// How long a stream's last status waits for a client that takes nothing.
const STATUS_WITHIN: Duration = Duration::from_secs(5);

/// The subscriber service.
#[derive(Clone)]
pub(crate) struct Subscriber {
    pub(super) dispatcher: Dispatcher,
    pub(super) directory: Directory,
    pub(super) gate: Gate,
    pub(super) clock: Arc<dyn Clock>,
}

impl Subscriber {
    pub(crate) fn new(
        dispatcher: Dispatcher,
        directory: Directory,
        gate: Gate,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { dispatcher, directory, gate, clock }
    }

    /// The subscription of that name, if this caller, here without stored grants, may do this with it.
    pub(super) async fn permitted(
        &self,
        own: &Caller,
        id: &SubscriptionId,
        call: Call,
    ) -> Result<SubscriptionNo, Status> {
        let judge = |caller: &Caller, snapshot: &Snapshot| {
            let found = snapshot.subscription(id);
            let tenant = found.and_then(|found| found.tenant.as_ref());
            Gate::permit(caller, call.of(reference(id, tenant)))?;
            found.map(|found| found.no).ok_or_else(|| error::not_found(&format!("subscriptions/{id}")))
        };
        let rpc = call.of(reference(id, None)).name();
        self.gate.judged(own, rpc, judge).await.map(|(_, number)| number)
    }
}

/// Why a stream or settlement is refused, on the wire.
pub(super) fn from_attach(error: AttachError) -> Status {
    match error {
        AttachError::NotFound => Status::not_found(error.to_string()),
        AttachError::TooManyStreams => Status::resource_exhausted(error.to_string()),
        AttachError::Recovering | AttachError::ShuttingDown => Status::unavailable(error.to_string()),
    }
}

#[tonic::async_trait]
impl SubscriberService for Subscriber {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<v1::SubscribeResponse, Status>> + Send>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<v1::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let (metadata, extensions, incoming) = request.into_parts();
        let own = self.gate.own(&Metadata::new(metadata, &extensions)).await?;
        let peer = extensions.get::<Peer>().cloned().unwrap_or_default();
        let (outgoing, frames) = mpsc::channel(OUTGOING_MAX);
        let service = self.clone();
        // The task ends with the stream: when the client goes, `incoming` and `outgoing` say so.
        tokio::spawn(async move {
            if let Err(status) = session::run(service, own, peer, incoming, &outgoing).await {
                // A client that is gone, or takes nothing, needs no status.
                let _ = tokio::time::timeout(STATUS_WITHIN, outgoing.send(Err(status))).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
    }

    async fn settle(
        &self,
        request: Request<v1::SettleRequest>,
    ) -> Result<Response<v1::SettleResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let own = self.gate.own(&Metadata::new(metadata, &extensions)).await?;
        let id = name::subscription(&message.subscription, "subscription")?;
        let number = self.permitted(&own, &id, Call::Settle).await?;
        let items = convert::settlements(&message.items, number)?;
        let statuses = self.dispatcher.settle(number, items).await.map_err(from_attach)?;
        let tokens = message.items.into_iter().map(|item| item.token).collect();
        Ok(Response::new(v1::SettleResponse { results: convert::results(tokens, statuses) }))
    }
}
