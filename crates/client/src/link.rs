//! The connection under a subscription, behind a trait so that the driver can be tested on virtual time.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use portero_proto::v1;
use portero_proto::v1::subscriber_service_client::SubscriberServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use crate::auth::Authenticated;
use crate::error::Error;
use crate::tls::Connector;
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
    /// For `https`.
    pub(crate) connector: Option<Connector>,
    pub(crate) token: Token,
    pub(crate) decode_bytes_max: usize,
}

impl Connect for Dialer {
    fn connect(&self) -> BoxFuture<'static, Result<Box<dyn Link>, Error>> {
        let dialer = self.clone();
        async move {
            // Asked here too, so that a missing token is told as itself.
            dialer.token.get().await?;
            // One of its own, so that failures of other connections are not taken for this one's.
            let connector = dialer.connector.as_ref().map(Connector::apart);
            let last_failure = connector.as_ref().map(Connector::last_failure).unwrap_or_default();
            let channel = match connector {
                None => dialer.endpoint.connect().await?,
                Some(connector) => dialer.endpoint.connect_with_connector(connector).await?,
            };
            let channel = Authenticated::new(channel, dialer.token, last_failure);
            let client = SubscriberServiceClient::new(channel)
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
