//! A TCP proxy before the server that breaks connections at chosen moments.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to the connection that carries a marked message.
#[derive(Clone, Debug)]
enum Fault {
    /// The message does not reach the server.
    Swallow(Vec<u8>),
    /// The message reaches the server, its answer does not come back.
    LoseAnswer(Vec<u8>),
    /// The message reaches the server but for its last five bytes, which say that it ends; then nothing moves any more.
    Freeze(Vec<u8>),
}

impl Fault {
    fn marker(&self) -> &[u8] {
        let (Self::Swallow(marker) | Self::LoseAnswer(marker) | Self::Freeze(marker)) = self;
        marker
    }
}

/// A proxy on a free port; it is gone when this value is dropped.
pub(crate) struct Proxy {
    port: u16,
    fault: Arc<Mutex<Option<Fault>>>,
    swallows_all: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Proxy {
    /// Starts before a server.
    pub(crate) async fn before(address: (String, u16)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let fault: Arc<Mutex<Option<Fault>>> = Arc::default();
        let faults = Arc::clone(&fault);
        let (swallows_all, swallowing) = watch::channel(false);
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&address).await.expect("the server answers");
                let (faults, swallowing) = (Arc::clone(&faults), swallowing.clone());
                connections.spawn(forward(client, server, faults, swallowing));
            }
        });
        Self { port, fault, swallows_all, server }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The next message with these bytes does not reach the server, and its connection breaks.
    pub(crate) fn swallow(&self, marker: &str) {
        *self.fault.lock().expect("lock") = Some(Fault::Swallow(marker.as_bytes().to_vec()));
    }

    /// The next message with these bytes reaches the server; then its connection breaks.
    pub(crate) fn lose_answer(&self, marker: &str) {
        *self.fault.lock().expect("lock") = Some(Fault::LoseAnswer(marker.as_bytes().to_vec()));
    }

    /// The next message with these bytes reaches the server but for its end, and its connection stays open like that.
    pub(crate) fn freeze(&self, marker: &str) {
        *self.fault.lock().expect("lock") = Some(Fault::Freeze(marker.as_bytes().to_vec()));
    }

    /// From now on nothing moves in either direction, and nobody is told.
    pub(crate) fn swallow_all(&self) {
        self.swallows_all.send_replace(true);
    }

    /// Closes the port and all connections.
    pub(crate) async fn stop(mut self) {
        self.server.abort();
        let _ = (&mut self.server).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    faults: Arc<Mutex<Option<Fault>>>,
    mut swallowing: watch::Receiver<bool>,
) {
    let (mut from_client, mut from_server) = (vec![0; 65_536], vec![0; 65_536]);
    let mut answer_is_lost = false;
    loop {
        tokio::select! {
            biased;
            () = async { drop(swallowing.wait_for(|swallows| *swallows).await) } => {
                return std::future::pending().await;
            }
            read = client.read(&mut from_client) => {
                let Ok(count @ 1..) = read else { return };
                let message = &from_client[..count];
                match take_fault(&faults, message) {
                    Some(Fault::Swallow(_)) => return,
                    Some(Fault::LoseAnswer(_)) => answer_is_lost = true,
                    Some(Fault::Freeze(_)) => {
                        let most = count.saturating_sub(5);
                        server.write_all(&message[..most]).await.expect("the server reads");
                        return std::future::pending().await;
                    }
                    None => {}
                }
                if server.write_all(message).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(count @ 1..) = read else { return };
                if answer_is_lost || client.write_all(&from_server[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn take_fault(faults: &Mutex<Option<Fault>>, message: &[u8]) -> Option<Fault> {
    let mut fault = faults.lock().expect("lock");
    let marker = fault.as_ref()?.marker();
    let is_marked = message.windows(marker.len()).any(|window| window == marker);
    if is_marked { fault.take() } else { None }
}
