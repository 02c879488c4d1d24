//! A TCP proxy that breaks, delays, narrows and spreads connections on demand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::webhook::now;

/// Most bytes that are copied at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// How many chunks a narrow connection passes in a second.
const CHUNKS_PER_SECOND: usize = 20;

/// What happens to bytes on their way in one direction.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Whether they pass; if not they wait, and so does the sender, as when packets are lost.
    passes: bool,
    delay: Duration,
    bytes_per_second: Option<usize>,
}

const FREE: Way = Way { passes: true, delay: Duration::ZERO, bytes_per_second: None };
const BLOCKED: Way = Way { passes: false, delay: Duration::ZERO, bytes_per_second: None };

/// What happens to connections.
#[derive(Clone, Copy, Debug)]
struct Conditions {
    /// They are closed, and new ones too.
    cut: bool,
    /// How often all connections were closed at once; new ones live.
    severed: usize,
    requests: Way,
    answers: Way,
}

/// What the sight of certain bytes on their way to the server does.
#[derive(Clone, Debug)]
struct Trap {
    bytes: Vec<u8>,
    /// Whether connections are cut, without the bytes. Otherwise the bytes pass, and no answer from then on.
    cut: bool,
}

/// A connection that was passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    /// When, microseconds of this machine's clock.
    pub(crate) at: i64,
    /// To which of the servers.
    pub(crate) upstream: usize,
}

struct Shared {
    upstreams: Vec<String>,
    next: AtomicUsize,
    conditions: watch::Sender<Conditions>,
    trap: Mutex<Option<Trap>>,
    snapped: AtomicUsize,
    opened: Mutex<Vec<Opened>>,
}

/// A TCP proxy before one server, or before several that take turns.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Before the server at `upstream`, `host:port`.
    pub(crate) async fn start(upstream: String) -> Self {
        Self::over(vec![upstream], 0).await
    }

    /// Before several servers: each connection goes to the next one that takes it, beginning with number `first`.
    pub(crate) async fn over(upstreams: Vec<String>, first: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let conditions = Conditions { cut: false, severed: 0, requests: FREE, answers: FREE };
        let shared = Arc::new(Shared {
            upstreams,
            next: AtomicUsize::new(first),
            conditions: watch::Sender::new(conditions),
            trap: Mutex::new(None),
            snapped: AtomicUsize::new(0),
            opened: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Its address, for HTTP.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Closes all connections and every new one.
    pub(crate) fn cut(&self) {
        self.change(|now| now.cut = true);
    }

    /// Closes all connections; new ones pass.
    pub(crate) fn sever(&self) {
        self.change(|now| now.severed += 1);
    }

    /// Lets nothing pass, and closes nothing.
    pub(crate) fn blackhole(&self) {
        self.change(|now| (now.requests, now.answers) = (BLOCKED, BLOCKED));
    }

    /// Requests pass, answers do not, and nothing is closed.
    pub(crate) fn mute(&self) {
        self.change(|now| now.answers = BLOCKED);
    }

    /// Answers pass, requests do not, and nothing is closed.
    pub(crate) fn deafen(&self) {
        self.change(|now| now.requests = BLOCKED);
    }

    /// Answers come later by so much.
    pub(crate) fn delay_answers(&self, delay: Duration) {
        self.change(|now| now.answers.delay = delay);
    }

    /// Answers come no faster than this.
    pub(crate) fn narrow_answers(&self, bytes_per_second: usize) {
        self.change(|now| now.answers.bytes_per_second = Some(bytes_per_second));
    }

    /// Lets everything pass again.
    pub(crate) fn heal(&self) {
        *self.shared.trap.lock().expect("not poisoned") = None;
        self.change(|now| *now = Conditions { cut: false, requests: FREE, answers: FREE, ..*now });
    }

    /// Cuts as soon as these bytes are on their way to the server, which does not see them.
    pub(crate) fn cut_before(&self, bytes: &str) {
        self.set_trap(bytes, true);
    }

    /// Passes these bytes to the server, and from then on no answer.
    pub(crate) fn mute_after(&self, bytes: &str) {
        self.set_trap(bytes, false);
    }

    /// Whether the trap has snapped.
    pub(crate) fn has_snapped(&self) -> bool {
        self.shared.snapped.load(Ordering::SeqCst) > 0
    }

    /// Every connection so far.
    pub(crate) fn opened(&self) -> Vec<Opened> {
        self.shared.opened.lock().expect("not poisoned").clone()
    }

    fn set_trap(&self, bytes: &str, cut: bool) {
        self.shared.snapped.store(0, Ordering::SeqCst);
        let trap = Trap { bytes: bytes.as_bytes().to_vec(), cut };
        *self.shared.trap.lock().expect("not poisoned") = Some(trap);
    }

    fn change(&self, change: impl FnOnce(&mut Conditions)) {
        self.shared.conditions.send_modify(change);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut conditions = shared.conditions.subscribe();
            let born = conditions.borrow().severed;
            tokio::select! {
                biased;
                _ = conditions.wait_for(|now| now.cut || now.severed != born) => {}
                () = carry(client, &shared) => {}
            }
        });
    }
}

/// Passes a connection on, until one of its sides ends it.
async fn carry(client: TcpStream, shared: &Shared) {
    let mut conditions = shared.conditions.subscribe();
    // Nobody gets through to the server while one direction is blocked: a handshake needs both.
    if conditions.wait_for(|now| now.requests.passes && now.answers.passes).await.is_err() {
        return;
    }
    let Some(server) = connect(shared).await else { return };
    // Small frames must not wait for one another.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pump(from_client, to_server, shared, true) => {}
        () = pump(from_server, to_client, shared, false) => {}
    }
}

async fn connect(shared: &Shared) -> Option<TcpStream> {
    let count = shared.upstreams.len();
    for _ in 0..count {
        let upstream = shared.next.fetch_add(1, Ordering::SeqCst) % count;
        if let Ok(server) = TcpStream::connect(&shared.upstreams[upstream]).await {
            let opened = Opened { at: now().as_micros(), upstream };
            shared.opened.lock().expect("not poisoned").push(opened);
            return Some(server);
        }
    }
    None
}

/// Copies one direction; ends with the connection.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, is_request: bool) {
    let way = |now: &Conditions| if is_request { now.requests } else { now.answers };
    let mut conditions = shared.conditions.subscribe();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let rate = way(&conditions.borrow()).bytes_per_second;
        let most = rate.map_or(CHUNK_BYTES, |rate| (rate / CHUNKS_PER_SECOND).clamp(1, CHUNK_BYTES));
        let Ok(length @ 1..) = from.read(&mut buffer[..most]).await else { return };
        let chunk = &buffer[..length];
        if is_request && let Some(trap) = sprung(shared, chunk) {
            shared.snapped.fetch_add(1, Ordering::SeqCst);
            if trap.cut {
                shared.conditions.send_modify(|now| now.cut = true);
                return;
            }
            shared.conditions.send_modify(|now| now.answers = BLOCKED);
        }
        let Ok(now) = conditions.wait_for(|now| way(now).passes).await.map(|now| *now) else { return };
        let second = Duration::from_secs(1);
        let pause = way(&now).bytes_per_second.map_or(Duration::ZERO, |rate| {
            second * u32::try_from(length).expect("small") / u32::try_from(rate).expect("a narrow rate")
        });
        tokio::time::sleep(way(&now).delay + pause).await;
        if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}

/// The trap, once, when its bytes are in this chunk.
fn sprung(shared: &Shared, chunk: &[u8]) -> Option<Trap> {
    let mut trap = shared.trap.lock().expect("not poisoned");
    let found =
        trap.as_ref().is_some_and(|trap| chunk.windows(trap.bytes.len()).any(|part| part == trap.bytes));
    if found { trap.take() } else { None }
}
