//! Hints between gateways: what was committed here is told to the others, coalesced, and what they tell wakes the watchers.
//!
//! A hint may be lost at any time; polling is the truth.

use std::sync::Arc;
use std::time::Duration;

use portero_store::Hint;
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::shared::Shared;

/// At most one hint of our commits in this time.
const TELL_EVERY: Duration = Duration::from_millis(50);
/// How soon a broken connection is made anew.
const LISTEN_AGAIN: Duration = Duration::from_millis(250);

/// Tells the other gateways that the log grew, until `stop`.
pub(crate) async fn tell(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = shared.tell_of_log.notified() => {}
        }
        if let Err(error) = shared.store.hint(Hint::Log).await {
            tracing::debug!(%error, "other gateways were not told of new events; they find them by polling");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(TELL_EVERY) => {}
        }
    }
}

/// Listens to hints and wakes those who wait for them, until `stop`.
pub(crate) async fn listen(shared: Arc<Shared>, stop: CancellationToken) {
    let mut told = false;
    loop {
        let Some(error) = stop.run_until_cancelled(listen_once(&shared, &mut told)).await else { return };
        if !told {
            tracing::warn!(%error, "hints of other gateways cannot be listened to; polling goes on");
        }
        told = true;
        metrics::listener_broke();
        // What was told meanwhile is lost.
        shared.look_at_log.notify_one();
        shared.look_at_roll.notify_one();
        shared.directory.look();
        if stop.run_until_cancelled(tokio::time::sleep(LISTEN_AGAIN)).await.is_none() {
            return;
        }
    }
}

/// Listens until the connection breaks.
async fn listen_once(shared: &Shared, told: &mut bool) -> portero_store::Error {
    let mut hints = match shared.store.listen().await {
        Ok(hints) => hints,
        Err(error) => return error,
    };
    *told = false;
    // Between the last connection and this one hints may have been lost.
    shared.look_at_log.notify_one();
    shared.look_at_roll.notify_one();
    shared.directory.look();
    loop {
        match hints.next().await {
            Ok(Hint::Log) => shared.look_at_log.notify_one(),
            Ok(Hint::Lanes) => shared.look_at_roll.notify_one(),
            Ok(Hint::Config) => shared.directory.look(),
            Err(error) => return error,
        }
    }
}
