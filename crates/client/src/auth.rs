//! Puts the access token on every call.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response, header::AUTHORIZATION};
use tonic::codegen::{Service, StdError};
use tonic::transport::Channel;

use crate::tls::LastFailure;
use crate::token::{Token, TokenError};

/// A channel that asks for the token before each call and sends it as `authorization: Bearer …`.
#[derive(Clone, Debug)]
pub struct Authenticated {
    channel: Channel,
    token: Token,
    last_failure: LastFailure,
}

impl Authenticated {
    pub(crate) fn new(channel: Channel, token: Token, last_failure: LastFailure) -> Self {
        Self { channel, token, last_failure }
    }
}

impl Service<Request<Body>> for Authenticated {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.channel.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The clone takes the place of the channel that was polled ready, which serves this call.
        let clone = self.channel.clone();
        let mut channel = std::mem::replace(&mut self.channel, clone);
        let (token, last_failure) = (self.token.clone(), self.last_failure.clone());
        Box::pin(async move {
            if let Some(token) = token.get().await.map_err(unauthenticated)? {
                let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose_secret()))
                    .map_err(|_| unauthenticated(TokenError::Malformed))?;
                value.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            channel.call(request).await.map_err(|error| match last_failure.get() {
                // The transport knows only that the connection was closed.
                Some(failure) => failure.into(),
                None => error.into(),
            })
        })
    }
}

/// A missing token has the code that the gateway would have answered without one.
fn unauthenticated(error: TokenError) -> StdError {
    tonic::Status::unauthenticated(error.to_string()).into()
}
