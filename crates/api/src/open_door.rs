//! What stands before services that anybody may call, health and reflection: what a stranger can make this process hold is
//! small.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::codegen::{Body as HttpBody, BoxFuture, Bytes, Service};
use tonic::server::NamedService;

/// Longest message that is read of a stranger. What is asked for there is a name.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Most calls of one service at once.
const CALLS_MAX: usize = 32;
/// How long a call may take.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// A service whose answers are long, and which therefore has few callers at once and none for ever.
#[derive(Clone)]
pub(crate) struct Few<S> {
    inner: S,
    places: Arc<Semaphore>,
}

impl<S> Few<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, places: Arc::new(Semaphore::new(CALLS_MAX)) }
    }
}

impl<S: NamedService> NamedService for Few<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Few<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let status =
                Status::resource_exhausted("too many such calls are under way; try again in a while");
            return Box::pin(async move { Ok(status.into_http()) });
        };
        let answering = self.inner.call(request);
        Box::pin(async move {
            let until = Box::pin(tokio::time::sleep(CALL_TIME_MAX));
            Ok(answering.await?.map(|body| Body::new(Held { body, until, place: Some(place) })))
        })
    }
}

/// An answer that has a place, until it ends or its time does.
struct Held {
    body: Body,
    until: Pin<Box<Sleep>>,
    /// `None` once it has ended.
    place: Option<OwnedSemaphorePermit>,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.place.is_none() {
            return Poll::Ready(None);
        }
        if self.until.as_mut().poll(cx).is_ready() {
            self.place = None;
            let mut trailers = HeaderMap::new();
            Status::deadline_exceeded("such a call may take 30 seconds").add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() {
            self.place = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.place.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
