//! Whose turn it is: tenants alternate, however much each of them has waiting.

use std::collections::{BTreeMap, HashMap};

use portero_types::{EntityHash, TenantNo};

/// Tenants that are remembered before those without anything ahead are forgotten.
const TENANTS_MAX: usize = 1_024;

/// A place in the queue. Lower ones are served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Turn {
    /// In each round every tenant has one turn.
    round: u64,
    serial: u64,
}

/// Entities that wait for a stream.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queue: BTreeMap<Turn, EntityHash>,
    /// Round of the last turn that was served.
    round: u64,
    /// The first round in which a tenant has no turn yet.
    next: HashMap<TenantNo, u64>,
    serial: u64,
}

impl Turns {
    /// A turn behind all others of its tenant, and in the present round if the tenant has none in it.
    pub(crate) fn give(&mut self, tenant: TenantNo) -> Turn {
        if self.queue.is_empty() {
            self.next.clear();
        } else if self.next.len() >= TENANTS_MAX {
            let present = self.round;
            self.next.retain(|_, next| *next > present);
        }
        let next = self.next.entry(tenant).or_default();
        let round = self.round.max(*next);
        *next = round + 1;
        self.serial += 1;
        Turn { round, serial: self.serial }
    }

    pub(crate) fn enter(&mut self, turn: Turn, entity: EntityHash) {
        self.queue.insert(turn, entity);
    }

    /// Takes a turn out of the queue, if it is in it.
    pub(crate) fn leave(&mut self, turn: Turn) {
        self.queue.remove(&turn);
    }

    /// A turn was served: its round is the present one.
    pub(crate) fn has_served(&mut self, turn: Turn) {
        self.round = self.round.max(turn.round);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The entity that is first in line.
    pub(crate) fn first(&self) -> Option<EntityHash> {
        self.queue.first_key_value().map(|(_, entity)| *entity)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tenants in the order in which they are served; an entity's number is its tenant's here.
    fn served(turns: &mut Turns, given: &[i64]) -> Vec<u64> {
        let mut all = BTreeMap::new();
        for tenant in given {
            let turn = turns.give(TenantNo(*tenant));
            let entity = EntityHash(u64::try_from(*tenant).expect("positive"));
            turns.enter(turn, entity);
            all.insert(turn, entity);
        }
        all.into_iter()
            .map(|(turn, entity)| {
                assert_eq!(turns.first(), Some(entity));
                turns.leave(turn);
                turns.has_served(turn);
                entity.0
            })
            .collect()
    }

    #[test]
    fn one_tenant_is_served_in_the_order_of_its_turns_and_several_alternate() {
        let mut turns = Turns::default();
        assert_eq!(served(&mut turns, &[1, 1, 1, 1, 2, 3, 2]), [1, 2, 3, 1, 2, 1, 1]);
    }

    #[test]
    fn a_tenant_that_comes_later_neither_waits_behind_a_crowd_nor_makes_up_for_its_absence() {
        let mut turns = Turns::default();
        let crowd: Vec<Turn> = (0..100)
            .map(|_| {
                let turn = turns.give(TenantNo(1));
                turns.enter(turn, EntityHash(1));
                turn
            })
            .collect();
        for turn in &crowd[..50] {
            turns.leave(*turn);
            turns.has_served(*turn);
        }
        let late: Vec<Turn> = (0..3).map(|_| turns.give(TenantNo(2))).collect();
        assert!(late[0] < crowd[50], "it has a turn in the round that was served last");
        assert!(late[1] > crowd[50] && late[1] < crowd[52], "then they alternate");
        assert!(late[2] > crowd[51] && late[2] < crowd[53]);
    }

    #[test]
    fn tenants_with_nothing_ahead_are_forgotten() {
        let mut turns = Turns::default();
        let first = turns.give(TenantNo(0));
        turns.enter(first, EntityHash(0));
        for tenant in 1..10_000 {
            let turn = turns.give(TenantNo(tenant));
            turns.enter(turn, EntityHash(1));
            turns.leave(turn);
            turns.has_served(turn);
            let turn = turns.give(TenantNo(tenant));
            turns.enter(turn, EntityHash(1));
            turns.leave(turn);
            turns.has_served(turn);
        }
        assert!(turns.next.len() <= TENANTS_MAX + 1, "{}", turns.next.len());
    }
}
