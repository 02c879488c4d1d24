//! Limits of tenants and sources: what is asked for, and how they are shown.

use portero_client::v1;
use serde::Serialize;

use crate::cli::GivenLimits;

/// What the arguments name, over what was there: an update replaces all limits at once.
pub(super) fn merged(given: &GivenLimits, known: Option<v1::Limits>) -> v1::Limits {
    let known = known.unwrap_or_default();
    v1::Limits {
        events_per_second: given.events_per_second.or(known.events_per_second),
        burst: given.burst.or(known.burst),
        bytes_per_second: given.bytes_per_second.or(known.bytes_per_second),
    }
}

/// What the arguments name; `None` when they name nothing.
pub(super) fn wanted(given: &GivenLimits) -> Option<v1::Limits> {
    given.is_given().then(|| merged(given, None))
}

/// Limits as they are shown; what is null is as the gateways' settings say.
#[derive(Debug, Default, Serialize)]
pub(super) struct Limits {
    events_per_second: Option<u32>,
    burst: Option<u32>,
    bytes_per_second: Option<u64>,
}

impl From<Option<v1::Limits>> for Limits {
    fn from(limits: Option<v1::Limits>) -> Self {
        let v1::Limits { events_per_second, burst, bytes_per_second } = limits.unwrap_or_default();
        Self { events_per_second, burst, bytes_per_second }
    }
}

impl Limits {
    /// A line for each that is set.
    pub(super) fn details(&self) -> Vec<(&'static str, String)> {
        let lines = [
            ("events per second", self.events_per_second.map(u64::from)),
            ("events at once", self.burst.map(u64::from)),
            ("bytes per second", self.bytes_per_second),
        ];
        let said = |limit: u64| if limit == 0 { "no limit".to_owned() } else { limit.to_string() };
        lines.into_iter().filter_map(|(name, limit)| Some((name, said(limit?)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_as_it_was() {
        let given = GivenLimits { burst: Some(5), ..GivenLimits::default() };
        let known = v1::Limits { events_per_second: Some(1), burst: Some(2), bytes_per_second: None };
        let merged = merged(&given, Some(known));
        assert_eq!(merged, v1::Limits { events_per_second: Some(1), burst: Some(5), bytes_per_second: None });
        assert_eq!(wanted(&GivenLimits::default()), None);
    }

    #[test]
    fn only_what_is_set_has_a_line() {
        assert!(Limits::from(None).details().is_empty());
        let limits = v1::Limits { events_per_second: Some(0), ..v1::Limits::default() };
        assert_eq!(Limits::from(Some(limits)).details(), [("events per second", "no limit".to_owned())]);
    }
}
