//! What a seed makes of the world: its size, its limits and its weather.

use std::time::Duration;

use portero_engine::{Backoff, DeadLetterPolicy, LaneConfig};
use portero_types::{LaneCount, ShardCount};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::time::SEC;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Everything: processes die, stall and are restarted, the network delays and cuts, the store's answers are lost.
    Storm,
    /// Nothing but events that fail, are slow, or come too early: whoever is healthy is not delayed.
    Failing,
    /// Nothing but a consumer that takes deliveries and then reads nothing: others are not delayed.
    Stalled,
    /// Nothing but planned restarts of replicas and consumers: nothing is counted.
    Planned,
}

impl Weather {
    pub(crate) const fn of_seed(seed: u64) -> Self {
        match seed % 6 {
            0..=2 => Self::Storm,
            3 => Self::Failing,
            4 => Self::Stalled,
            _ => Self::Planned,
        }
    }
}

pub(crate) struct Profile {
    pub(crate) weather: Weather,
    pub(crate) replicas: usize,
    pub(crate) consumers: usize,
    pub(crate) shards: ShardCount,
    pub(crate) lanes: LaneCount,
    pub(crate) entities: u64,
    pub(crate) tenants: i64,
    pub(crate) events: usize,
    /// How long events come and faults happen.
    pub(crate) lasts: u64,
    pub(crate) config: LaneConfig,
    /// Whether the replicas' wall clocks differ by minutes.
    pub(crate) skewed: bool,
    /// Whether one tenant sends most of the events.
    pub(crate) noisy: bool,
    pub(crate) events_max: u32,
    pub(crate) bytes_max: u64,
}

impl Profile {
    pub(crate) fn draw(weather: Weather, rng: &mut StdRng) -> Self {
        let is_storm = weather == Weather::Storm;
        let shards: u16 = if rng.random_bool(0.5) { 1 } else { 2 };
        let lanes = shards * if rng.random_bool(0.5) { 1 } else { 2 };
        let lanes = if is_storm { lanes } else { lanes.max(4) };
        let window_events_max = if is_storm { rng.random_range(3..24) } else { 16 };
        let policy =
            if rng.random_bool(0.3) { DeadLetterPolicy::ParkEntity } else { DeadLetterPolicy::Continue };
        let config = LaneConfig {
            attempts_max: rng.random_range(2..5),
            interruptions_max: rng.random_range(2..5),
            isolate_after: rng.random_range(1..3),
            dead_letter_policy: policy,
            backoff: Backoff { base: Duration::from_secs(1), max: Duration::from_secs(8) },
            defer_deadline: Duration::from_secs(rng.random_range(20..200)),
            window_age_max: Duration::from_secs(5),
            max_hold: Duration::from_secs(40),
            window_events_max,
            acked_max: rng.random_range(2..12),
            parked_max: rng.random_range(1..6),
            detours_max: rng.random_range(0..3),
            positions_max: if is_storm { window_events_max + rng.random_range(10..60) } else { 400 },
            idle_flush_after: Duration::from_secs(3),
            ..LaneConfig::default()
        };
        Self {
            weather,
            replicas: if is_storm { rng.random_range(2..4) } else { 2 },
            consumers: if is_storm { rng.random_range(2..5) } else { 3 },
            shards: ShardCount::new(shards).expect("a power of two"),
            lanes: LaneCount::new(lanes).expect("a power of two"),
            entities: if weather == Weather::Stalled { 20 } else { rng.random_range(4..14) },
            tenants: rng.random_range(1..4),
            events: if is_storm { rng.random_range(60..180) } else { 140 },
            lasts: if is_storm { rng.random_range(60..180) * SEC } else { 60 * SEC },
            config,
            skewed: is_storm && rng.random_bool(0.5),
            noisy: rng.random_bool(0.4),
            events_max: match weather {
                Weather::Storm => rng.random_range(1..12),
                Weather::Stalled => 2,
                Weather::Failing | Weather::Planned => 24,
            },
            bytes_max: if is_storm { rng.random_range(500..3_000) } else { 100_000 },
        }
    }
}
