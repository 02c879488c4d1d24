//! Whether a consumer saw every entity's events in their order.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The number at the end of an event's id; `None` when the id is none of ours.
pub(super) fn number_of(event_id: &str) -> Option<u64> {
    u64::from_str_radix(event_id.get(event_id.len().checked_sub(16)?..)?, 16).ok()
}

/// What a consumer has seen: event n is about entity n modulo the number of entities, and events of one entity come by
/// rising numbers.
pub(super) struct Order {
    /// Events seen of each entity.
    seen: Vec<AtomicU64>,
    again: AtomicU64,
    astray: AtomicU64,
}

/// What did not come once and in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Irregular {
    /// Offered again.
    pub(crate) again: u64,
    /// Offered before an earlier one of its entity.
    pub(crate) astray: u64,
}

impl Order {
    pub(super) fn new(entities: u64) -> anyhow::Result<Self> {
        let seen = (0..usize::try_from(entities)?).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { seen, again: AtomicU64::new(0), astray: AtomicU64::new(0) })
    }

    /// Notes an event. Events of one entity must come one after the other.
    pub(super) fn note(&self, number: u64) {
        let entities = self.seen.len() as u64;
        let (entity, place) = (number % entities, number / entities);
        let Some(seen) = usize::try_from(entity).ok().and_then(|entity| self.seen.get(entity)) else {
            return;
        };
        let expected = seen.load(Ordering::Relaxed);
        if place < expected {
            self.again.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if place > expected {
            self.astray.fetch_add(1, Ordering::Relaxed);
        }
        seen.store(place + 1, Ordering::Relaxed);
    }

    pub(super) fn irregular(&self) -> Irregular {
        Irregular { again: self.again.load(Ordering::Relaxed), astray: self.astray.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_comes_again_or_too_early_is_noticed() {
        let order = Order::new(10).expect("small");
        for number in [3, 4, 13, 23, 14] {
            order.note(number);
        }
        assert_eq!(order.irregular(), Irregular::default());
        order.note(13);
        order.note(43);
        assert_eq!(order.irregular(), Irregular { again: 1, astray: 1 });
    }

    #[test]
    fn the_number_stands_at_the_end_of_an_id() {
        assert_eq!(number_of("evt_00000007000000000000001f"), Some(31));
        assert_eq!(number_of("evt_1"), None);
    }
}
