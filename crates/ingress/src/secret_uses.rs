//! Counts what each secret verifies, in memory, and writes it down every few seconds.
//!
//! A crash loses the counts of the last seconds, and nothing else: no verdict depends on them. When a secret was used last is
//! never given up before: whether it may be retired is judged by that.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portero_store::{Day, ErrorKind, SecretUse, SecretUseStore};
use portero_types::{SecretNo, Timestamp};
use tokio_util::sync::CancellationToken;

/// How often they are written down.
const EVERY: Duration = Duration::from_secs(5);
/// How long the last writing may take when the gateway ends.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// Most secrets (and days) that are counted between two writings; what is beyond is not counted.
const KEPT_MAX: usize = 100_000;
/// Most rows of one writing.
const ROWS_MAX: usize = 5_000;

/// The counts that are not written down yet. Cheap to clone; clones count together.
#[derive(Clone, Debug, Default)]
pub struct SecretUses(Arc<Mutex<Counts>>);

type Counts = HashMap<(SecretNo, Day), SecretUse>;

impl SecretUses {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a request that a secret verified.
    pub fn count(&self, secret_no: SecretNo, at: Timestamp) {
        self.add(SecretUse { secret_no, day: Day::of(at), uses: 1, first_at: at, last_at: at });
    }

    /// Writes them down every few seconds until `stop`, and then what is left.
    pub async fn run(self, store: Arc<dyn SecretUseStore>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => self.write(&*store).await,
            }
        }
        if tokio::time::timeout(LAST_TIMEOUT, self.write(&*store)).await.is_err() {
            tracing::warn!("the last uses of secrets are not counted: the database does not answer");
        }
    }

    /// Writes down what is counted. What surely was not written is kept for the next time.
    async fn write(&self, store: &dyn SecretUseStore) {
        let taken: Vec<SecretUse> = std::mem::take(&mut *self.counts()).into_values().collect();
        let mut parts = taken.chunks(ROWS_MAX);
        while let Some(part) = parts.next() {
            let Err(error) = store.record_secret_uses(part).await else { continue };
            tracing::warn!(secrets = part.len(), %error, "uses of secrets could not be counted");
            match error.kind() {
                ErrorKind::Unavailable => {
                    part.iter().chain(parts.by_ref().flatten()).for_each(|used| self.add(*used));
                }
                ErrorKind::OutcomeUnknown => {
                    part.iter().for_each(|used| self.add(SecretUse { uses: 1, ..*used }));
                }
                ErrorKind::AlreadyExists
                | ErrorKind::NotFound
                | ErrorKind::FailedPrecondition
                | ErrorKind::Exhausted
                | ErrorKind::Refused
                | ErrorKind::Fenced
                | ErrorKind::Corrupt
                | ErrorKind::SchemaMismatch => {}
            }
        }
    }

    fn add(&self, used: SecretUse) {
        let mut counts = self.counts();
        let is_full = counts.len() >= KEPT_MAX;
        match counts.get_mut(&(used.secret_no, used.day)) {
            Some(known) => {
                known.uses = known.uses.saturating_add(used.uses);
                known.first_at = known.first_at.min(used.first_at);
                known.last_at = known.last_at.max(used.last_at);
            }
            None if is_full => {}
            None => {
                counts.insert((used.secret_no, used.day), used);
            }
        }
    }

    /// How much is counted for a secret and not written down yet.
    #[cfg(test)]
    pub(crate) fn counted(&self, secret_no: SecretNo) -> u64 {
        self.counts().values().filter(|used| used.secret_no == secret_no).map(|used| used.uses).sum()
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use portero_store::{Error, Result, RetiringInUse, SecretUsage};

    use super::*;

    /// Keeps what it was given; fails as often as it is told.
    #[derive(Default)]
    struct Written {
        rows: Mutex<Vec<SecretUse>>,
        failures: Mutex<Vec<ErrorKind>>,
    }

    #[async_trait]
    impl SecretUseStore for Written {
        async fn record_secret_uses(&self, uses: &[SecretUse]) -> Result<()> {
            if let Some(kind) = self.failures.lock().expect("unpoisoned").pop() {
                return Err(Error::new(kind, "the test wants it"));
            }
            self.rows.lock().expect("unpoisoned").extend_from_slice(uses);
            Ok(())
        }

        async fn secret_usage(&self, _: &[SecretNo]) -> Result<Vec<SecretUsage>> {
            Ok(Vec::new())
        }

        async fn retiring_in_use(
            &self,
            _: Timestamp,
            _: Timestamp,
            _: Timestamp,
            _: u32,
        ) -> Result<Vec<RetiringInUse>> {
            Ok(Vec::new())
        }

        async fn sweep_secret_uses(&self, _: Day) -> Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn sum(&self, secret: i64) -> u64 {
            let rows = self.rows.lock().expect("unpoisoned");
            rows.iter().filter(|used| used.secret_no == SecretNo(secret)).map(|used| used.uses).sum()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn uses_are_written_every_few_seconds_and_the_last_ones_at_the_end() {
        let (uses, store, stop) = (SecretUses::new(), Arc::new(Written::default()), CancellationToken::new());
        let task =
            tokio::spawn(uses.clone().run(Arc::clone(&store) as Arc<dyn SecretUseStore>, stop.clone()));
        for second in [86_399, 86_400, 86_401] {
            uses.count(SecretNo(1), at(second));
        }
        uses.count(SecretNo(2), at(9));
        tokio::time::advance(EVERY).await;
        while store.sum(2) == 0 {
            tokio::task::yield_now().await;
        }
        let mut rows = store.rows.lock().expect("unpoisoned").clone();
        rows.sort_by_key(|used| (used.secret_no, used.day));
        let row = |no, day, uses, first, last| SecretUse {
            secret_no: SecretNo(no),
            day: Day(day),
            uses,
            first_at: at(first),
            last_at: at(last),
        };
        assert_eq!(rows, [row(1, 0, 1, 86_399, 86_399), row(1, 1, 2, 86_400, 86_401), row(2, 0, 1, 9, 9)]);
        uses.count(SecretNo(2), at(10));
        stop.cancel();
        task.await.expect("ends");
        assert_eq!(store.sum(2), 2);
    }

    #[tokio::test]
    async fn what_was_not_written_is_written_later_and_of_what_may_have_been_the_time() {
        let (uses, store) = (SecretUses::new(), Written::default());
        uses.count(SecretNo(1), at(1));
        *store.failures.lock().expect("unpoisoned") = vec![ErrorKind::Unavailable];
        uses.write(&store).await;
        assert_eq!(store.sum(1), 0);
        uses.count(SecretNo(1), at(2));
        uses.write(&store).await;
        assert_eq!(store.sum(1), 2);
        for second in 3..9 {
            uses.count(SecretNo(1), at(second));
        }
        *store.failures.lock().expect("unpoisoned") = vec![ErrorKind::OutcomeUnknown];
        uses.write(&store).await;
        assert_eq!(store.sum(1), 2);
        uses.write(&store).await;
        let last = *store.rows.lock().expect("unpoisoned").last().expect("written");
        assert_eq!((last.uses, last.first_at, last.last_at), (1, at(3), at(8)), "not the same six again");
    }
}
