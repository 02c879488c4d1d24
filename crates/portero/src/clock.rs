//! The system clock: the one place where wall time enters.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portero_types::{Clock, Timestamp};

/// The system's wall clock, which the demo can move forward. Clones share the same hands.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemClock {
    ahead_micros: Arc<AtomicI64>,
}

impl SystemClock {
    /// Moves this clock (not the system's) forward.
    pub(crate) fn advance(&self, by: Duration) {
        self.ahead_micros.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        Timestamp::from_micros(micros.saturating_add(self.ahead_micros.load(Ordering::SeqCst)))
    }
}
