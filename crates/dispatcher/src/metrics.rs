//! The names of this crate's metrics. Labels are bounded: none is chosen by a tenant.

use metrics::{counter, describe_counter, describe_gauge, gauge};

const DELIVERIES: &str = "portero_dispatcher_deliveries_total";
const SETTLEMENTS: &str = "portero_dispatcher_settlements_total";
const FLUSHES: &str = "portero_dispatcher_flushes_total";
const STREAMS: &str = "portero_dispatcher_streams";

/// Says what each metric means. Call once after the recorder is installed.
pub fn describe() {
    describe_counter!(DELIVERIES, "Events handed to consumers' streams, repeats included.");
    describe_counter!(SETTLEMENTS, "Settlements answered, by status.");
    describe_counter!(FLUSHES, "Journal flushes of one or more lanes, by result.");
    describe_gauge!(STREAMS, "Open consumer streams.");
}

pub(crate) fn delivered(events: usize) {
    counter!(DELIVERIES).increment(events as u64);
}

pub(crate) fn settled(status: portero_engine::Status) {
    use portero_engine::Status;
    let status = match status {
        Status::Durable => "durable",
        Status::DurableLate => "durable_late",
        Status::Already => "already",
        Status::Stale => "stale",
        Status::UnknownToken => "unknown_token",
        Status::TryAgain => "try_again",
    };
    counter!(SETTLEMENTS, "status" => status).increment(1);
}

pub(crate) fn flushed(result: &'static str) {
    counter!(FLUSHES, "result" => result).increment(1);
}

pub(crate) fn stream_opened() {
    gauge!(STREAMS).increment(1.0);
}

pub(crate) fn stream_closed() {
    gauge!(STREAMS).decrement(1.0);
}
