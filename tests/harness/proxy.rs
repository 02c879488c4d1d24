//! A TCP proxy that breaks connections on demand.

use std::sync::Arc;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Everything passes.
    Open,
    /// Connections are closed, and new ones too.
    Cut,
    /// Nothing passes in either direction, and nothing is closed.
    Blackhole,
    /// Requests pass, answers do not.
    Mute,
}

/// What the sight of certain bytes on their way to the server does.
#[derive(Clone, Debug)]
struct Trap {
    bytes: Vec<u8>,
    mode: Mode,
    /// Whether the bytes still reach the server.
    forward: bool,
}

struct Shared {
    upstream: String,
    mode: watch::Sender<Mode>,
    trap: Mutex<Option<Trap>>,
}

/// A TCP proxy before one server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Before the server at `upstream`, `host:port`.
    pub(crate) async fn start(upstream: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let shared =
            Arc::new(Shared { upstream, mode: watch::Sender::new(Mode::Open), trap: Mutex::new(None) });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, _accepting: AbortOnDropHandle::new(accepting) }
    }

    /// Closes all connections and every new one.
    pub(crate) fn cut(&self) {
        self.shared.mode.send_replace(Mode::Cut);
    }

    /// Lets nothing pass, and closes nothing.
    pub(crate) fn blackhole(&self) {
        self.shared.mode.send_replace(Mode::Blackhole);
    }

    /// Lets everything pass again.
    pub(crate) fn heal(&self) {
        *self.shared.trap.lock().expect("not poisoned") = None;
        self.shared.mode.send_replace(Mode::Open);
    }

    /// Cuts as soon as these bytes are on their way to the server, which does not see them.
    pub(crate) fn cut_before(&self, bytes: &str) {
        self.set_trap(bytes, Mode::Cut, false);
    }

    /// Passes these bytes to the server, and from then on no answer.
    pub(crate) fn mute_after(&self, bytes: &str) {
        self.set_trap(bytes, Mode::Mute, true);
    }

    fn set_trap(&self, bytes: &str, mode: Mode, forward: bool) {
        let trap = Trap { bytes: bytes.as_bytes().to_vec(), mode, forward };
        *self.shared.trap.lock().expect("not poisoned") = Some(trap);
    }

    /// Whether the trap has snapped.
    pub(crate) fn has_snapped(&self) -> bool {
        *self.shared.mode.borrow() != Mode::Open
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut mode = shared.mode.subscribe();
            // A blackhole takes the connection and says nothing.
            if mode.wait_for(|mode| *mode != Mode::Blackhole).await.is_err_and(|_| true) || is_cut(&shared) {
                return;
            }
            let Ok(server) = TcpStream::connect(&shared.upstream).await else { return };
            // Small frames must not wait for one another.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::select! {
                () = pump(from_client, to_server, &shared, true) => {}
                () = pump(from_server, to_client, &shared, false) => {}
                _ = mode.wait_for(|mode| *mode == Mode::Cut) => {}
            }
        });
    }
}

fn is_cut(shared: &Shared) -> bool {
    *shared.mode.borrow() == Mode::Cut
}

/// Copies one direction; ends with the connection.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, is_request: bool) {
    let mut mode = shared.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        let chunk = &buffer[..length];
        if is_request && let Some(trap) = sprung(shared, chunk) {
            // In a block's answer may be part of the commit: only what comes after the sight counts.
            if trap.forward {
                shared.mode.send_replace(trap.mode);
                if to.write_all(chunk).await.is_err() {
                    return;
                }
                continue;
            }
            shared.mode.send_replace(trap.mode);
            return;
        }
        let passes = |mode: &Mode| match mode {
            Mode::Open => true,
            Mode::Mute => is_request,
            Mode::Cut | Mode::Blackhole => false,
        };
        if mode.wait_for(passes).await.is_err() || to.write_all(chunk).await.is_err() {
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
