//! What the tests stand on: gateways as child processes, providers that sign and retry, consumers that keep books, and a
//! network that can be broken.

mod attentive;
mod authority;
mod bare;
pub(crate) mod canaries;
mod cluster;
mod consumer;
mod consumer_process;
mod gateway;
mod heard;
mod history;
mod internet;
pub(crate) mod issuer;
mod load;
mod log;
mod process;
mod proxy;
mod services;
mod setup;
mod site;
mod webhook;

use std::time::Duration;

use tokio::time::Instant;

pub(crate) use authority::{Authority, Issued};
pub(crate) use bare::{Bare, next_delivery};
pub(crate) use cluster::{Cluster, Member};
pub(crate) use consumer::Consumer;
pub(crate) use consumer_process::{Behaviour, ConsumerProcess};
pub(crate) use gateway::Gateway;
pub(crate) use heard::{Admin, Client, Heard};
pub(crate) use history::{History, Offer, Record, What};
pub(crate) use internet::Internet;
pub(crate) use load::Load;
pub(crate) use process::Process;
pub(crate) use proxy::Proxy;
pub(crate) use services::{PrivateRedis, psql_for_long, redis_url};
pub(crate) use setup::{Setup, Source, plant_path, subscription};
pub(crate) use site::{Kind, Site, free_port, output};
pub(crate) use webhook::{Answer, Provider, Signed, get, now, raw, stripe_event};

/// How often a condition is looked at.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Waits until `check` gives a value, and fails the test when it has given none for `within`.
pub(crate) async fn eventually<T>(
    what: &str,
    within: Duration,
    mut check: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// A name that no other test of this process, and no other process, uses.
pub(crate) fn unique(prefix: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
