//! A bounded map whose least recently used entry makes room.

use std::collections::{BTreeMap, HashMap};

/// Holds at most as many entries as it was made for.
#[derive(Debug)]
pub(crate) struct Lru<V> {
    entries_max: usize,
    entries: HashMap<String, (u64, V)>,
    /// Keys by the turn of their last use.
    by_turn: BTreeMap<u64, String>,
    turn: u64,
}

impl<V> Lru<V> {
    /// An empty one; `entries_max` is at least 1.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries_max: entries_max.max(1), entries: HashMap::new(), by_turn: BTreeMap::new(), turn: 0 }
    }

    /// The value, which is now the most recently used one.
    pub(crate) fn get(&mut self, key: &str) -> Option<&V> {
        let (turn, value) = self.entries.get_mut(key)?;
        if let Some(key) = self.by_turn.remove(turn) {
            self.turn += 1;
            *turn = self.turn;
            self.by_turn.insert(self.turn, key);
        }
        Some(value)
    }

    /// Sets a value.
    pub(crate) fn insert(&mut self, key: &str, value: V) {
        self.remove(key);
        if self.entries.len() >= self.entries_max
            && let Some((_, oldest)) = self.by_turn.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.turn += 1;
        self.by_turn.insert(self.turn, key.to_owned());
        self.entries.insert(key.to_owned(), (self.turn, value));
    }

    /// Forgets a value.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Some((turn, _)) = self.entries.remove(key) {
            self.by_turn.remove(&turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_makes_room() {
        let mut lru = Lru::new(2);
        lru.insert("a", 1);
        lru.insert("b", 2);
        assert_eq!(lru.get("a"), Some(&1));
        lru.insert("c", 3);
        assert_eq!(["a", "b", "c"].map(|key| lru.get(key).copied()), [Some(1), None, Some(3)]);
        lru.insert("c", 4);
        assert_eq!(
            ["a", "c"].map(|key| lru.get(key).copied()),
            [Some(1), Some(4)],
            "setting again takes no room"
        );
        lru.remove("a");
        assert_eq!(lru.get("a"), None);
        assert_eq!((lru.entries.len(), lru.by_turn.len()), (1, 1));
    }
}
