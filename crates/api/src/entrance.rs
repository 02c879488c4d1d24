//! What stands before a service: nothing of a call is read before its token is.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;

use crate::authenticate::Gate;
use crate::connection::Peer;
use crate::turns::Turns;

/// A service that only callers with a good token reach. Without one, a stranger learns the reason and makes this process read
/// no message of his. Whom the token names goes along with the call.
#[derive(Clone)]
pub(crate) struct Entrance<S> {
    inner: S,
    gate: Gate,
    turns: Option<Turns>,
}

impl<S> Entrance<S> {
    pub(crate) const fn new(inner: S, gate: Gate) -> Self {
        Self { inner, gate, turns: None }
    }

    /// The same, in which no caller has others wait for more than a few of its calls.
    pub(crate) fn in_turns(self) -> Self {
        Self { turns: Some(Turns::default()), ..self }
    }
}

impl<S: NamedService> NamedService for Entrance<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Entrance<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The one that is ready is used up; the clone takes its place.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (gate, turns) = (self.gate.clone(), self.turns.clone());
        Box::pin(async move {
            let metadata = MetadataMap::from_headers(request.headers().clone());
            let own = match gate.identity(&metadata).await {
                Ok(own) => own,
                Err(status) => return Ok(status.into_http()),
            };
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.proof.show();
            }
            let turn = match &turns {
                Some(turns) => turns.turn(&own).await.map(Some),
                None => Ok(None),
            };
            match turn {
                Ok(_turn) => {
                    request.extensions_mut().insert(own);
                    inner.call(request).await
                }
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}
