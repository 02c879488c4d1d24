//! Watches the log's heads: a hint after a commit wakes it at once, polling finds what no hint told.
//!
//! Polling is the truth; a hint only shortens it. The interval is short while entries keep coming and grows while none do.

use std::sync::Arc;
use std::time::Duration;

use portero_types::Generation;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::shared::Shared;

const BUSY: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_millis(200);

/// Publishes the last position of each shard until `stop`.
pub(crate) async fn watch_heads(shared: Arc<Shared>, stop: CancellationToken) {
    let mut interval = BUSY;
    let mut away = false;
    // The generation under which the published heads were read.
    let mut under = shared.incarnations.present();
    loop {
        match look(&shared, away, &mut under).await {
            Ok(moved) => {
                away = false;
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
            () = shared.look_at_log.notified() => {}
            () = tokio::time::sleep(interval) => {}
        }
    }
}

/// Reads the heads once; whether they moved.
async fn look(shared: &Shared, was_away: bool, under: &mut Generation) -> portero_store::Result<bool> {
    let store = &*shared.store;
    if was_away {
        // Another server may have taken the database's place.
        recognise(shared).await?;
    }
    let before = shared.incarnations.present();
    let fresh = store.heads().await?;
    let fell = shared.heads.borrow().iter().zip(&fresh).any(|(known, fresh)| fresh < known);
    if fell {
        tracing::error!("the log ends before what was read of it: committed events were lost");
        // Progress that lies beyond is cut first, before its positions are given to others.
        recognise(shared).await?;
        // Unless that did it, or somebody else has noticed.
        shared.incarnations.raise(store, *under).await?;
    }
    *under = if fell { shared.incarnations.present() } else { before };
    Ok(shared.heads.send_if_modified(|known| {
        let moved = *known != fresh;
        known.clone_from(&fresh);
        moved
    }))
}

async fn recognise(shared: &Shared) -> portero_store::Result<()> {
    let asked_at = Instant::now();
    let generation = shared.store.incarnation().await?;
    shared.incarnations.observe(&*shared.store, generation, asked_at).await
}
