//! How much may come in where a tenant or a source has no limits of its own.

use std::time::Duration;

use portero_store::Limits;

use super::bucket::Rate;

/// How many seconds' worth may come at once where nothing else is said.
const BURST_SECONDS: u64 = 10;

/// Limits of a gateway, and of all gateways together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// What a tenant's sources may send together, over all gateways. Default 2,000 events per second, 20,000 at once, and
    /// 64 MiB per second.
    pub tenant: SendingLimits,
    /// What one source may send, over all gateways. Default 1,000 events per second, 10,000 at once, and 32 MiB per second.
    pub source: SendingLimits,
    /// Requests to one source that do not verify, per gateway. Default 20 per second, 200 at once.
    pub unverified_source: UnverifiedLimits,
    /// Requests from one address to one tenant that do not verify, per gateway. Default 100 per second, 1,000 at once.
    pub unverified_address: UnverifiedLimits,
    /// How long an address that sent a request that verified is examined at that source whatever strangers do. Default 1 h.
    pub verified_for: Duration,
    /// How much of the requests and of the bytes that a gateway has in flight one tenant may hold, percent. Default 25.
    pub in_flight_percent: u32,
}

/// How much may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingLimits {
    /// Verified events per second; 0 means no limit.
    pub events_per_second: u32,
    /// Events at once; at least 1.
    pub burst: u32,
    /// Bytes of verified bodies per second, ten seconds' worth at once; 0 means no limit.
    pub bytes_per_second: u64,
}

/// How many requests that do not verify are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnverifiedLimits {
    /// Per second; 0 means no limit.
    pub per_second: u32,
    /// At once; at least 1.
    pub burst: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            tenant: SendingLimits { events_per_second: 2_000, burst: 20_000, bytes_per_second: 64 << 20 },
            source: SendingLimits { events_per_second: 1_000, burst: 10_000, bytes_per_second: 32 << 20 },
            unverified_source: UnverifiedLimits { per_second: 20, burst: 200 },
            unverified_address: UnverifiedLimits { per_second: 100, burst: 1_000 },
            verified_for: Duration::from_secs(60 * 60),
            in_flight_percent: 25,
        }
    }
}

impl LimitsConfig {
    /// One that limits nothing but what one tenant has in flight, which is everything.
    #[must_use]
    pub fn none() -> Self {
        let sending = SendingLimits { events_per_second: 0, burst: 1, bytes_per_second: 0 };
        let unverified = UnverifiedLimits { per_second: 0, burst: 1 };
        Self {
            tenant: sending,
            source: sending,
            unverified_source: unverified,
            unverified_address: unverified,
            in_flight_percent: 100,
            ..Self::default()
        }
    }
}

impl UnverifiedLimits {
    /// The rate; `None` means no limit.
    pub(super) fn rate(self) -> Option<Rate> {
        Rate::new(u64::from(self.per_second), u64::from(self.burst))
    }
}

/// What holds for one tenant or source at one gateway; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(super) events: Option<Rate>,
    pub(super) bytes: Option<Rate>,
}

impl Rates {
    /// Own limits where there are any, the gateway's else, as one of so many gateways.
    pub(crate) fn of(own: &Limits, default: &SendingLimits, gateways: u32) -> Self {
        let burst = match (own.burst, own.events_per_second) {
            (Some(burst), _) => u64::from(burst),
            (None, Some(events)) => u64::from(events) * BURST_SECONDS,
            (None, None) => u64::from(default.burst),
        };
        let events = own.events_per_second.unwrap_or(default.events_per_second);
        let bytes = own.bytes_per_second.unwrap_or(default.bytes_per_second);
        let shared = |rate: Option<Rate>| rate.map(|rate| rate.shared(gateways));
        Self {
            events: shared(Rate::new(u64::from(events), burst)),
            bytes: shared(Rate::new(bytes, bytes.saturating_mul(BURST_SECONDS))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: SendingLimits = SendingLimits { events_per_second: 10, burst: 50, bytes_per_second: 100 };

    #[test]
    fn own_limits_win_one_by_one() {
        let none = Limits::default();
        assert_eq!(Rates::of(&none, &DEFAULT, 1).events, Rate::new(10, 50));
        assert_eq!(Rates::of(&none, &DEFAULT, 1).bytes, Rate::new(100, 1_000));
        let slower = Limits { events_per_second: Some(3), ..none };
        assert_eq!(
            Rates::of(&slower, &DEFAULT, 1).events,
            Rate::new(3, 30),
            "the default burst is not for it"
        );
        let bursty = Limits { burst: Some(7), ..none };
        assert_eq!(Rates::of(&bursty, &DEFAULT, 1).events, Rate::new(10, 7));
        let free = Limits { events_per_second: Some(0), bytes_per_second: Some(0), ..none };
        assert_eq!(Rates::of(&free, &DEFAULT, 1), Rates { events: None, bytes: None });
    }

    #[test]
    fn several_gateways_share_what_is_meant_for_all() {
        let rates = Rates::of(&Limits::default(), &DEFAULT, 5);
        assert_eq!(rates.events, Rate::new(10, 50).map(|rate| rate.shared(5)));
    }
}
