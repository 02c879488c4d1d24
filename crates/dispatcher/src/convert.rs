//! Between the engine's words and the store's: the same rows, so that neither knows the other.

use portero_engine as engine;
use portero_store as store;
use portero_types::Epoch;

/// A log entry as the engine reads it.
pub(crate) const fn entry(entry: &store::LogEntry) -> engine::Entry {
    engine::Entry {
        n: entry.n,
        tenant: entry.tenant_no,
        entity: entry.entity,
        receipt_id: entry.receipt_id,
        body_bytes: entry.body_bytes,
        accepted_at: entry.accepted_at,
    }
}

/// A claimed lane as the engine restores it.
pub(crate) fn restored(claimed: store::ClaimedLane) -> engine::Restored {
    engine::Restored {
        watermark: claimed.state.watermark,
        acked: claimed.state.acked,
        detours: claimed.state.detours.into_iter().map(detour_from_store).collect(),
        parked: claimed.parked.into_iter().map(parked_from_store).collect(),
        deferred: claimed.deferred.into_iter().map(deferred_from_store).collect(),
    }
}

/// A flush as the store writes it.
pub(crate) fn flush(lane: store::LaneKey, epoch: Epoch, flush: engine::Flush) -> store::LaneFlush {
    store::LaneFlush {
        lane,
        epoch,
        state: store::JournalState {
            seq: flush.seq,
            watermark: flush.watermark,
            acked: flush.acked,
            detours: flush.detours.into_iter().map(detour_to_store).collect(),
        },
        park: flush.park.into_iter().map(parked_to_store).collect(),
        unpark: flush.unpark,
        defer: flush.defer.into_iter().map(deferred_to_store).collect(),
        undefer: flush.undefer,
        dead: flush.dead.into_iter().map(dead_to_store).collect(),
        expired: flush.expired,
    }
}

fn detour_from_store(row: store::Detour) -> engine::Detour {
    let store::Detour { tenant, starts_after, ends_at, watermark, acked } = row;
    engine::Detour { tenant, starts_after, ends_at, watermark, acked }
}

fn detour_to_store(row: engine::Detour) -> store::Detour {
    let engine::Detour { tenant, starts_after, ends_at, watermark, acked } = row;
    store::Detour { tenant, starts_after, ends_at, watermark, acked }
}

fn parked_from_store(row: store::ParkedEntity) -> engine::ParkedEntity {
    engine::ParkedEntity {
        entity: row.entity,
        state: match row.state {
            store::ParkedState::Retry => engine::ParkedState::Retry,
            store::ParkedState::Held => engine::ParkedState::Held,
            store::ParkedState::Draining => engine::ParkedState::Draining,
            store::ParkedState::Blocked => engine::ParkedState::Blocked,
        },
        positions: row.positions,
        overflow: row.overflow.map(|o| engine::Overflow { after: o.after, last: o.last }),
        attempts: row.attempts,
        interruptions: row.interruptions,
        due_at: row.due_at,
        first_failed_at: row.first_failed_at,
        reason_code: row.reason_code,
        reason_text: row.reason_text,
    }
}

fn parked_to_store(row: engine::ParkedEntity) -> store::ParkedEntity {
    store::ParkedEntity {
        entity: row.entity,
        state: match row.state {
            engine::ParkedState::Retry => store::ParkedState::Retry,
            engine::ParkedState::Held => store::ParkedState::Held,
            engine::ParkedState::Draining => store::ParkedState::Draining,
            engine::ParkedState::Blocked => store::ParkedState::Blocked,
        },
        positions: row.positions,
        overflow: row.overflow.map(|o| store::Overflow { after: o.after, last: o.last }),
        attempts: row.attempts,
        interruptions: row.interruptions,
        due_at: row.due_at,
        first_failed_at: row.first_failed_at,
        reason_code: row.reason_code,
        reason_text: row.reason_text,
    }
}

fn deferred_from_store(row: store::Deferred) -> engine::Deferred {
    engine::Deferred {
        entity: row.entity,
        position: row.position,
        deadline: row.deadline,
        reason_code: row.reason_code,
        reason_text: row.reason_text,
    }
}

fn deferred_to_store(row: engine::Deferred) -> store::Deferred {
    store::Deferred {
        entity: row.entity,
        position: row.position,
        deadline: row.deadline,
        reason_code: row.reason_code,
        reason_text: row.reason_text,
    }
}

fn dead_to_store(row: engine::DeadLetter) -> store::DeadLetter {
    store::DeadLetter {
        position: row.position,
        receipt_id: row.receipt_id,
        entity: row.entity,
        attempts: row.attempts,
        interruptions: row.interruptions,
        reason_code: row.reason_code,
        reason_text: row.reason_text,
        first_failed_at: row.first_failed_at,
        died_at: row.died_at,
    }
}
