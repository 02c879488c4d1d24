//! Providers that go on sending: entity by entity in order, with repeats, through whatever happens.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Provider, stripe_event};

/// How long one event may be refused until the test fails.
const PATIENCE: Duration = Duration::from_secs(90);
/// Entities of one sender.
const ENTITIES: usize = 4;
/// Each of so many accepted events is sent once more.
const REPEAT_EVERY: usize = 5;

/// Running senders.
pub(crate) struct Load {
    stop: CancellationToken,
    counts: Arc<Counts>,
    senders: JoinSet<HashSet<String>>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    refused: AtomicUsize,
}

impl Load {
    /// Starts so many senders, each with four entities of its own and a pause between its events.
    pub(crate) fn start(provider: &Provider, senders: usize, pause: Duration) -> Self {
        let (stop, counts) = (CancellationToken::new(), Arc::<Counts>::default());
        let mut tasks = JoinSet::new();
        for sender in 0..senders {
            let (provider, stop, counts) = (provider.clone(), stop.clone(), Arc::clone(&counts));
            tasks.spawn(send_until(provider, sender, pause, stop, counts));
        }
        Self { stop, counts, senders: tasks }
    }

    /// How many events were accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// How often an event was refused, or its answer did not come.
    pub(crate) fn refused(&self) -> usize {
        self.counts.refused.load(Ordering::SeqCst)
    }

    /// Ends the senders; gives the receipts of everything that was accepted.
    pub(crate) async fn finish(self) -> HashSet<String> {
        self.stop.cancel();
        self.senders.join_all().await.into_iter().flatten().collect()
    }
}

async fn send_until(
    provider: Provider,
    sender: usize,
    pause: Duration,
    stop: CancellationToken,
    counts: Arc<Counts>,
) -> HashSet<String> {
    let mut receipts = HashSet::new();
    let mut number = 0;
    while !stop.is_cancelled() {
        let entity = format!("entity-{sender}-{}", number % ENTITIES);
        let body = stripe_event(&format!("evt_{sender}_{number}"), &entity, number / ENTITIES);
        let signed = provider.sign(&body);
        let first = match provider.try_post(&signed).await {
            Some(answer) if answer.is_success() => answer,
            _ => {
                counts.refused.fetch_add(1, Ordering::SeqCst);
                provider.deliver(&signed, PATIENCE).await
            }
        };
        let receipt = first.field("receipt_id");
        assert!(receipts.insert(receipt.clone()), "a receipt belongs to one event");
        if number % REPEAT_EVERY == 0
            && let Some(answer) = provider.try_post(&signed).await
            && answer.is_success()
        {
            let said = (answer.field("status"), answer.field("receipt_id"));
            assert_eq!(said, ("duplicate".to_owned(), receipt), "a repeat finds the first one's receipt");
        }
        counts.accepted.fetch_add(1, Ordering::SeqCst);
        number += 1;
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    receipts
}
