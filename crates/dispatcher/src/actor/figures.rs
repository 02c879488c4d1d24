//! What of a subscription is out of the window here, for metrics.

use std::time::Duration;

use portero_engine::Stats;
use tokio::time::Instant;

use super::Actor;
use crate::metrics::{Level, Waiting};

/// How often the figures are brought up to date.
const EVERY: Duration = Duration::from_secs(1);

/// One thing that is counted over all lanes.
type Figure = (Waiting, fn(&Stats) -> usize);

const FIGURES: [Figure; 6] = [
    (Waiting::ParkedEntities, |stats| stats.parked_entities),
    (Waiting::BlockedEntities, |stats| stats.blocked_entities),
    (Waiting::ParkedEvents, |stats| stats.parked_positions),
    (Waiting::DeferredEvents, |stats| stats.deferred),
    (Waiting::Overflows, |stats| stats.overflows),
    (Waiting::Detours, |stats| stats.detours),
];

/// This actor's part in the gauges.
pub(super) struct Figures {
    at: Instant,
    levels: [Level; FIGURES.len()],
}

impl Figures {
    pub(super) fn new(now: Instant) -> Self {
        Self { at: now, levels: FIGURES.map(|(waiting, _)| Level::waiting(waiting)) }
    }
}

impl Actor {
    pub(super) fn show_figures(&mut self) {
        let now = Instant::now();
        if now < self.figures.at {
            return;
        }
        self.figures.at = now + EVERY;
        for (level, (_, figure)) in self.figures.levels.iter_mut().zip(FIGURES) {
            level.set(self.lanes.values().map(|lane| figure(&lane.stats())).sum());
        }
    }
}
