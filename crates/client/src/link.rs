//! The connection under a subscription, behind a trait so that the driver can be tested on virtual time.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use portero_proto::v1;
use portero_proto::v1::subscriber_service_client::SubscriberServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::auth::Authenticated;
use crate::config::ClientConfig;
use crate::error::Error;
use crate::token::Token;

/// The largest message that a gateway decodes. Nothing this crate sends comes near it.
const ENCODE_BYTES_MAX: usize = 1 << 20;

/// Frames from the gateway.
pub(crate) type Frames = BoxStream<'static, Result<v1::SubscribeResponse, tonic::Status>>;

/// Opens connections.
pub(crate) trait Connect: Send + Sync + 'static {
    /// A new connection, perhaps to another gateway.
    fn connect(&self) -> BoxFuture<'static, Result<Box<dyn Link>, Error>>;
    /// Whether the next connection may carry another token.
    fn can_renew(&self) -> bool;
}

/// One connection: one stream, and unary calls beside it.
pub(crate) trait Link: Send + Sync + 'static {
    /// Opens the stream.
    fn subscribe(
        &self,
        frames: mpsc::Receiver<v1::SubscribeRequest>,
    ) -> BoxFuture<'static, Result<Frames, Error>>;
    /// Settles outside of the stream.
    fn settle(&self, request: v1::SettleRequest) -> BoxFuture<'static, Result<v1::SettleResponse, Error>>;
}

/// Real connections.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(crate) endpoint: Endpoint,
    /// Read again for each connection; `None` where nothing can change.
    pub(crate) renewing: Option<Arc<ClientConfig>>,
    pub(crate) token: Token,
    pub(crate) decode_bytes_max: usize,
}

impl Dialer {
    /// The endpoint with certificates as they are in their files now.
    async fn endpoint(&self) -> Result<Endpoint, Error> {
        let Some(config) = self.renewing.clone() else { return Ok(self.endpoint.clone()) };
        let reading = tokio::task::spawn_blocking(move || config.check());
        reading.await.unwrap_or_else(|_| Ok(self.endpoint.clone()))
    }
}

impl Connect for Dialer {
    fn connect(&self) -> BoxFuture<'static, Result<Box<dyn Link>, Error>> {
        let dialer = self.clone();
        async move {
            // Asked here too, so that a missing token is told as itself.
            dialer.token.get().await?;
            let channel = dialer.endpoint().await?.connect().await?;
            let client = SubscriberServiceClient::new(Authenticated::new(channel, dialer.token))
                .max_decoding_message_size(dialer.decode_bytes_max)
                .max_encoding_message_size(ENCODE_BYTES_MAX);
            Ok(Box::new(client) as Box<dyn Link>)
        }
        .boxed()
    }

    fn can_renew(&self) -> bool {
        self.token.can_renew()
    }
}

impl Link for SubscriberServiceClient<Authenticated> {
    fn subscribe(
        &self,
        frames: mpsc::Receiver<v1::SubscribeRequest>,
    ) -> BoxFuture<'static, Result<Frames, Error>> {
        let mut client = self.clone();
        async move {
            let answer = Self::subscribe(&mut client, ReceiverStream::new(frames)).await?;
            Ok(answer.into_inner().boxed())
        }
        .boxed()
    }

    fn settle(&self, request: v1::SettleRequest) -> BoxFuture<'static, Result<v1::SettleResponse, Error>> {
        let mut client = self.clone();
        async move { Ok(Self::settle(&mut client, request).await?.into_inner()) }.boxed()
    }
}
