//! Connections by TLS, made here rather than by the layers above: they drop what a gateway says when it refuses our
//! certificate, which with TLS 1.3 comes after the handshake.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tonic::codegen::http::Uri;
use tonic::codegen::{Service, StdError};

use super::{Tls, TlsFailure};
use crate::error::Error;

/// The port of `https` where an endpoint names none.
const DEFAULT_PORT: u16 = 443;

/// Why the gateway ended the newest connection after its handshake, if it was for TLS. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFailure(Arc<Mutex<Option<TlsFailure>>>);

impl LastFailure {
    pub(crate) fn get(&self) -> Option<TlsFailure> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, failure: Option<TlsFailure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

/// Makes connections to one gateway.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    tls: Arc<Tls>,
    host: Arc<str>,
    port: u16,
    server_name: ServerName<'static>,
    timeout: Duration,
    last: LastFailure,
}

impl Connector {
    /// To an endpoint. Files are read once to see whether they can be.
    pub(crate) fn new(tls: &Tls, endpoint: &Uri, timeout: Duration) -> Result<Self, Error> {
        tls.config()?;
        let host = endpoint.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = tls.server_name.as_deref().unwrap_or(host);
        let field = if tls.server_name.is_some() { "tls.server_name" } else { "endpoint" };
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| Error::Config { field, rule: "a host name or an address" })?;
        Ok(Self {
            tls: Arc::new(tls.clone()),
            host: host.into(),
            port: endpoint.port_u16().unwrap_or(DEFAULT_PORT),
            server_name,
            timeout,
            last: LastFailure::default(),
        })
    }

    /// The same, with a memory of its own.
    pub(crate) fn apart(&self) -> Self {
        Self { last: LastFailure::default(), ..self.clone() }
    }

    /// What the gateway said last.
    pub(crate) fn last_failure(&self) -> LastFailure {
        self.last.clone()
    }

    async fn connect(self) -> Result<TokioIo<Watched>, StdError> {
        let tls = Arc::clone(&self.tls);
        let config = tokio::task::spawn_blocking(move || tls.config()).await??;
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        // Frames are small: waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let connector = tokio_rustls::TlsConnector::from(config);
        let stream = connector.connect(self.server_name.clone(), stream).await?;
        self.last.set(None);
        Ok(TokioIo::new(Watched { stream, last: self.last }))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Watched>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (connector, within) = (self.clone(), self.timeout);
        Box::pin(async move {
            let connected = tokio::time::timeout(within, connector.connect()).await;
            connected.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        })
    }
}

/// A connection that remembers why TLS ended it.
pub(crate) struct Watched {
    stream: TlsStream<TcpStream>,
    last: LastFailure,
}

impl Watched {
    fn note<T>(&self, outcome: &Poll<io::Result<T>>) {
        if let Poll::Ready(Err(error)) = outcome
            && let Some(failure) = TlsFailure::of(error)
        {
            self.last.set(Some(failure));
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.note(&outcome);
        outcome
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(&outcome);
        outcome
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
