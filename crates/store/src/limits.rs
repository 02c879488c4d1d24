//! How much a tenant or a source may send.

use crate::{Error, ErrorKind};

/// Most events per second, and most events at once, that a limit may name.
pub const LIMIT_EVENTS_MAX: u32 = 1_000_000;
/// Most bytes per second that a limit may name: 1 TiB.
pub const LIMIT_BYTES_MAX: u64 = 1 << 40;

/// Limits of a tenant or a source, for the whole installation. What is `None` is as the gateways' settings say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Verified events per second; 0 means no limit. At most [`LIMIT_EVENTS_MAX`].
    pub events_per_second: Option<u32>,
    /// Events at once; `None` beside an own `events_per_second` means ten seconds' worth. 1 to [`LIMIT_EVENTS_MAX`].
    pub burst: Option<u32>,
    /// Bytes of verified bodies per second; 0 means no limit. At most [`LIMIT_BYTES_MAX`].
    pub bytes_per_second: Option<u64>,
}

impl Limits {
    /// Whether every store keeps them. Implementations ask before they write.
    ///
    /// # Errors
    /// `Refused` when a bound is broken.
    pub fn check(&self) -> crate::Result<()> {
        let events = self.events_per_second.is_none_or(|events| events <= LIMIT_EVENTS_MAX);
        let burst = self.burst.is_none_or(|burst| (1..=LIMIT_EVENTS_MAX).contains(&burst));
        let bytes = self.bytes_per_second.is_none_or(|bytes| bytes <= LIMIT_BYTES_MAX);
        if events && burst && bytes {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Refused,
            "a limit is at most 1,000,000 events per second, a burst of 1 to 1,000,000 events and 2^40 bytes per second",
        ))
    }

    /// As databases hold them: events per second, burst, bytes per second.
    #[must_use]
    pub fn columns(&self) -> [Option<i64>; 3] {
        let bytes = self.bytes_per_second.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        [self.events_per_second.map(i64::from), self.burst.map(i64::from), bytes]
    }

    /// From what databases hold; `None` when it is nothing that [`Self::columns`] gives.
    #[must_use]
    pub fn from_columns([events, burst, bytes]: [Option<i64>; 3]) -> Option<Self> {
        let limits = Self {
            events_per_second: events.map(u32::try_from).transpose().ok()?,
            burst: burst.map(u32::try_from).transpose().ok()?,
            bytes_per_second: bytes.map(u64::try_from).transpose().ok()?,
        };
        limits.check().is_ok().then_some(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_databases_hold_is_what_was_given() {
        let full =
            Limits { events_per_second: Some(0), burst: Some(7), bytes_per_second: Some(LIMIT_BYTES_MAX) };
        for limits in [Limits::default(), full] {
            assert!(limits.check().is_ok());
            assert_eq!(Limits::from_columns(limits.columns()), Some(limits));
        }
    }

    #[test]
    fn bounds_are_kept_on_the_way_in_and_noticed_on_the_way_out() {
        let none = Limits::default();
        for limits in [
            Limits { events_per_second: Some(LIMIT_EVENTS_MAX + 1), ..none },
            Limits { burst: Some(0), ..none },
            Limits { burst: Some(LIMIT_EVENTS_MAX + 1), ..none },
            Limits { bytes_per_second: Some(LIMIT_BYTES_MAX + 1), ..none },
        ] {
            assert_eq!(limits.check().expect_err("a bound is broken").kind(), ErrorKind::Refused);
            assert_eq!(Limits::from_columns(limits.columns()), None);
        }
        assert_eq!(Limits::from_columns([Some(-1), None, None]), None);
    }
}
