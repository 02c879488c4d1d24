//! The names of this crate's metrics. Labels are bounded: none is chosen by a tenant.

use metrics::{Gauge, counter, describe_counter, describe_gauge, gauge};

const DELIVERIES: &str = "portero_dispatcher_deliveries_total";
const SETTLEMENTS: &str = "portero_dispatcher_settlements_total";
const FLUSHES: &str = "portero_dispatcher_flushes_total";
const STREAMS: &str = "portero_dispatcher_streams";
const SPARE_STREAMS: &str = "portero_dispatcher_spare_streams";
const REPLACED: &str = "portero_dispatcher_streams_replaced_total";
const LANES: &str = "portero_dispatcher_lanes";
const CLAIMED: &str = "portero_dispatcher_lanes_claimed_total";
const GIVEN_UP: &str = "portero_dispatcher_lanes_given_up_total";
const RECALLED: &str = "portero_dispatcher_deliveries_recalled_total";
const PARKED_ENTITIES: &str = "portero_dispatcher_parked_entities";
const BLOCKED_ENTITIES: &str = "portero_dispatcher_blocked_entities";
const PARKED_EVENTS: &str = "portero_dispatcher_parked_events";
const DEFERRED_EVENTS: &str = "portero_dispatcher_deferred_events";
const OVERFLOWS: &str = "portero_dispatcher_overflows";
const DETOURS: &str = "portero_dispatcher_detours";
const TRIPPED: &str = "portero_dispatcher_circuits_tripped";
const TRIPS: &str = "portero_dispatcher_circuit_trips_total";
const UNREADABLE: &str = "portero_dispatcher_unreadable_events_total";
const PANICS: &str = "portero_dispatcher_panics_total";
const GENERATIONS: &str = "portero_dispatcher_generation_changes_total";
const LISTENER_BREAKS: &str = "portero_dispatcher_listener_breaks_total";

/// Says what each metric means. Call once after the recorder is installed.
pub fn describe() {
    describe_counter!(DELIVERIES, "Events handed to consumers' streams, repeats included.");
    describe_counter!(SETTLEMENTS, "Settlements answered, by status.");
    describe_counter!(FLUSHES, "Journal flushes of one or more lanes, by result.");
    describe_gauge!(STREAMS, "Open consumer streams.");
    describe_gauge!(
        SPARE_STREAMS,
        "Open streams that serve no lane because there are more streams than lanes here."
    );
    describe_counter!(REPLACED, "Streams that ended because their consumer had opened a newer one.");
    describe_gauge!(LANES, "Lanes that this gateway works on.");
    describe_counter!(CLAIMED, "Lanes that were claimed, free ones and those of gateways that had vanished.");
    describe_counter!(GIVEN_UP, "Lanes that left: handed over in order, or lost to another gateway.");
    describe_counter!(
        RECALLED,
        "Deliveries taken back, uncounted, because a handover could not wait for them."
    );
    describe_gauge!(
        PARKED_ENTITIES,
        "Entities that are worked off apart because an event of theirs failed or takes long."
    );
    describe_gauge!(BLOCKED_ENTITIES, "Those of them that wait for an operator behind a dead letter.");
    describe_gauge!(PARKED_EVENTS, "Listed events of parked entities, and deferred ones.");
    describe_gauge!(DEFERRED_EVENTS, "Events that their consumers called too early.");
    describe_gauge!(
        OVERFLOWS,
        "Parked entities with more events than are listed; the rest waits in the log."
    );
    describe_gauge!(DETOURS, "Tenants whose backlog is read apart from the others', by lane.");
    describe_gauge!(
        TRIPPED,
        "Subscriptions whose deliveries pause here because nearly everything fails at their consumers."
    );
    describe_counter!(TRIPS, "Times that deliveries of a subscription began to pause for that.");
    describe_counter!(
        UNREADABLE,
        "Times that an event could not be opened and was left to wait: its row or its tenant's data key is damaged or missing."
    );
    describe_counter!(
        PANICS,
        "Defects that ended a delivery job or a subscription's deliveries; they begin anew."
    );
    describe_counter!(GENERATIONS, "Changes of the log's generation: committed events may have been lost.");
    describe_counter!(LISTENER_BREAKS, "Times that hints could not be listened to; polling goes on.");
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

pub(crate) fn replaced() {
    counter!(REPLACED).increment(1);
}

pub(crate) fn claimed(lanes: usize) {
    counter!(CLAIMED).increment(lanes as u64);
}

pub(crate) fn handed_over(lanes: usize) {
    counter!(GIVEN_UP, "how" => "handed_over").increment(lanes as u64);
}

pub(crate) fn lost(lanes: usize) {
    counter!(GIVEN_UP, "how" => "lost").increment(lanes as u64);
}

pub(crate) fn recalled(deliveries: usize) {
    counter!(RECALLED).increment(deliveries as u64);
}

pub(crate) fn tripped() {
    counter!(TRIPS).increment(1);
}

/// `part`: `actor` or `job`.
pub(crate) fn panicked(part: &'static str) {
    counter!(PANICS, "part" => part).increment(1);
}

pub(crate) fn unreadable() {
    counter!(UNREADABLE).increment(1);
}

pub(crate) fn generation_changed() {
    counter!(GENERATIONS).increment(1);
}

pub(crate) fn listener_broke() {
    counter!(LISTENER_BREAKS).increment(1);
}

/// One actor's part in a gauge; taken out of it with the actor.
pub(crate) struct Level {
    gauge: Gauge,
    part: f64,
}

/// What waits outside of the lanes' windows.
#[derive(Clone, Copy)]
pub(crate) enum Waiting {
    ParkedEntities,
    BlockedEntities,
    ParkedEvents,
    DeferredEvents,
    Overflows,
    Detours,
}

impl Level {
    pub(crate) fn waiting(waiting: Waiting) -> Self {
        let gauge = match waiting {
            Waiting::ParkedEntities => gauge!(PARKED_ENTITIES),
            Waiting::BlockedEntities => gauge!(BLOCKED_ENTITIES),
            Waiting::ParkedEvents => gauge!(PARKED_EVENTS),
            Waiting::DeferredEvents => gauge!(DEFERRED_EVENTS),
            Waiting::Overflows => gauge!(OVERFLOWS),
            Waiting::Detours => gauge!(DETOURS),
        };
        Self { gauge, part: 0.0 }
    }

    pub(crate) fn lanes() -> Self {
        Self { gauge: gauge!(LANES), part: 0.0 }
    }

    pub(crate) fn spare_streams() -> Self {
        Self { gauge: gauge!(SPARE_STREAMS), part: 0.0 }
    }

    pub(crate) fn tripped() -> Self {
        Self { gauge: gauge!(TRIPPED), part: 0.0 }
    }

    pub(crate) fn set(&mut self, part: usize) {
        // Lanes and streams are few: exact as a float.
        let part = u32::try_from(part).map_or(f64::MAX, f64::from);
        self.gauge.increment(part - self.part);
        self.part = part;
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.gauge.decrement(self.part);
    }
}
