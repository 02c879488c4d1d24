//! Looking once more before somebody is refused for what the configuration in memory does not have.

use std::time::Duration;

use tokio::time::Instant;

use super::Directory;

/// Shortest time between two such looks of this process, however many ask.
const EVERY: Duration = Duration::from_millis(250);

/// Longest that anybody waits.
const WITHIN: Duration = Duration::from_secs(1);

impl Directory {
    /// Waits until everything that was committed before the call is in the snapshot: what was made at another gateway a moment
    /// ago, and what its maker was told of. `false` when that could not be had within a second, or when this process is the only
    /// one: what it made itself is in its snapshot before anybody is told, so there is nothing to look for.
    ///
    /// However many call, the store is asked four times a second at most: those who come meanwhile share the next look. Cancel-safe.
    pub async fn catch_up(&self) -> bool {
        if self.0.reporter.is_alone() {
            return false;
        }
        tokio::time::timeout(WITHIN, self.look_for_others()).await.unwrap_or(false)
    }

    async fn look_for_others(&self) -> bool {
        let called = self.0.clocks.now();
        let mut next = self.0.next_catch_up.lock().await;
        if self.was_confirmed_after(called) {
            return true;
        }
        tokio::time::sleep_until(*next).await;
        *next = Instant::now() + EVERY;
        // Who did not wait for it looks for all: they called before it begins.
        self.refresh(called, false).await.is_ok()
    }
}
