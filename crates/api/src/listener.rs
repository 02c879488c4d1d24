//! Connections of the gRPC port: taken within a bound, and handed on once their handshake is done. A slow handshake holds
//! nobody up but itself.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use portero_tls::{Refused, ServerTls, turn_away};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::connection::Connection;
use crate::metrics::{self, OpenConnection};
use crate::unproven::Unproven;

/// Open connections, unless it is said otherwise.
const CONNECTIONS_MAX: usize = 10_000;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that wait for the server to take them.
const READY_MAX: usize = 64;
/// Pause after the system had no connection to give (for want of file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a client without TLS may take to hear why it is refused.
const FAREWELL: Duration = Duration::from_secs(2);
const TLS_ONLY: &str = "this port takes TLS only: use https:// in the endpoint";
const TLS_ONLY_HTTP1: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n\
    content-length: 55\r\n\r\nthis port takes TLS only: use https:// in the endpoint\n";

/// A bound port, and how it is spoken to.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<ServerTls>,
    connections_max: usize,
}

impl Listener {
    /// With `tls` the port takes nothing else. Connections above `connections_max` are closed at once.
    #[must_use]
    pub const fn new(tcp: TcpListener, tls: Option<ServerTls>, connections_max: usize) -> Self {
        Self { tcp, tls, connections_max }
    }

    /// Serves its connections until `shutdown`; then takes no more and lets those that are open finish their calls.
    pub(crate) async fn serve(
        self,
        server: Server,
        routes: Routes,
        (keepalive_every, keepalive_timeout): (Duration, Duration),
        shutdown: CancellationToken,
    ) {
        let mut connections = self.connections(keepalive_every, keepalive_timeout);
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = serving.join_next() => {}
                Some(connection) = connections.waiting.recv() => {
                    serving.spawn(connection.serve(server.clone(), routes.clone(), shutdown.clone()));
                }
            }
        }
        drop(connections);
        while serving.join_next().await.is_some() {}
    }

    /// Its connections, ready to be served.
    fn connections(self, keepalive_every: Duration, keepalive_timeout: Duration) -> Connections {
        // Set on the listener: the builder's own settings for connections do not reach one that it did not open.
        let incoming = TcpIncoming::from(self.tcp)
            .with_nodelay(Some(true))
            .with_keepalive(Some(keepalive_every))
            .with_keepalive_interval(Some(keepalive_timeout));
        let (ready, waiting) = mpsc::channel(READY_MAX);
        let accepting = tokio::spawn(accept(incoming, self.tls, self.connections_max, ready));
        Connections { waiting, _accepting: AbortOnDropHandle::new(accepting) }
    }
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self::new(tcp, None, CONNECTIONS_MAX)
    }
}

/// Connections as they become ready. Dropping it stops accepting and ends handshakes under way.
struct Connections {
    waiting: mpsc::Receiver<Connection>,
    _accepting: AbortOnDropHandle<()>,
}

async fn accept(
    mut incoming: TcpIncoming,
    tls: Option<ServerTls>,
    connections_max: usize,
    ready: mpsc::Sender<Connection>,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let unproven = Unproven::new(connections_max);
    let mut handshakes = JoinSet::new();
    while let Some(accepted) = incoming.next().await {
        while handshakes.try_join_next().is_some() {}
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                report_accept_error(&error).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            metrics::connection_refused();
            continue;
        };
        // One that is gone already has no address.
        let Ok(peer) = stream.peer_addr() else { continue };
        let Some(place) = unproven.admit(peer.ip()) else {
            metrics::connection_refused();
            continue;
        };
        let open = OpenConnection::count(slot);
        match tls.clone() {
            None => {
                if ready.send(Connection::plain(stream, open, place)).await.is_err() {
                    return;
                }
            }
            Some(tls) => {
                let ready = ready.clone();
                handshakes.spawn(async move {
                    match tls.accept(stream, Instant::now() + HANDSHAKE_TIMEOUT).await {
                        Ok(secured) => {
                            // Nobody waits for it any more when the server stops.
                            let _ = ready.send(Connection::secured(secured, open, place)).await;
                        }
                        Err(Refused::Plain(stream)) => tell_plain(stream).await,
                        Err(_) => {}
                    }
                });
            }
        }
    }
}

async fn report_accept_error(error: &io::Error) {
    use io::ErrorKind;
    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) {
        // The peer left while it was waiting; the next one is not affected.
        return;
    }
    tracing::error!(%error, "no gRPC connection can be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Answers a client that speaks plain HTTP/2 by a status, so that it can say what is wrong; others by plain words.
async fn tell_plain(stream: TcpStream) {
    let mut first = [0; 3];
    let seen = stream.peek(&mut first).await.unwrap_or(0);
    if first[..seen] != b"PRI"[..seen] {
        return turn_away(stream, TLS_ONLY_HTTP1).await;
    }
    let service =
        service_fn(async |_| Ok::<_, Infallible>(Status::failed_precondition(TLS_ONLY).into_http::<Body>()));
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(4)
        .serve_connection(TokioIo::new(stream), service);
    // How it ended is the peer's affair.
    let _ = timeout(FAREWELL, connection).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_plain_words_is_true() {
        let text = String::from_utf8_lossy(TLS_ONLY_HTTP1);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head} {}", body.len());
        assert!(body.contains(TLS_ONLY));
    }

    #[tokio::test]
    async fn connections_above_the_bound_are_closed_and_others_go_on() {
        use tokio::io::AsyncReadExt as _;
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = tcp.local_addr().expect("bound");
        let every = Duration::from_secs(10);
        let mut connections = Listener::new(tcp, None, 1).connections(every, every);
        let _first = TcpStream::connect(address).await.expect("connected");
        let served = connections.waiting.recv().await.expect("served");
        let mut second = TcpStream::connect(address).await.expect("connected");
        assert_eq!(second.read(&mut [0; 1]).await.expect("closed"), 0);
        drop(served);
        let _third = TcpStream::connect(address).await.expect("connected");
        connections.waiting.recv().await.expect("there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_shows_no_token_is_closed_whatever_else_it_says() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = tcp.local_addr().expect("bound");
        let (every, shutdown) = (Duration::from_secs(600), CancellationToken::new());
        let routes = Routes::default().prepare();
        let serving =
            Listener::new(tcp, None, 100).serve(Server::builder(), routes, (every, every), shutdown.clone());
        let serving = tokio::spawn(serving);
        for words in [&b""[..], b"PRI * HT", PREFACE] {
            let began = Instant::now();
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(words).await.expect("sent");
            let closed = timeout(Duration::from_secs(60), stream.read_to_end(&mut Vec::new())).await;
            assert!(closed.is_ok() && began.elapsed() >= Duration::from_secs(30), "{:?}", began.elapsed());
        }
        shutdown.cancel();
        serving.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_connection_that_is_not_served_any_more_is_cut_whatever_its_peer_does() {
        use tokio::io::AsyncReadExt as _;
        let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = tcp.local_addr().expect("bound");
        let every = Duration::from_secs(10);
        let mut connections = Listener::new(tcp, None, 1).connections(every, every);
        let mut peer = TcpStream::connect(address).await.expect("connected");
        let connection = connections.waiting.recv().await.expect("served");
        let serving = connection.serve(Server::builder(), Routes::default(), CancellationToken::new());
        // Long enough for the server below to have a task of its own for it.
        assert!(timeout(Duration::from_millis(100), serving).await.is_err(), "it goes on");
        let closed = timeout(Duration::from_secs(10), peer.read_to_end(&mut Vec::new())).await;
        assert!(closed.is_ok(), "the peer hears of it");
        let _next = TcpStream::connect(address).await.expect("connected");
        connections.waiting.recv().await.expect("its place is free");
    }
}
