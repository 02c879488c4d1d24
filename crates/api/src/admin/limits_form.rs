//! Limits of tenants and sources, as the API has them.

use portero_proto::v1;
use portero_store::{LIMIT_BYTES_MAX, LIMIT_EVENTS_MAX, Limits};
use tonic::Status;

use crate::error::invalid;

/// What a caller wants; `field` is where it stands. Absent means that nothing is set.
pub(super) fn from_proto(wanted: Option<v1::Limits>, field: &str) -> Result<Limits, Status> {
    let wanted = wanted.unwrap_or_default();
    let limits = Limits {
        events_per_second: wanted.events_per_second,
        burst: wanted.burst,
        bytes_per_second: wanted.bytes_per_second,
    };
    if limits.check().is_ok() {
        return Ok(limits);
    }
    let (name, rule) = if wanted.events_per_second.is_some_and(|events| events > LIMIT_EVENTS_MAX) {
        ("events_per_second", "must be at most 1,000,000; 0 means no limit")
    } else if wanted.bytes_per_second.is_some_and(|bytes| bytes > LIMIT_BYTES_MAX) {
        ("bytes_per_second", "must be at most 2^40; 0 means no limit")
    } else {
        ("burst", "must be 1 to 1,000,000")
    };
    Err(invalid(&format!("{field}.{name}"), rule))
}

/// What is set; `None` when nothing is.
pub(super) fn to_proto(limits: &Limits) -> Option<v1::Limits> {
    (*limits != Limits::default()).then_some(v1::Limits {
        events_per_second: limits.events_per_second,
        burst: limits.burst,
        bytes_per_second: limits.bytes_per_second,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_is_wrong_is_named() {
        let none = v1::Limits::default();
        for (wanted, name) in [
            (v1::Limits { events_per_second: Some(1_000_001), ..none }, "tenant.limits.events_per_second"),
            (v1::Limits { burst: Some(0), ..none }, "tenant.limits.burst"),
            (v1::Limits { burst: Some(1_000_001), ..none }, "tenant.limits.burst"),
            (v1::Limits { bytes_per_second: Some(u64::MAX), ..none }, "tenant.limits.bytes_per_second"),
        ] {
            let status = from_proto(Some(wanted), "tenant.limits").expect_err("refused");
            assert!(status.message().starts_with(name), "{status}");
        }
    }

    #[test]
    fn nothing_is_absent_and_no_limit_is_not_nothing() {
        assert_eq!(from_proto(None, "x").expect("fine"), Limits::default());
        assert_eq!(to_proto(&Limits::default()), None);
        let unlimited = v1::Limits { events_per_second: Some(0), ..v1::Limits::default() };
        assert_eq!(to_proto(&from_proto(Some(unlimited), "x").expect("fine")), Some(unlimited));
    }
}
