//! A map whose copies cost little.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;

/// How many parts a map is cut into. A copy costs so much, and a change a hundredth part of the whole.
const PARTS: usize = 256;

/// A map that is cut into parts: copies share those that neither has changed since.
#[derive(Debug)]
pub(crate) struct SharedMap<K, V> {
    hasher: RandomState,
    parts: Vec<Arc<HashMap<K, V>>>,
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        Self { hasher: self.hasher.clone(), parts: self.parts.clone() }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        let empty = Arc::new(HashMap::new());
        Self { hasher: RandomState::new(), parts: vec![empty; PARTS] }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> SharedMap<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.parts[self.part(key)].get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let part = self.part(&key);
        Arc::make_mut(&mut self.parts[part]).insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let part = self.part(key);
        // What is not there need not be copied.
        self.parts[part].contains_key(key).then(|| Arc::make_mut(&mut self.parts[part]).remove(key))?
    }

    /// The value of a key, the default one when there is none yet.
    pub(crate) fn entry(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let part = self.part(&key);
        Arc::make_mut(&mut self.parts[part]).entry(key).or_default()
    }

    /// In no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.parts.iter().flat_map(|part| part.values())
    }

    fn part(&self, key: &K) -> usize {
        usize::try_from(self.hasher.hash_one(key) % PARTS as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_see_what_becomes_of_the_original() {
        let mut one = SharedMap::default();
        for n in 0..1_000 {
            one.insert(n, n);
        }
        let two = one.clone();
        one.insert(7, 70);
        one.insert(1_000, 1_000);
        assert_eq!(one.remove(&8), Some(8));
        assert_eq!(one.remove(&8), None);
        assert_eq!((one.get(&7), one.get(&8), one.get(&1_000)), (Some(&70), None, Some(&1_000)));
        assert_eq!((two.get(&7), two.get(&8), two.get(&1_000)), (Some(&7), Some(&8), None));
        let mut values: Vec<i32> = two.values().copied().collect();
        values.sort_unstable();
        assert_eq!(values, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_change_copies_one_part() {
        let mut one = SharedMap::default();
        for n in 0..10_000 {
            one.insert(n, n);
        }
        let two = one.clone();
        one.insert(7, 70);
        one.remove(&100_000);
        let own = one.parts.iter().zip(&two.parts).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(own, 1);
    }
}
