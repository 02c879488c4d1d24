//! The two receivers, and how their parent talks to them.
//!
//! A receiver prints one line of JSON, [`Ready`], once it can be reached, and ends when its standard input ends: so it
//! never outlives its parent.

pub(crate) mod baseline;
pub(crate) mod portero;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// What a receiver needs.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// An empty database, or one that the same receiver has used before.
    #[arg(long, value_name = "URL")]
    pub(crate) postgres_url: String,
    /// The secret that requests are signed with, `whsec_` included.
    #[arg(long, value_name = "TEXT")]
    pub(crate) secret: String,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Connections of the plain receiver's pool. Portero keeps its own defaults.
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) baseline_connections: u32,
    /// What to change in Portero.
    #[command(flatten)]
    pub(crate) tuning: Tuning,
}

/// Bounds of Portero's batcher, to try others than the gateway's own.
#[derive(Args, Clone, Copy, Debug, Default, serde::Serialize)]
pub(crate) struct Tuning {
    /// Most commits of one queue in flight, instead of the gateway's own bound.
    #[arg(long, value_name = "N")]
    pub(crate) commits_in_flight: Option<usize>,
    /// One queue for all shards instead of one each.
    #[arg(long)]
    pub(crate) one_queue: bool,
    /// Tell other gateways of commits, as a gateway does: coalesced, on a connection that no commit waits for.
    #[arg(long)]
    pub(crate) hints: bool,
}

/// Where a receiver can be reached.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ready {
    /// Address and port.
    pub(crate) address: SocketAddr,
    /// Path of the one endpoint.
    pub(crate) path: String,
}

/// Takes the address that the receiver will serve.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))
}

/// Tells the parent where this receiver is.
fn tell(listener: &TcpListener, path: String) -> anyhow::Result<()> {
    let ready = Ready { address: listener.local_addr()?, path };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&ready)?)?;
    out.flush().context("telling the address")
}

/// Cancelled when standard input ends.
pub(crate) fn until_parent_ends() -> CancellationToken {
    let token = CancellationToken::new();
    let ended = token.clone();
    // A thread, because nothing can interrupt a read of standard input; it does not keep the process alive.
    std::thread::spawn(move || {
        let mut ignored = [0; 64];
        while matches!(std::io::stdin().read(&mut ignored), Ok(read) if read > 0) {}
        ended.cancel();
    });
    token
}
