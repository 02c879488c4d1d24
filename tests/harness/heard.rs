//! A client whose refusals are searched for canaries: what a caller is told of why is as public as a log.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use portero_client::v1::admin_service_client::AdminServiceClient;
use portero_client::{ClientConfig, SubscribeOptions, Subscriber, Tls, Token};
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response, header::AUTHORIZATION};
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::attentive::Attentive;
use super::canaries;

/// The admin service by way of [`Heard`].
pub(crate) type Admin = AdminServiceClient<Heard>;

/// The SDK's client, with an admin service whose refusals are searched.
#[derive(Clone)]
pub(crate) struct Client {
    sdk: portero_client::Client,
    admin: Admin,
}

impl Client {
    /// Of the gateway behind this URL.
    pub(crate) async fn connect(url: impl Into<String>, token: &str) -> Self {
        let url = url.into();
        let mut config = ClientConfig::new(&url);
        config.token = if token.is_empty() { Token::none() } else { Token::fixed(token) };
        let sdk = portero_client::Client::connect(config).await.expect("a client");
        Self { sdk, admin: AdminServiceClient::new(Heard::new(url, token)) }
    }

    /// Of the gateway behind this `https` URL.
    pub(crate) async fn by_tls(url: impl Into<String>, token: &str, tls: &Tls) -> Self {
        let url = url.into();
        let mut config = ClientConfig::new(&url);
        config.token = Token::fixed(token);
        config.tls = tls.clone();
        let sdk = portero_client::Client::connect(config).await.expect("a client");
        let read = |path: &std::path::Path| std::fs::read(path).expect("readable");
        let mut tonic = ClientTlsConfig::new();
        if let Some(path) = &tls.ca_file {
            tonic = tonic.ca_certificate(Certificate::from_pem(read(path)));
        }
        if let Some(own) = &tls.client_certificate {
            tonic = tonic.identity(Identity::from_pem(read(&own.cert_file), read(&own.key_file)));
        }
        let endpoint = Endpoint::from_shared(url).expect("a URL").tls_config(tonic).expect("TLS");
        Self { sdk, admin: AdminServiceClient::new(Heard::over(endpoint, token)) }
    }

    /// The admin service.
    pub(crate) fn admin(&self) -> Admin {
        self.admin.clone()
    }

    /// A subscription, as the SDK has it.
    pub(crate) fn subscribe(&self, name: &str, mut options: SubscribeOptions) -> Subscriber {
        options.observer = Arc::new(Attentive(options.observer));
        self.sdk.subscribe(name, options)
    }
}

impl Deref for Client {
    type Target = portero_client::Client;

    fn deref(&self) -> &Self::Target {
        &self.sdk
    }
}

/// A channel that sends a token and searches the status of each answer.
#[derive(Clone)]
pub(crate) struct Heard {
    channel: Channel,
    bearer: Option<HeaderValue>,
}

impl Heard {
    /// To a URL; connects when it is used.
    pub(crate) fn new(url: impl Into<String>, token: &str) -> Self {
        Self::over(Endpoint::from_shared(url.into()).expect("a URL"), token)
    }

    fn over(endpoint: Endpoint, token: &str) -> Self {
        canaries::plant_token(token);
        let channel = endpoint.connect_lazy();
        let bearer = format!("Bearer {token}").try_into().expect("a header's value");
        Self { channel, bearer: (!token.is_empty()).then_some(bearer) }
    }
}

impl Service<Request<Body>> for Heard {
    type Response = Response<Heeded>;
    type Error = StdError;
    type Future = BoxFuture<Self::Response, StdError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.channel.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        let answer = self.channel.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            search(answer.headers());
            Ok(answer.map(Heeded))
        })
    }
}

/// A body whose trailers are searched.
pub(crate) struct Heeded(Body);

impl tonic::codegen::Body for Heeded {
    type Data = bytes::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.0).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            search(trailers);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

/// Searches the message and the details of a status as they were sent, and the message as it is meant.
fn search(headers: &HeaderMap) {
    for (name, value) in headers {
        let place = format!("the gRPC header {name}");
        canaries::assert_none(&place, value.as_bytes());
        canaries::assert_none(&place, percent_decoded(value.as_bytes()));
    }
}

fn percent_decoded(mut bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    while let Some((byte, rest)) = bytes.split_first() {
        let code = rest.get(..2).filter(|_| *byte == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                decoded.push(code);
                bytes = &rest[2..];
            }
            None => {
                decoded.push(*byte);
                bytes = rest;
            }
        }
    }
    decoded
}
