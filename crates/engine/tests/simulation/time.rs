//! Virtual time, and what is to happen in it.

use std::collections::BTreeMap;

/// One millisecond; everything counts in microseconds.
pub(crate) const MS: u64 = 1_000;
/// One second.
pub(crate) const SEC: u64 = 1_000 * MS;

/// What is to happen, by moment; at the same moment in the order in which it was planned.
pub(crate) struct Queue<T> {
    next: u64,
    items: BTreeMap<(u64, u64), T>,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Self {
        Self { next: 0, items: BTreeMap::new() }
    }

    pub(crate) fn push(&mut self, at: u64, item: T) {
        self.next += 1;
        self.items.insert((at, self.next), item);
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        self.items.pop_first().map(|((at, _), item)| (at, item))
    }
}
