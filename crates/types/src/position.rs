//! Where an event stands: shard and position in the log, slot and lane for a subscription.
//!
//! `slot = top 8 bits of the entity hash`, `shard = top bits of the slot`, `lane = top bits of the slot`. Because a
//! subscription has at least as many lanes as there are shards, a lane lies inside one shard and its cursor is one number.

use std::fmt;
use std::ops::RangeInclusive;

use crate::{InvalidId, TenantId};

/// The stable 64-bit hash of an entity: XXH3-64 (seed 0) over the tenant id, one zero byte and the ordering key.
///
/// It is stored and compared across releases and replicas, so it may never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityHash(pub u64);

impl EntityHash {
    /// Hashes an entity of a tenant.
    #[must_use]
    pub fn of(tenant: &TenantId, ordering_key: &str) -> Self {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        hasher.update(tenant.as_str().as_bytes());
        hasher.update(&[0]);
        hasher.update(ordering_key.as_bytes());
        Self(hasher.digest())
    }

    /// The slot: the top 8 bits.
    #[must_use]
    pub const fn slot(self) -> Slot {
        Slot(self.0.to_be_bytes()[0])
    }

    /// The same 64 bits as a signed number, for databases without unsigned columns.
    #[must_use]
    pub const fn to_bits(self) -> i64 {
        i64::from_ne_bytes(self.0.to_ne_bytes())
    }

    /// From the signed form.
    #[must_use]
    pub const fn from_bits(bits: i64) -> Self {
        Self(u64::from_ne_bytes(bits.to_ne_bytes()))
    }
}

/// One of 256 equal parts of the entity space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

impl Slot {
    /// The shard that this slot lies in.
    #[must_use]
    pub const fn shard(self, shards: ShardCount) -> Shard {
        Shard(top_bits(self.0, shards.0))
    }

    /// The lane that this slot lies in.
    #[must_use]
    pub const fn lane(self, lanes: LaneCount) -> LaneNo {
        LaneNo(top_bits(self.0, lanes.0))
    }
}

/// `slot` scaled from 0..256 to 0..parts, where `parts` is a power of two up to 256.
#[expect(clippy::cast_possible_truncation, reason = "a byte times 256 divided by 256 is a byte")]
const fn top_bits(slot: u8, parts: u16) -> u8 {
    ((slot as u16 as u32 * parts as u32) >> 8) as u8
}

/// A part of the log with an order of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u8);

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One of a subscription's independent parts: a range of slots inside one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneNo(pub u8);

impl fmt::Display for LaneNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many shards the log has: a power of two from 1 to 64, fixed at installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardCount(u16);

impl ShardCount {
    /// Four, the number that a new installation gets.
    pub const DEFAULT: Self = Self(4);

    /// Checks and wraps a count.
    ///
    /// # Errors
    /// [`InvalidId`] when it is not a power of two from 1 to 64.
    pub fn new(count: u16) -> Result<Self, InvalidId> {
        if count.is_power_of_two() && count <= 64 {
            Ok(Self(count))
        } else {
            Err(InvalidId { what: "the number of shards", rule: "a power of two from 1 to 64" })
        }
    }

    /// The count.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// All shards in order.
    pub fn shards(self) -> impl Iterator<Item = Shard> {
        (0..=u8::MAX).take(usize::from(self.0)).map(Shard)
    }
}

/// How many lanes a subscription has: a power of two from 1 to 256, fixed at creation, not below the shard count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCount(u16);

impl LaneCount {
    /// Sixteen, the number that a subscription gets when its creator does not say.
    pub const DEFAULT: Self = Self(16);

    /// Checks and wraps a count.
    ///
    /// # Errors
    /// [`InvalidId`] when it is not a power of two from 1 to 256.
    pub fn new(count: u16) -> Result<Self, InvalidId> {
        if count.is_power_of_two() && count <= 256 {
            Ok(Self(count))
        } else {
            Err(InvalidId { what: "the number of lanes", rule: "a power of two from 1 to 256" })
        }
    }

    /// The count.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// All lanes in order.
    pub fn lanes(self) -> impl Iterator<Item = LaneNo> {
        (0..=u8::MAX).take(usize::from(self.0)).map(LaneNo)
    }

    /// The slots of one lane.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a lane below the count ends at slot 255 at most")]
    pub fn slots(self, lane: LaneNo) -> RangeInclusive<u8> {
        let width = 256 / self.0;
        let first = u16::from(lane.0) * width;
        (first as u8)..=((first + width - 1) as u8)
    }

    /// The shard that a lane lies in.
    #[must_use]
    pub fn shard_of(self, lane: LaneNo, shards: ShardCount) -> Shard {
        Slot(*self.slots(lane).start()).shard(shards)
    }
}

/// A place in the log. Positions rise in commit order within a shard; between shards there is no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The shard.
    pub shard: Shard,
    /// The position within the shard; the first is 1, holes are allowed.
    pub n: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.n)
    }
}

/// The log's incarnation: it rises when committed state was lost (restore, failover to a lagging standby), after which
/// positions may be handed out again. (generation, shard, position) is what a consumer may fence with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub i64);

/// How often a lane changed its owner. Part of every delivery token, so that a former owner's tokens are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entity_hash_is_pinned() {
        let hash = EntityHash::of(&TenantId::new("acme").expect("valid"), "stripe:sub_9001");
        assert_eq!(hash, EntityHash::from_bits(hash.to_bits()));
        assert_eq!(hash.0, xxhash_rust::xxh3::xxh3_64(b"acme\0stripe:sub_9001"));
    }

    #[test]
    fn every_slot_is_in_exactly_one_lane_and_that_lane_in_one_shard() {
        for lanes in [4, 16, 64, 256].map(|n| LaneCount::new(n).expect("valid")) {
            let mut seen = 0;
            for lane in lanes.lanes() {
                for slot in lanes.slots(lane) {
                    seen += 1;
                    assert_eq!(Slot(slot).lane(lanes), lane);
                    assert_eq!(
                        Slot(slot).shard(ShardCount::DEFAULT),
                        lanes.shard_of(lane, ShardCount::DEFAULT)
                    );
                }
            }
            assert_eq!(seen, 256);
        }
    }

    #[test]
    fn counts_are_powers_of_two_within_bounds() {
        assert!(ShardCount::new(0).is_err() && ShardCount::new(3).is_err() && ShardCount::new(128).is_err());
        assert!(LaneCount::new(0).is_err() && LaneCount::new(12).is_err() && LaneCount::new(512).is_err());
    }
}
