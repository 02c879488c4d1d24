//! Metric names of this crate, their help texts and their bounded labels.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const LOOKUPS: &str = "portero_prefilter_lookups_total";
const SKIPPED: &str = "portero_prefilter_skipped_total";
const EVICTED: &str = "portero_prefilter_local_evicted_total";
const REDIS_ERRORS: &str = "portero_prefilter_redis_errors_total";
const REDIS_SECONDS: &str = "portero_prefilter_redis_seconds";
const REDIS_SKIPPED: &str = "portero_prefilter_redis_skipped";

/// Registers the help texts. Call once, after the recorder is installed.
pub fn describe() {
    describe_counter!(LOOKUPS, "Keys looked up, by answer: hit in local, hit in redis, or miss.");
    describe_counter!(
        SKIPPED,
        "Calls answered with nothing known because the database's identity was not confirmed."
    );
    describe_counter!(EVICTED, "Entries that the local cache dropped to make room.");
    describe_counter!(REDIS_ERRORS, "Redis calls that failed or brought an unusable value, by reason.");
    describe_histogram!(
        REDIS_SECONDS,
        Unit::Seconds,
        "Time that Redis took, failed calls included, by command."
    );
    describe_gauge!(REDIS_SKIPPED, "1 while Redis is skipped after failures, else 0.");
}

/// Counts answers of one lookup.
pub(crate) fn lookups(local: usize, redis: usize, misses: usize) {
    for (answer, n) in [("local", local), ("redis", redis), ("miss", misses)] {
        if n > 0 {
            counter!(LOOKUPS, "answer" => answer).increment(n as u64);
        }
    }
}

/// Counts a call while the identity is not confirmed.
pub(crate) fn skipped() {
    counter!(SKIPPED).increment(1);
}

/// Counts evictions.
pub(crate) fn evicted(entries: usize) {
    if entries > 0 {
        counter!(EVICTED).increment(entries as u64);
    }
}

/// Counts a failure. `reason` is one of timed_out, io, server, protocol, garbage.
pub(crate) fn redis_error(reason: &'static str) {
    counter!(REDIS_ERRORS, "reason" => reason).increment(1);
}

/// Measures a call. `command` is one of get, set.
pub(crate) fn redis_call(command: &'static str, took: Duration) {
    histogram!(REDIS_SECONDS, "command" => command).record(took.as_secs_f64());
}

/// Shows whether Redis is skipped.
pub(crate) fn redis_skipped(is_skipped: bool) {
    gauge!(REDIS_SKIPPED).set(if is_skipped { 1.0 } else { 0.0 });
}
