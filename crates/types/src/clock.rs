//! Wall time as a value, and the one trait through which it enters the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A moment in wall time: microseconds since 1970-01-01T00:00:00Z (Unix time, leap seconds ignored).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// From whole seconds since the Unix epoch; saturates.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// This moment moved forward; saturates.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// This moment moved backward; saturates.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Where wall time comes from. Implemented by the binary over the system clock and by [`ManualClock`].
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock that stands still until it is moved. Clones share the same hands.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(now.as_micros())))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::SeqCst);
    }

    /// Sets the clock.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_before_the_epoch_round_down() {
        assert_eq!(Timestamp::from_micros(-1).as_secs(), -1);
        assert_eq!(Timestamp::from_micros(-1).as_millis(), -1);
    }

    #[test]
    fn since_is_never_negative() {
        assert_eq!(Timestamp::EPOCH.since(Timestamp::from_secs(5)), Duration::ZERO);
        assert_eq!(Timestamp::from_secs(5).since(Timestamp::EPOCH), Duration::from_secs(5));
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::from_micros(i64::MAX).plus(Duration::MAX).as_micros(), i64::MAX);
        assert_eq!(Timestamp::from_micros(i64::MIN).minus(Duration::MAX).as_micros(), i64::MIN);
    }
}
