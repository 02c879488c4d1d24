//! What one tenant's requests hold at once: a part of what the gateway holds, so that there is always room for others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portero_types::TenantNo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::BodyError;

/// Counts of what is held, by key. Nothing is kept of a key that holds nothing.
#[derive(Debug)]
pub(crate) struct Held<K: Eq + Hash> {
    most: usize,
    counts: Mutex<HashMap<K, usize>>,
}

impl<K: Copy + Eq + Hash> Held<K> {
    /// At most so many for each key.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, counts: Mutex::default() })
    }

    /// So many for a key, until they are dropped; `None` when it would have too many.
    pub(crate) fn take(self: &Arc<Self>, key: K, count: usize) -> Option<Part<K>> {
        if count > 0 {
            let mut counts = self.lock();
            let held = counts.get(&key).copied().unwrap_or(0);
            let after = held.checked_add(count).filter(|after| *after <= self.most)?;
            counts.insert(key, after);
        }
        Some(Part { held: Arc::clone(self), key, count })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        // Nothing under this lock panics.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a key holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Part<K: Copy + Eq + Hash> {
    held: Arc<Held<K>>,
    key: K,
    count: usize,
}

impl<K: Copy + Eq + Hash> Drop for Part<K> {
    fn drop(&mut self) {
        if self.count == 0 {
            return;
        }
        let mut counts = self.held.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count = count.saturating_sub(self.count);
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

/// The memory for bodies as one tenant has it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// One permit per byte of a body that may still be held.
    whole: Arc<Semaphore>,
    parts: Arc<Held<TenantNo>>,
    tenant: TenantNo,
}

impl Memory {
    /// A tenant's.
    pub(crate) const fn new(whole: Arc<Semaphore>, parts: Arc<Held<TenantNo>>, tenant: TenantNo) -> Self {
        Self { whole, parts, tenant }
    }

    /// A share of so many bytes.
    ///
    /// # Errors
    /// [`BodyError::TenantMemory`] when the tenant's part is used up, [`BodyError::NoMemory`] when all of it is.
    pub(crate) fn take(&self, bytes: usize) -> Result<Share, BodyError> {
        let permits = u32::try_from(bytes).map_err(|_| BodyError::TooLarge)?;
        let part = self.parts.take(self.tenant, bytes).ok_or(BodyError::TenantMemory)?;
        let permit = Arc::clone(&self.whole).try_acquire_many_owned(permits);
        Ok(Share { permit: permit.map_err(|_| BodyError::NoMemory)?, part })
    }
}

/// Bytes of the memory for bodies, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    permit: OwnedSemaphorePermit,
    part: Part<TenantNo>,
}

impl Share {
    /// How many bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.permit.num_permits()
    }

    /// Makes one of two that the same memory gave.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.part.count += std::mem::take(&mut other.part.count);
        self.permit.merge(other.permit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(whole: usize, part: usize) -> (Arc<Semaphore>, Arc<Held<TenantNo>>) {
        (Arc::new(Semaphore::new(whole)), Held::new(part))
    }

    #[test]
    fn a_tenant_has_its_part_and_others_have_theirs() {
        let held = Held::new(2);
        let first = held.take(TenantNo(1), 1);
        let second = held.take(TenantNo(1), 1);
        assert!(first.is_some() && second.is_some());
        assert!(held.take(TenantNo(1), 1).is_none());
        assert!(held.take(TenantNo(2), 2).is_some(), "another one");
        drop(first);
        assert!(held.take(TenantNo(1), 1).is_some());
        drop(second);
        assert!(held.lock().is_empty(), "nothing is kept of who holds nothing");
        assert!(held.take(TenantNo(1), usize::MAX).is_none());
    }

    #[test]
    fn memory_is_refused_by_the_part_or_by_the_whole_and_given_back() {
        let (whole, parts) = memory(10, 6);
        let of = |tenant| Memory::new(Arc::clone(&whole), Arc::clone(&parts), TenantNo(tenant));
        let mut share = of(1).take(4).expect("there is room");
        share.merge(of(1).take(2).expect("there is room"));
        assert_eq!(share.bytes(), 6);
        assert_eq!(of(1).take(1).expect_err("its part is used up"), BodyError::TenantMemory);
        assert_eq!(of(2).take(5).expect_err("the whole is used up"), BodyError::NoMemory);
        let other = of(2).take(4).expect("there is room");
        drop((share, other));
        assert_eq!(whole.available_permits(), 10);
        assert!(parts.lock().is_empty());
    }
}
