//! What this process tells the others of itself, and what it learns in return: the revision, how many share the edge, and how
//! far its clock is off.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use portero_store::{ConfigStore, ReplicaEcho, ReplicaReport, Revision};
use portero_types::{Clock, ReplicaId, Timestamp};
use tokio::time::Instant;

use crate::metrics;

/// A difference of clocks that is worth a warning.
const SKEW_WORTH_SAYING: Duration = Duration::from_secs(1);

/// Who reports, and by which clock.
#[derive(Clone)]
pub struct Reporting {
    /// This run of this process.
    pub replica: ReplicaId,
    /// Its configured name.
    pub instance: String,
    /// What it does: `edge`, `stream`, `admin`.
    pub roles: Vec<String>,
    /// The program's version.
    pub version: String,
    /// The machine's wall clock: compared with the database's, and asked whether the configuration is fresh.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for Reporting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporting")
            .field("replica", &self.replica)
            .field("instance", &self.instance)
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

/// Reports to the store, or only looks when there is nobody to report.
pub(crate) struct Reporter {
    reporting: Option<Reporting>,
    /// Whether a report was answered.
    is_known: AtomicBool,
    has_signed_off: AtomicBool,
    edges: AtomicU32,
    others: AtomicU32,
    skew_micros: AtomicI64,
    is_skewed: AtomicBool,
}

/// What the store says of the configuration.
pub(crate) struct Told {
    pub(crate) revision: Revision,
    /// Which line of history it belongs to, for those who report.
    pub(crate) history: Option<String>,
}

impl Told {
    /// A revision of whatever history.
    pub(crate) const fn only(revision: Revision) -> Self {
        Self { revision, history: None }
    }
}

impl Reporter {
    pub(crate) const fn new(reporting: Option<Reporting>) -> Self {
        Self {
            reporting,
            is_known: AtomicBool::new(false),
            has_signed_off: AtomicBool::new(false),
            edges: AtomicU32::new(1),
            others: AtomicU32::new(u32::MAX),
            skew_micros: AtomicI64::new(0),
            is_skewed: AtomicBool::new(false),
        }
    }

    /// How many live processes take webhooks, as last told; at least one.
    pub(crate) fn edges(&self) -> u32 {
        self.edges.load(Ordering::Relaxed).max(1)
    }

    /// Whether no other live process is known of, as last told. Who does not report cannot know.
    pub(crate) fn is_alone(&self) -> bool {
        self.others.load(Ordering::Relaxed) == 0
    }

    /// How far this machine's clock is ahead of the database's, microseconds, as last measured.
    pub(crate) fn skew_micros(&self) -> i64 {
        self.skew_micros.load(Ordering::Relaxed)
    }

    /// Says that `applied` is applied and which key, by its mark, wraps new data keys, and asks.
    pub(crate) async fn report(
        &self,
        store: &dyn ConfigStore,
        applied: Revision,
        key: String,
    ) -> portero_store::Result<Told> {
        let reporting = self.reporting.as_ref().filter(|_| !self.has_signed_off.load(Ordering::Relaxed));
        let Some(me) = reporting else {
            return Ok(Told::only(store.revision().await?));
        };
        let (asked, clock) = (Instant::now(), me.clock.now());
        let report = ReplicaReport {
            replica: me.replica,
            instance: me.instance.clone(),
            first: !self.is_known.load(Ordering::Relaxed),
            roles: me.roles.clone(),
            revision: applied,
            clock,
            version: me.version.clone(),
            key_id: key,
        };
        let ReplicaEcho { revision, database_time, edges, others, history } = store.report(&report).await?;
        self.is_known.store(true, Ordering::Relaxed);
        self.edges.store(edges, Ordering::Relaxed);
        self.others.store(others, Ordering::Relaxed);
        self.compare(skew(clock, asked.elapsed(), database_time));
        Ok(Told { revision, history: Some(history) })
    }

    /// Forgets this process in the store. What is looked up from then on is no report any more: nobody shall wait for this
    /// process again.
    pub(crate) async fn sign_off(&self, store: &dyn ConfigStore) -> portero_store::Result<()> {
        self.has_signed_off.store(true, Ordering::Relaxed);
        match &self.reporting {
            Some(me) => store.sign_off(me.replica).await,
            None => Ok(()),
        }
    }

    fn compare(&self, skew_micros: i64) {
        self.skew_micros.store(skew_micros, Ordering::Relaxed);
        metrics::clock_skew(skew_micros);
        let is_skewed = Duration::from_micros(skew_micros.unsigned_abs()) > SKEW_WORTH_SAYING;
        let skew_ms = skew_micros / 1_000;
        // Said once when it begins and once when it is over.
        match (is_skewed, self.is_skewed.swap(is_skewed, Ordering::Relaxed)) {
            (true, false) => tracing::warn!(
                skew_ms,
                "this machine's clock and the database's differ; set them by one time server: \
                 time windows of signatures and the ends of secrets are judged by this machine's"
            ),
            (false, true) => tracing::info!(skew_ms, "this machine's clock agrees with the database's again"),
            _ => {}
        }
    }
}

/// How far the clock that showed `sent` is surely ahead of the one that showed `database_time` at some moment of the `span`
/// after that, microseconds; negative when it is behind. What the span itself may explain counts as no difference.
fn skew(sent: Timestamp, span: Duration, database_time: Timestamp) -> i64 {
    let half = i64::try_from(span.as_micros() / 2).unwrap_or(i64::MAX);
    let middle = sent.as_micros().saturating_add(half);
    let ahead = middle.saturating_sub(database_time.as_micros());
    ahead.signum() * ahead.saturating_abs().saturating_sub(half).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_is_measured_from_the_middle_of_the_answers_time() {
        let at = |millis: i64| Timestamp::from_micros(1_750_000_000_000_000 + millis * 1_000);
        let measured =
            |sent, span, database| skew(at(sent), Duration::from_millis(span), at(database)) / 1_000;
        assert_eq!(measured(0, 0, 0), 0);
        assert_eq!(measured(42_000, 0, 0), 42_000);
        assert_eq!(measured(0, 0, 42_000), -42_000);
        assert_eq!(measured(0, 2_000, 1_000), 0, "the middle");
        assert_eq!(measured(0, 2_000, 0), 0, "the database may have answered at once");
        assert_eq!(measured(0, 2_000, 2_000), 0, "or only in the end");
        assert_eq!(measured(10_000, 2_000, 0), 10_000, "surely this much");
        assert_eq!(measured(-10_000, 2_000, 0), -8_000);
    }
}
