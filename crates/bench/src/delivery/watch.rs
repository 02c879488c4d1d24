//! A consumer inside this process, for what must be compared with the load's own clock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use portero_client::{CancellationToken, Delivery, Error, Observer, Outcome, SubscribeOptions};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Window;
use super::site::client;

/// How long a consumer may take to leave.
const PATIENCE: Duration = Duration::from_secs(40);

/// A running consumer that acks everything.
pub(super) struct Watch {
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

/// Whom to consume from, and how.
pub(super) struct Watched<'a> {
    pub(super) endpoint: &'a str,
    pub(super) token: &'a str,
    pub(super) instance: &'a str,
    pub(super) subscription: &'a str,
    pub(super) window: Window,
    /// How long a handler works before it acks.
    pub(super) work: Duration,
    pub(super) observer: Arc<dyn Observer>,
}

impl Watch {
    /// Starts a consumer; `seen` is called as each handler begins.
    pub(super) async fn start(
        watched: Watched<'_>,
        seen: impl Fn(&Delivery) + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let client = client(watched.endpoint, watched.token, watched.instance).await?;
        let stop = CancellationToken::new();
        let options = SubscribeOptions {
            max_inflight_events: watched.window.inflight,
            max_inflight_bytes: 256 << 20,
            concurrency: watched.window.concurrency(),
            shutdown: stop.clone(),
            observer: watched.observer,
            ..SubscribeOptions::default()
        };
        let work = watched.work;
        let consuming = client.subscribe(watched.subscription, options).run(move |delivery| {
            seen(&delivery);
            async move {
                if !work.is_zero() {
                    tokio::time::sleep(work).await;
                }
                Outcome::Ack
            }
        });
        Ok(Self { stop, task: tokio::spawn(consuming) })
    }

    /// Shuts it down gently.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.context("a consumer does not stop")???;
        Ok(())
    }
}
