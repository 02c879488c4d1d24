//! `[limits]`: who may send how much. A tenant's and a source's own limits win.

use std::time::Duration;

use portero_ingress::{LimitsConfig, SendingLimits, UnverifiedLimits};
use portero_store::{LIMIT_BYTES_MAX, LIMIT_EVENTS_MAX};

use super::Reader;
use super::value::Bytes;

/// Reads the section.
pub(super) fn read(section: &mut Reader) -> LimitsConfig {
    let default = LimitsConfig::default();
    LimitsConfig {
        tenant: sending(section, "tenant", default.tenant),
        source: sending(section, "source", default.source),
        unverified_source: unverified(section, "unverified_source", default.unverified_source),
        unverified_address: unverified(section, "unverified_address", default.unverified_address),
        verified_for: section.within(
            "verified_for",
            default.verified_for,
            Duration::from_secs(1),
            Duration::from_secs(7 * 86_400),
        ),
        in_flight_percent: section.within("in_flight_percent", default.in_flight_percent, 1, 100),
    }
}

fn sending(section: &mut Reader, whose: &str, default: SendingLimits) -> SendingLimits {
    let default_bytes = Bytes(usize::try_from(default.bytes_per_second).unwrap_or(usize::MAX));
    let most_bytes = Bytes(usize::try_from(LIMIT_BYTES_MAX).unwrap_or(usize::MAX));
    let bytes = section.within(&format!("{whose}_bytes_per_second"), default_bytes, Bytes(0), most_bytes);
    SendingLimits {
        events_per_second: section.within(
            &format!("{whose}_events_per_second"),
            default.events_per_second,
            0,
            LIMIT_EVENTS_MAX,
        ),
        burst: section.within(&format!("{whose}_burst"), default.burst, 1, LIMIT_EVENTS_MAX),
        bytes_per_second: u64::try_from(bytes.0).unwrap_or(u64::MAX),
    }
}

fn unverified(section: &mut Reader, whose: &str, default: UnverifiedLimits) -> UnverifiedLimits {
    UnverifiedLimits {
        per_second: section.within(&format!("{whose}_per_second"), default.per_second, 0, LIMIT_EVENTS_MAX),
        burst: section.within(&format!("{whose}_burst"), default.burst, 1, LIMIT_EVENTS_MAX),
    }
}
