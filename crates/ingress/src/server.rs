//! Connections: accepting them within a bound, speaking HTTP/1.1 and HTTP/2 on them, and closing them gracefully.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use portero_tls::{Refused, Secured, ServerTls, turn_away as turn_away_plain};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::answer::{needs_tls, one_connection_too_many};
use crate::config::EdgeConfig;
use crate::edge::Edge;
use crate::limits::client::Client;
use crate::limits::in_flight::Held;
use crate::metrics::OpenConnection;
use crate::sniff::{self, Version};

/// Pause after the system had no connection to give (for want of file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long an idle connection that was asked to close may take.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Serves the edge on a listener until `shutdown`, then closes gracefully. With `tls` the port takes nothing else; the
/// handshake counts against [`EdgeConfig::connections_max`] and must be done within [`EdgeConfig::header_timeout`].
///
/// After `shutdown` no connection is taken any more; open ones finish the requests they have begun, within
/// [`EdgeConfig::close_timeout`], and are then cut. It returns when every request whose body was read is decided, so
/// nothing that a client was promised depends on tasks that still run. To keep taking connections for a while after a
/// termination signal, cancel `shutdown` later. A connection whose client is no longer trusted (a certificate that ended or
/// was revoked, another authority) closes in the same way, within [`portero_tls::LEAVE_WITHIN`].
///
/// Not cancel-safe: dropping it cuts every connection.
pub async fn serve(listener: TcpListener, tls: Option<ServerTls>, edge: Edge, shutdown: CancellationToken) {
    let config = Arc::clone(edge.config());
    let slots = Arc::new(Semaphore::new(config.connections_max));
    let of_address = Held::new(config.connections_per_address_max);
    let connections = TaskTracker::new();
    // Dropped with this future, it ends every connection.
    let cut = CancellationToken::new();
    let _cut_on_drop = cut.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                report_accept_error(&error).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            turn_away(&stream, tls.is_some(), &edge);
            continue;
        };
        // A trusted proxy brings everybody's connections.
        let wanted = usize::from(!config.trusted_proxies.contain(peer));
        let Some(part) = of_address.take(Client::of(peer), wanted) else {
            crate::metrics::limited("address_connections");
            turn_away(&stream, tls.is_some(), &edge);
            continue;
        };
        let (tls, edge, shutdown, cut) = (tls.clone(), edge.clone(), shutdown.clone(), cut.clone());
        let streams = connections.clone();
        connections.spawn(async move {
            let _open = (slot, part, OpenConnection::count());
            tokio::select! {
                () = cut.cancelled() => {}
                () = connection(stream, peer, tls, edge, shutdown, streams) => {}
            }
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(config.close_timeout, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections did not finish in time and are cut");
        cut.cancel();
        connections.wait().await;
    }
    edge.drain().await;
}

async fn report_accept_error(error: &io::Error) {
    use io::ErrorKind;
    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) {
        // The peer left while it was waiting; the next one is not affected.
        return;
    }
    tracing::error!(error = %error, "no connection can be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Answers without reading, and without waiting when the socket would block. Where TLS is spoken it only closes: nobody
/// there understands plain words.
fn turn_away(stream: &TcpStream, speaks_tls: bool, edge: &Edge) {
    crate::metrics::request("overloaded");
    if speaks_tls {
        return;
    }
    // A peer that does not get the words still gets the close.
    let _ = stream.try_write(&one_connection_too_many(edge.new_request_id()));
}

async fn connection(
    stream: TcpStream,
    peer: IpAddr,
    tls: Option<ServerTls>,
    edge: Edge,
    shutdown: CancellationToken,
    streams: TaskTracker,
) {
    // Answers are small and complete: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let deadline = Instant::now() + edge.config().header_timeout;
    let Some(tls) = tls else {
        let (read, write) = stream.into_split();
        return speak((read, write), peer, None, edge, shutdown, streams).await;
    };
    let handshake = tokio::select! {
        biased;
        handshake = tls.accept(stream, deadline) => handshake,
        () = shutdown.cancelled() => return,
    };
    match handshake {
        Ok(Secured { stream, trust }) => {
            let agreed = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Some(Version::Http2),
                Some(_) => Some(Version::Http1),
                None => None,
            };
            let (read, write) = tokio::io::split(stream);
            let leave = shutdown.child_token();
            let speaking = speak((read, write), peer, agreed, edge, leave.clone(), streams);
            trust.watch(&leave, speaking).await;
        }
        Err(Refused::Plain(stream)) => {
            crate::metrics::request("tls_required");
            turn_away_plain(stream, &needs_tls(edge.new_request_id())).await;
        }
        Err(_) => {}
    }
}

/// Speaks HTTP: the version that was agreed on, or the one that the first bytes tell.
async fn speak<R, W>(
    (mut read, write): (R, W),
    peer: IpAddr,
    agreed: Option<Version>,
    edge: Edge,
    shutdown: CancellationToken,
    streams: TaskTracker,
) where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let config = Arc::clone(edge.config());
    let sniffing = timeout_at(Instant::now() + config.header_timeout, sniff::version(&mut read));
    let (prefix, sniffed) = tokio::select! {
        biased;
        sniffed = sniffing => match sniffed {
            Ok(Some(sniffed)) => sniffed,
            Ok(None) | Err(_) => return,
        },
        () = shutdown.cancelled() => return,
    };
    let version = agreed.unwrap_or(sniffed);
    let io = TokioIo::new(tokio::io::join(io::Cursor::new(prefix).chain(read), write));
    let activity = Arc::new(Activity::new());
    let service = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let begun = Activity::begin(&activity);
            let edge = edge.clone();
            async move {
                let response = edge.handle(request, Some(peer)).await;
                drop(begun);
                Ok::<_, Infallible>(response)
            }
        })
    };
    match version {
        Version::Http1 => {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(config.idle_timeout)
                .half_close(true)
                .max_buf_size(usize::try_from(config.head_bytes_max.max(8 * 1024)).unwrap_or(64 * 1024))
                .serve_connection(io, service);
            drive(connection, &activity, &config, &shutdown).await;
        }
        Version::Http2 => {
            let connection = http2::Builder::new(TrackedExecutor(streams))
                .timer(TokioTimer::new())
                .max_concurrent_streams(config.http2_streams_max)
                .max_header_list_size(config.head_bytes_max)
                .keep_alive_interval(Some(Duration::from_secs(20)))
                .keep_alive_timeout(Duration::from_secs(10))
                .serve_connection(io, service);
            drive(connection, &activity, &config, &shutdown).await;
        }
    }
}

/// Runs a connection until it ends, is idle for too long, or finishes after the shutdown began.
async fn drive<C: GracefulConnection>(
    connection: C,
    activity: &Activity,
    config: &EdgeConfig,
    shutdown: &CancellationToken,
) {
    let mut connection = pin!(connection);
    let mut stopping = false;
    let mut closing_since = None;
    loop {
        let check_at = match closing_since {
            Some(since) => since + CLOSE_GRACE,
            None => activity.idle_until(config),
        };
        tokio::select! {
            // How it ended is the peer's affair: whatever was begun runs in tasks of its own.
            _ = connection.as_mut() => return,
            () = shutdown.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep_until(check_at) => {
                if activity.idle_until(config) > Instant::now() {
                    closing_since = None;
                } else if closing_since.is_some() {
                    return;
                } else {
                    closing_since = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// What a connection is doing.
struct Activity {
    in_flight: AtomicUsize,
    seen_request: AtomicBool,
    last_change: Mutex<Instant>,
}

impl Activity {
    fn new() -> Self {
        Self {
            in_flight: AtomicUsize::new(0),
            seen_request: AtomicBool::new(false),
            last_change: Mutex::new(Instant::now()),
        }
    }

    fn begin(this: &Arc<Self>) -> InFlight {
        this.in_flight.fetch_add(1, Ordering::SeqCst);
        this.seen_request.store(true, Ordering::SeqCst);
        InFlight(Arc::clone(this))
    }

    /// Until when the connection may stay as it is, unless it changes.
    fn idle_until(&self, config: &EdgeConfig) -> Instant {
        let last_change = *self.last_change.lock().unwrap_or_else(PoisonError::into_inner);
        if self.in_flight.load(Ordering::SeqCst) > 0 {
            return Instant::now() + config.idle_timeout;
        }
        let patience = if self.seen_request.load(Ordering::SeqCst) {
            config.idle_timeout
        } else {
            config.header_timeout
        };
        last_change + patience
    }
}

/// One request in flight.
struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        *self.0.last_change.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs the streams of HTTP/2 connections where the shutdown can wait for them.
#[derive(Clone)]
struct TrackedExecutor(TaskTracker);

impl<F> hyper::rt::Executor<F> for TrackedExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
