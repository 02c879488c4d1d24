//! A subscription's circuit breaker: when nearly everything fails, it is not the events.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use portero_types::{EntityHash, Timestamp};

/// Failed entities that one second remembers at most.
const ENTITIES_PER_SECOND_MAX: usize = 64;

/// When a circuit trips, and how it looks for the end of the trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitConfig {
    /// How far back outcomes count, in whole seconds. Default 30 s.
    pub window: Duration,
    /// Fewer outcomes than this say nothing. At least 1. Default 20.
    pub outcomes_min: u32,
    /// So many of a hundred have to be failures. 1 to 100. Default 90.
    pub failed_percent: u32,
    /// Of so many different entities, so that one bad event or entity never trips it. At most 64. Default 10.
    pub entities_min: usize,
    /// Pause before the first probe; it doubles with each probe that fails. Default 1 s.
    pub pause_min: Duration,
    /// Longest pause. Default 30 s.
    pub pause_max: Duration,
    /// Events that may be in consumers' hands while it is probed. At least 1. Default 3.
    pub probes_max: u32,
}

impl Default for CircuitConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(30),
            outcomes_min: 20,
            failed_percent: 90,
            entities_min: 10,
            pause_min: Duration::from_secs(1),
            pause_max: Duration::from_secs(30),
            probes_max: 3,
        }
    }
}

/// How much may be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Everything.
    Open,
    /// As much as keeps the number of events in consumers' hands at or below this.
    Probe {
        /// The number.
        in_flight_max: u32,
    },
    /// Nothing.
    Closed {
        /// Until then.
        until: Timestamp,
    },
}

impl Gate {
    /// How many more events may be delivered when `in_flight` are in consumers' hands.
    #[must_use]
    pub const fn room(&self, in_flight: u32) -> u32 {
        match *self {
            Self::Open => u32::MAX,
            Self::Probe { in_flight_max } => in_flight_max.saturating_sub(in_flight),
            Self::Closed { .. } => 0,
        }
    }
}

/// Watches the outcomes of one subscription's deliveries, over all of its lanes.
///
/// ```text
///          nearly all of many entities failed              pause over
///  Open ─────────────────────────────────────▶ Closed ───────────────────▶ Probe
///    ▲                                          │  ▲   a probe failed:       │ │
///    │               success                    │  └── a longer pause ───────┘ │
///    └──────────────────────────────────────────┴────────── success ──────────┘
/// ```
///
/// While it is not open, lanes are frozen ([`Lane::set_frozen`](crate::Lane::set_frozen)): failures count no attempts.
/// Feed it what consumers say of their deliveries: success or failure. A release, a deferral and a rejection are neither,
/// and a consumer that goes away is the isolation's business.
///
/// Its memory is bounded: one small record for each second of the window.
#[derive(Clone, Debug)]
pub struct Circuit {
    config: CircuitConfig,
    /// Of the last seconds, oldest first.
    seconds: VecDeque<Second>,
    tripped: Option<Trip>,
}

#[derive(Clone, Copy, Debug)]
struct Trip {
    pause: Duration,
    until: Timestamp,
}

impl Trip {
    /// Not when the clock was set back so far that the pause would be longer than it is.
    fn is_pausing(&self, now: Timestamp) -> bool {
        now < self.until && self.until.since(now) <= self.pause
    }
}

/// The outcomes of one second.
#[derive(Clone, Debug)]
struct Second {
    at: i64,
    outcomes: u32,
    failed: u32,
    entities: BTreeSet<EntityHash>,
}

impl Circuit {
    /// An open one.
    #[must_use]
    pub const fn new(config: CircuitConfig) -> Self {
        Self { config, seconds: VecDeque::new(), tripped: None }
    }

    /// A delivery succeeded or failed.
    pub fn handle_outcome(&mut self, now: Timestamp, entity: EntityHash, ok: bool) {
        match self.tripped {
            Some(_) if ok => {
                self.tripped = None;
                self.seconds.clear();
            }
            // What was in consumers' hands when it tripped says nothing new.
            Some(trip) if trip.is_pausing(now) => {}
            Some(trip) => self.trip(now, trip.pause.saturating_mul(2).min(self.config.pause_max)),
            None => {
                self.record(now, entity, ok);
                if !ok && self.is_failing() {
                    self.seconds.clear();
                    self.trip(now, self.config.pause_min);
                }
            }
        }
    }

    /// What may be delivered now.
    #[must_use]
    pub fn gate(&self, now: Timestamp) -> Gate {
        match self.tripped {
            None => Gate::Open,
            Some(trip) if trip.is_pausing(now) => Gate::Closed { until: trip.until },
            Some(_) => Gate::Probe { in_flight_max: self.config.probes_max.max(1) },
        }
    }

    /// Whether failures are to count no attempts.
    #[must_use]
    pub const fn is_tripped(&self) -> bool {
        self.tripped.is_some()
    }

    /// When the gate changes by itself.
    #[must_use]
    pub fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        self.tripped.filter(|trip| trip.is_pausing(now)).map(|trip| trip.until)
    }

    fn trip(&mut self, now: Timestamp, pause: Duration) {
        self.tripped = Some(Trip { pause, until: now.plus(pause) });
    }

    fn record(&mut self, now: Timestamp, entity: EntityHash, ok: bool) {
        let at = now.as_secs();
        let length = i64::try_from(self.config.window.as_secs()).unwrap_or(i64::MAX).max(1);
        self.seconds.retain(|second| second.at > at.saturating_sub(length));
        // A clock that was set back adds to the newest second: they stay in order, and few.
        if self.seconds.back().is_none_or(|newest| newest.at < at) {
            self.seconds.push_back(Second { at, outcomes: 0, failed: 0, entities: BTreeSet::new() });
        }
        let Some(newest) = self.seconds.back_mut() else { return };
        newest.outcomes = newest.outcomes.saturating_add(1);
        if !ok {
            newest.failed = newest.failed.saturating_add(1);
            if newest.entities.len() < ENTITIES_PER_SECOND_MAX {
                newest.entities.insert(entity);
            }
        }
    }

    fn is_failing(&self) -> bool {
        let sum =
            |of: fn(&Second) -> u32| self.seconds.iter().map(|second| u64::from(of(second))).sum::<u64>();
        let (outcomes, failed) = (sum(|second| second.outcomes), sum(|second| second.failed));
        let enough = outcomes >= u64::from(self.config.outcomes_min.max(1));
        let nearly_all = failed * 100 >= outcomes * u64::from(self.config.failed_percent);
        enough && nearly_all && self.entities() >= self.config.entities_min.min(ENTITIES_PER_SECOND_MAX)
    }

    /// Different entities that failed.
    fn entities(&self) -> usize {
        self.seconds.iter().flat_map(|second| &second.entities).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_000);

    fn circuit() -> Circuit {
        Circuit::new(CircuitConfig::default())
    }

    fn fail(circuit: &mut Circuit, now: Timestamp, entities: std::ops::Range<u64>) {
        for entity in entities {
            circuit.handle_outcome(now, EntityHash(entity), false);
        }
    }

    #[test]
    fn one_bad_entity_never_trips_it_however_often_it_fails() {
        let mut circuit = circuit();
        for second in 0..600 {
            let now = START.plus(Duration::from_secs(second));
            for _ in 0..50 {
                circuit.handle_outcome(now, EntityHash(7), false);
            }
            fail(&mut circuit, now, 1..9);
        }
        assert_eq!(circuit.gate(START), Gate::Open);
    }

    #[test]
    fn it_trips_when_nearly_all_of_many_entities_fail_and_not_before() {
        let mut circuit = circuit();
        fail(&mut circuit, START, 0..19);
        assert_eq!(circuit.gate(START), Gate::Open, "too few");
        fail(&mut circuit, START, 19..20);
        assert_eq!(circuit.gate(START), Gate::Closed { until: START.plus(Duration::from_secs(1)) });

        let mut mixed = self::circuit();
        for entity in 0..100 {
            mixed.handle_outcome(START, EntityHash(entity), entity % 9 == 0);
        }
        assert_eq!(mixed.gate(START), Gate::Open, "every ninth succeeds");
    }

    #[test]
    fn failures_count_for_the_window_only() {
        let mut circuit = circuit();
        fail(&mut circuit, START, 0..19);
        let later = START.plus(Duration::from_secs(30));
        fail(&mut circuit, later, 20..21);
        assert_eq!(circuit.gate(later), Gate::Open);
        assert_eq!(circuit.seconds.len(), 1, "what is over is forgotten");
    }

    #[test]
    fn probes_that_fail_pause_for_longer_and_longer_and_one_success_opens_it() {
        let mut circuit = circuit();
        fail(&mut circuit, START, 0..20);
        let mut now = START;
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            let until = now.plus(Duration::from_secs(pause));
            assert_eq!((circuit.gate(now), circuit.poll_timeout(now)), (Gate::Closed { until }, Some(until)));
            fail(&mut circuit, now, 100..200);
            assert_eq!(circuit.gate(now), Gate::Closed { until }, "late failures say nothing new");
            now = until;
            assert_eq!(circuit.gate(now), Gate::Probe { in_flight_max: 3 });
            assert_eq!((circuit.gate(now).room(1), circuit.poll_timeout(now)), (2, None));
            fail(&mut circuit, now, 300..301);
        }
        assert!(circuit.is_tripped());
        circuit.handle_outcome(now, EntityHash(1), true);
        assert_eq!((circuit.gate(now), circuit.is_tripped()), (Gate::Open, false));
        fail(&mut circuit, now, 0..19);
        assert_eq!(circuit.gate(now), Gate::Open, "it counts anew");
    }

    #[test]
    fn a_clock_that_is_set_back_neither_trips_it_nor_lets_it_grow() {
        let mut circuit = circuit();
        for second in (0..1_000).rev() {
            circuit.handle_outcome(Timestamp::from_secs(second), EntityHash(1), false);
        }
        assert_eq!((circuit.seconds.len(), circuit.gate(START)), (1, Gate::Open));
    }
}
