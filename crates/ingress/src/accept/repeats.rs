//! Repeats that the pre-filter recognised: they never reach the store's accept, and are counted on their receipts a moment
//! later, many at a time. Counts may be lost in a crash; answers do not depend on them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portero_store::ErrorKind;
use portero_types::ReceiptId;

use super::Shared;

/// How long repeats are gathered before they are written.
const GATHER: Duration = Duration::from_millis(100);
/// The pause after a write that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Most receipts with repeats that wait; a repeat of a further one is not counted.
const RECEIPTS_MAX: usize = 4_096;

/// Repeats that wait to be written.
#[derive(Default)]
pub(super) struct Repeats(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    counts: HashMap<ReceiptId, u32>,
    /// A task is there that will write them.
    running: bool,
}

impl Repeats {
    /// Adds one; true when a task must be started to write it.
    pub(super) fn add(&self, receipt_id: ReceiptId) -> bool {
        let mut waiting = self.lock();
        waiting.add(receipt_id, 1);
        !std::mem::replace(&mut waiting.running, true)
    }

    /// Everything that waits; nothing also means that the task is over.
    fn take(&self) -> Vec<(ReceiptId, u32)> {
        let mut waiting = self.lock();
        waiting.running = !waiting.counts.is_empty();
        waiting.counts.drain().collect()
    }

    fn put_back(&self, counts: Vec<(ReceiptId, u32)>) {
        let mut waiting = self.lock();
        for (receipt_id, count) in counts {
            waiting.add(receipt_id, count);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // No operation leaves the counts half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, receipt_id: ReceiptId, count: u32) {
        if self.counts.len() < RECEIPTS_MAX || self.counts.contains_key(&receipt_id) {
            let known = self.counts.entry(receipt_id).or_default();
            *known = known.saturating_add(count);
        }
    }
}

/// Writes until nothing waits. While the store is away it keeps what waits, unless the gateway is shutting down.
pub(super) async fn write(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(GATHER).await;
        let counts = shared.repeats.take();
        if counts.is_empty() {
            return;
        }
        let Err(error) = shared.store.count_repeats(&counts).await else { continue };
        tracing::warn!(receipts = counts.len(), %error, "repeats could not be counted");
        // Counted twice would be worse than not at all.
        if error.kind() == ErrorKind::Unavailable && !shared.is_closed() {
            shared.repeats.put_back(counts);
            tokio::time::sleep(PAUSE).await;
        }
    }
}
