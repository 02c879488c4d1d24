//! One connection of the gRPC port: its bytes, what its calls know of it, and how it ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{FutureExt as _, StreamExt as _, future, stream};
use portero_tls::{Secured, TlsStream, Trust};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use crate::metrics::OpenConnection;
use crate::unproven::{Place, Proof};

/// A connection that is ready to be served.
pub(crate) struct Connection {
    io: Io,
    trust: Trust,
    open: OpenConnection,
    /// Its place among those over which nobody has shown a token yet.
    place: Place,
}

/// What calls know of their connection.
#[derive(Clone, Default)]
pub(crate) struct Peer {
    /// Cancelled when its client is no longer trusted: calls that go on have to end.
    pub(crate) distrusted: CancellationToken,
    /// Told when a call shows a good token.
    pub(crate) proof: Proof,
}

impl Connection {
    /// One that is spoken to plainly.
    pub(crate) fn plain(stream: TcpStream, open: OpenConnection, place: Place) -> Self {
        Self { io: Io::Plain(stream), trust: Trust::default(), open, place }
    }

    /// One by TLS.
    pub(crate) fn secured(Secured { stream, trust }: Secured, open: OpenConnection, place: Place) -> Self {
        Self { io: Io::Tls(Box::new(stream)), trust, open, place }
    }

    /// Serves it to its end. Each connection has a server of its own, so that one can be told to go away while others stay:
    /// all at `shutdown`, and each when its client is no longer trusted or has shown no token for too long; then what is not
    /// over [`portero_tls::LEAVE_WITHIN`] later, or sooner of a stranger's, is cut. Dropping it cuts the connection.
    pub(crate) async fn serve(self, server: Server, routes: Routes, shutdown: CancellationToken) {
        let (distrusted, cut, gone) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let proof = Proof::default();
        let wire = Wire {
            io: self.io,
            peer: Peer { distrusted: distrusted.clone(), proof: proof.clone() },
            cut: Box::pin(cut.clone().cancelled_owned()),
            _gone: gone.clone().drop_guard(),
            _open: self.open,
        };
        // Nothing else ever comes; when the connection is gone, there is nothing to wait for.
        let until_gone = gone.cancelled_owned().into_stream().filter_map(|()| future::ready(None));
        let incoming = stream::iter([Ok::<_, io::Error>(wire)]).chain(until_gone);
        let (leave, too_long) = (distrusted.clone(), CancellationToken::new());
        let stranger = self.place.watch(proof, too_long.clone());
        let signal = async move {
            tokio::select! {
                () = leave.cancelled() => {}
                () = too_long.cancelled() => {}
                () = shutdown.cancelled() => {}
            }
        };
        let serving = async {
            tokio::select! {
                // How it ended is the peer's affair.
                _ = server.serve_with_incoming_shutdown(routes, incoming, signal) => {}
                () = stranger => {}
            }
        };
        let _cut = cut.drop_guard();
        self.trust.watch(&distrusted, serving).await;
    }
}

/// The bytes of a connection, counted while it lives.
struct Wire {
    io: Io,
    peer: Peer,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _gone: DropGuard,
    _open: OpenConnection,
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    /// An error once the connection is cut. Asked by reads and by writes, since a peer may leave either waiting.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Connected for Wire {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_cut(cx)?;
        match &mut this.io {
            Io::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Io::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.poll_cut(cx)?;
        match &mut this.io {
            Io::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Io::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_cut(cx)?;
        match &mut this.io {
            Io::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Io::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_cut(cx)?;
        match &mut this.io {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Io::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.poll_cut(cx)?;
        match &mut this.io {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Io::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
