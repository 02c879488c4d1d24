//! The keys of one issuer in memory, and when they are read again.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use portero_types::Timestamp;
use tokio::sync::Mutex;

use crate::jwks::KeySet;
use crate::metrics;
use crate::source::{InvalidSource, KeySource, Reader};

/// The last good keys. They stay in use while reading fails; a good reading replaces them as a whole, so that a key that
/// its issuer withdrew ceases to verify.
pub(crate) struct KeyCache {
    /// For logs: the issuer's configured name.
    issuer: String,
    reader: Reader,
    keys: ArcSwapOption<KeySet>,
    /// Held while reading, so that one reading serves all who wait.
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    /// When the last reading began, whether or not it ended.
    last: Option<Timestamp>,
    is_failing: bool,
}

impl KeyCache {
    pub(crate) fn new(issuer: String, source: KeySource) -> Result<Self, InvalidSource> {
        let (reader, keys) = Reader::new(source)?;
        let keys = ArcSwapOption::new(keys.map(Arc::new));
        Ok(Self { issuer, reader, keys, attempts: Mutex::default() })
    }

    /// The keys that are known now.
    pub(crate) fn known(&self) -> Option<Arc<KeySet>> {
        self.keys.load_full()
    }

    /// Whether the last reading failed, so that a key that is not known may be a new one.
    pub(crate) async fn is_failing(&self) -> bool {
        self.attempts.lock().await.is_failing
    }

    /// Reads the keys because a token names one that is not known, unless they were read a moment ago. Bounded by the
    /// fetch's time-out. When this is cancelled the attempt still counts, so that strangers cannot make us fetch without
    /// end; the periodic reading makes up for it.
    pub(crate) async fn refresh_for_unknown(&self, now: Timestamp) {
        if let Some((at_most_every, _)) = self.reader.pace() {
            self.refresh(now, at_most_every).await;
        }
    }

    /// Reads the keys when it is time: more often while there are none or reading fails.
    pub(crate) async fn refresh_when_due(&self, now: Timestamp) {
        if let Some((at_most_every, at_least_every)) = self.reader.pace() {
            let is_well = self.keys.load().is_some() && !self.attempts.lock().await.is_failing;
            self.refresh(now, if is_well { at_least_every } else { at_most_every }).await;
        }
    }

    async fn refresh(&self, now: Timestamp, interval: Duration) {
        let mut attempts = self.attempts.lock().await;
        // A clock that was set back must not stop readings.
        let is_due = attempts.last.is_none_or(|last| now < last || now.since(last) >= interval);
        if !is_due {
            return;
        }
        attempts.last = Some(now);
        match self.reader.read().await {
            Ok(keys) => {
                metrics::refresh("ok");
                if attempts.is_failing || self.keys.load().is_none() {
                    tracing::info!(issuer = %self.issuer, keys = keys.len(), "issuer's keys read");
                }
                attempts.is_failing = false;
                self.keys.store(Some(Arc::new(keys)));
            }
            Err(error) => {
                metrics::refresh(error.code());
                if !attempts.is_failing {
                    let has_keys = self.keys.load().is_some();
                    tracing::warn!(issuer = %self.issuer, has_keys, %error, "issuer's keys cannot be read; the last good ones stay");
                }
                attempts.is_failing = true;
            }
        }
    }
}
