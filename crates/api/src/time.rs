//! Protocol times and our own.

use std::time::Duration;

use portero_types::Timestamp;
use tonic::Status;

use crate::error::invalid;

/// Our moment as the protocol writes it.
pub(crate) fn to_proto(time: Timestamp) -> prost_types::Timestamp {
    let nanos = time.as_micros().rem_euclid(1_000_000) * 1_000;
    prost_types::Timestamp { seconds: time.as_secs(), nanos: i32::try_from(nanos).unwrap_or(0) }
}

/// The protocol's moment, refused when it is malformed.
pub(crate) fn from_proto(time: &prost_types::Timestamp, field: &str) -> Result<Timestamp, Status> {
    if !(0..1_000_000_000).contains(&time.nanos) || !(0..=253_402_300_799).contains(&time.seconds) {
        return Err(invalid(field, "must be a valid time from 1970 to 9999"));
    }
    Ok(Timestamp::from_micros(time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000))
}

/// The protocol's duration, refused when it is negative or beyond `max`.
pub(crate) fn duration(
    value: &prost_types::Duration,
    field: &str,
    max: Duration,
) -> Result<Duration, Status> {
    Duration::try_from(*value)
        .ok()
        .filter(|duration| *duration <= max)
        .ok_or_else(|| invalid(field, format!("must be a duration from 0 to {} seconds", max.as_secs())))
}

/// Our duration as the protocol writes it; one beyond its range is its longest.
pub(crate) fn duration_to_proto(duration: Duration) -> prost_types::Duration {
    duration.try_into().unwrap_or(prost_types::Duration { seconds: 315_576_000_000, nanos: 0 })
}

/// Microseconds of either sign as the protocol writes them.
pub(crate) fn micros_to_proto(micros: i64) -> prost_types::Duration {
    let nanos = (micros % 1_000_000) * 1_000;
    prost_types::Duration { seconds: micros / 1_000_000, nanos: i32::try_from(nanos).unwrap_or(0) }
}
