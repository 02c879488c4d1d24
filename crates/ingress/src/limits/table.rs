//! A map with a bound, which forgets what was not used for longest.
//!
//! It keeps two generations. What is used is or comes into the young one; when that is full it becomes the old one, and what
//! the old one still held is forgotten. So every operation takes constant time, and an entry stays at least until half as
//! many other keys as the table holds were used after it.

use std::collections::HashMap;
use std::hash::Hash;

/// See the module.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Most entries of one generation.
    half: usize,
}

impl<K: Copy + Eq + Hash, V> Table<K, V> {
    /// One that holds at most so many entries, at least two.
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (entries_max / 2).max(1) }
    }

    /// The entry of a key, which counts as used; made if it is not there.
    pub(crate) fn entry(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).unwrap_or_else(make);
            self.insert(key, value);
        }
        self.young.entry(key).or_insert_with(|| unreachable!("it was inserted"))
    }

    /// The entry of a key, which counts as used; `None` when it is not there.
    pub(crate) fn get(&mut self, key: K) -> Option<&mut V> {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key)?;
            self.insert(key, value);
        }
        self.young.get_mut(&key)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(key, value);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_is_forgotten() {
        let mut table = Table::new(8);
        for key in 0..100 {
            table.entry(key, || key);
            assert_eq!(table.get(0).copied(), Some(0), "used all the time");
        }
        assert_eq!(table.get(50), None);
        assert_eq!(table.get(99).copied(), Some(99));
    }

    proptest! {
        #[test]
        fn it_is_bounded_and_remembers_what_was_used_last(
            entries_max in 2..40_usize,
            keys in prop::collection::vec((0..60_u8, any::<bool>()), 0..400),
        ) {
            let mut table = Table::new(entries_max);
            // Keys by their last use, the latest last.
            let mut used: Vec<u8> = Vec::new();
            for (key, only_look) in keys {
                let known = used.iter().rev().position(|one| *one == key);
                let found = if only_look {
                    table.get(key).is_some()
                } else {
                    let mut made = false;
                    let value = *table.entry(key, || { made = true; key });
                    prop_assert_eq!(value, key);
                    !made
                };
                prop_assert!(table.len() <= entries_max.max(2));
                match known {
                    None => prop_assert!(!found),
                    Some(others) if others < entries_max / 2 => prop_assert!(found, "only {} others since", others),
                    Some(_) => {}
                }
                if found || !only_look {
                    used.retain(|one| *one != key);
                    used.push(key);
                } else {
                    used.retain(|one| *one != key);
                }
            }
        }
    }
}
