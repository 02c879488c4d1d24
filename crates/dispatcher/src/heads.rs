//! Watches the log's heads: a hint after a commit of our own wakes it at once, polling finds everyone else's commits.
//!
//! Polling is the truth; a hint only shortens it. The interval is short while entries keep coming and grows while none do.

use std::sync::Arc;
use std::time::Duration;

use portero_store::DynStore;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

const BUSY: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_millis(200);

/// Publishes the last position of each shard until `stop`.
pub(crate) async fn watch_heads(
    store: DynStore,
    hint: Arc<Notify>,
    heads: watch::Sender<Vec<u64>>,
    stop: CancellationToken,
) {
    let mut interval = BUSY;
    let mut away = false;
    loop {
        match store.heads().await {
            Ok(fresh) => {
                away = false;
                let moved = heads.send_if_modified(|known| {
                    let moved = *known != fresh;
                    known.clone_from(&fresh);
                    moved
                });
                interval = if moved { BUSY } else { (interval * 2).min(IDLE) };
            }
            Err(error) => {
                if !away {
                    tracing::warn!(%error, "the log cannot be read; delivery waits until it can");
                }
                away = true;
                interval = IDLE;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = hint.notified() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}
