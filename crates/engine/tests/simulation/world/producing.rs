//! Events are accepted, each with a nature of its own.

use portero_types::{EntityHash, TenantNo};
use rand::RngExt;

use super::World;
use crate::ledger::Nature;
use crate::profile::Weather;
use crate::words::Happening;

impl World {
    /// Events come in bursts.
    pub(super) fn plan_accepts(&mut self) {
        let mut left = self.shared.profile.events;
        while left > 0 {
            let at = self.shared.rng.random_range(0..self.shared.profile.lasts);
            let burst = self.shared.rng.random_range(1..9).min(left);
            for _ in 0..burst {
                self.shared.after(at, Happening::Accept);
            }
            left -= burst;
        }
    }

    pub(super) fn accept(&mut self) {
        let entities = self.shared.profile.entities;
        let number = if self.shared.profile.noisy && self.shared.chance(0.7) {
            0
        } else {
            self.shared.rng.random_range(0..entities)
        };
        let nature = self.nature(number);
        self.accept_one(number, nature);
    }

    pub(super) fn accept_finals(&mut self) {
        for number in 0..self.shared.profile.entities {
            self.accept_one(number, Nature::Fine);
        }
    }

    fn accept_one(&mut self, number: u64, nature: Nature) {
        let tenants = u64::try_from(self.shared.profile.tenants).expect("positive");
        let tenant = TenantNo(i64::try_from(number % tenants).expect("small"));
        let slot = number.wrapping_mul(0x9d) & 0xff;
        let entity = EntityHash(slot << 56 | number);
        let body_bytes = self.shared.rng.random_range(50..900);
        let now = self.shared.now;
        let entry = self.shared.store.accept(tenant, entity, body_bytes, now);
        let shard = entity.slot().shard(self.shared.profile.shards);
        self.shared.ledger.add(shard, entry.n, nature);
        let is_healthy = match self.shared.profile.weather {
            Weather::Failing => !is_failing(number),
            Weather::Stalled => !self.shared.healed,
            Weather::Storm | Weather::Planned => false,
        };
        self.shared.checker.trace(|| format!("{now}: {entity:?} {} is accepted: {nature:?}", entry.n));
        self.shared.checker.accepted(entry, is_healthy);
    }

    fn nature(&mut self, number: u64) -> Nature {
        let rng = &mut self.shared.rng;
        let (dice, times) = (rng.random_range(0..100), rng.random_range(1..4));
        match (self.shared.profile.weather, dice) {
            (Weather::Failing, _) if !is_failing(number) => Nature::Fine,
            (Weather::Failing, 0..30) => Nature::Poison,
            (Weather::Failing, 30..60) => Nature::Flaky(times),
            (Weather::Failing, 60..70) | (Weather::Storm, 62..65) => Nature::Rejected,
            (Weather::Failing, 70..80) | (Weather::Storm, 65..68) => Nature::Slow,
            (Weather::Failing, 80..85) | (Weather::Storm, 68..71) => Nature::Stuck(times),
            (Weather::Failing, 85..90) => Nature::NeverReady,
            (Weather::Failing, 90..95) => Nature::Early,
            (Weather::Storm, 71..75) => Nature::Killer(times),
            (Weather::Storm, 75..79) => Nature::Poison,
            (Weather::Storm, 79..82) => Nature::NeverReady,
            (Weather::Storm, 82..90) | (Weather::Planned, 80..88) => Nature::Early,
            (Weather::Storm, 90..) | (Weather::Planned, 88..) => Nature::Flaky(times),
            _ => Nature::Fine,
        }
    }
}

/// Every third entity fails where failures are the matter.
const fn is_failing(number: u64) -> bool {
    number % 3 == 1
}
