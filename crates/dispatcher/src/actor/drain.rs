//! Leaving in an orderly way: lanes are handed over one by one as they go quiet, consumers are asked to reconnect in waves,
//! and at the deadline the rest is taken back uncounted.

use std::collections::VecDeque;
use std::time::Duration;

use portero_engine::StreamId;
use portero_types::Timestamp;
use tokio::time::Instant;

use super::Actor;
use crate::stream::{DrainReason, EndReason, Frame, Leave};

/// How long a lane waits for what is in consumers' hands before it is handed over all the same, so that its other events do
/// not wait for one slow handler.
const LANE_PATIENCE: Duration = Duration::from_secs(10);
/// After the deadline consumers have so long to take the word that their deliveries were taken back.
const LAST_WORD: Duration = Duration::from_millis(500);
/// Consumers are asked to leave in waves.
const WAVE_EVERY: Duration = Duration::from_millis(50);
const WAVE_STREAMS_MIN: usize = 16;
const WAVES_MAX: usize = 20;
/// Consumers spread their reconnects over so long for each stream here, within these bounds.
const SPREAD_PER_STREAM: Duration = Duration::from_millis(2);
const SPREAD: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// An orderly leave that has begun.
pub(super) struct Drain {
    deadline: Timestamp,
    by: Instant,
    is_over: bool,
    reconnect_within: Duration,
    waiting: VecDeque<StreamId>,
    wave: usize,
    wave_at: Instant,
}

impl Drain {
    /// When the next step is due.
    pub(super) fn due_at(&self) -> Instant {
        let far = self.by + Duration::from_secs(3_600);
        let deadline = if self.is_over { far } else { self.by };
        if self.waiting.is_empty() { deadline } else { deadline.min(self.wave_at) }
    }
}

impl Actor {
    /// Begins to leave. No stream gets deliveries any more, and no lane is claimed.
    pub(super) fn drain(&mut self, deadline: Timestamp) {
        if self.drain.is_some() {
            return;
        }
        let (now, wall) = (Instant::now(), self.now());
        let streams = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        let by = now + deadline.since(wall);
        self.drain = Some(Drain {
            deadline,
            by,
            is_over: false,
            reconnect_within: SPREAD_PER_STREAM.saturating_mul(streams).clamp(SPREAD.0, SPREAD.1),
            waiting: self.streams.keys().copied().collect(),
            wave: self.streams.len().div_ceil(WAVES_MAX).max(WAVE_STREAMS_MIN),
            wave_at: now,
        });
        for stream in self.streams.values_mut() {
            stream.closing = true;
        }
        self.hand_over_all(by.min(now + LANE_PATIENCE));
    }

    /// The dispatcher stops: leaves now, with whatever is unfinished.
    pub(super) fn stop_now(&mut self) {
        self.drain(self.now());
        self.end_all(EndReason::ShuttingDown);
        self.hand_over_all(Instant::now());
    }

    /// Asks the next wave of streams to leave; waits for nothing any more at the deadline.
    pub(super) fn drain_when_due(&mut self) {
        let Some(drain) = &mut self.drain else { return };
        let now = Instant::now();
        if !drain.waiting.is_empty() && drain.wave_at <= now {
            drain.wave_at = now + WAVE_EVERY;
            let wave: Vec<_> = drain.waiting.drain(..drain.wave.min(drain.waiting.len())).collect();
            let (deadline, reconnect_within) = (drain.deadline, drain.reconnect_within);
            let leave = Leave { reason: EndReason::ShuttingDown, by: drain.by + LAST_WORD };
            for id in wave {
                self.ask_to_leave(id, leave, deadline, reconnect_within, DrainReason::ShuttingDown);
            }
        }
        let Some(drain) = &mut self.drain else { return };
        if !drain.is_over && drain.by <= now {
            // What consumers still have is taken back, and with that their streams have nothing to finish.
            drain.is_over = true;
            self.hand_over_all(now);
        }
    }

    /// Asks one stream's consumer to settle and reconnect. It gets no more deliveries.
    pub(super) fn ask_to_leave(
        &mut self,
        id: StreamId,
        leave: Leave,
        deadline: Timestamp,
        reconnect_within: Duration,
        reason: DrainReason,
    ) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.closing = true;
            stream.leave = Some(leave);
            stream.outbox.push_back(Frame::Drain { deadline, reconnect_within, reason });
            self.streams_due_at = self.streams_due_at.min(leave.by);
        }
    }
}
