//! What is held at once, in requests or in bytes of bodies, and who may hold which part of it.
//!
//! - One tenant holds a part of the whole, so that there is always room for others.
//! - Strangers, addresses from which nothing has verified yet, hold a half: of what their tenant may, and of the whole. Who
//!   sends bodies slowly, or announces large ones that never come, takes no room from a provider that is known.
//! - One strange address holds a half of what its tenant's strangers may.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portero_types::TenantNo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client::Client;

/// Whose request holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Whose source it is for.
    pub(crate) tenant: TenantNo,
    /// Where it comes from, when nothing has verified from there yet.
    pub(crate) stranger: Option<Client>,
}

/// What is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All that there is.
    Whole,
    /// The tenant's part.
    Tenant,
    /// What those may hold from whom nothing has verified yet.
    Strangers,
}

/// Room for so much at once.
#[derive(Debug)]
pub(crate) struct Room {
    /// One permit per unit that may still be held.
    whole: Arc<Semaphore>,
    tenants: Arc<Held<TenantNo>>,
    strangers: Arc<Held<()>>,
    of_tenant: Arc<Held<TenantNo>>,
    of_address: Arc<Held<(TenantNo, Client)>>,
}

impl Room {
    /// Room for `whole`, of which a tenant may hold so many percent. Whatever the parts are, each has room for `one`: the
    /// largest that is taken at once.
    pub(crate) fn new(whole: usize, tenant_percent: u32, one: usize) -> Self {
        let tenant = (whole.saturating_mul(tenant_percent as usize) / 100).max(one);
        Self {
            whole: Arc::new(Semaphore::new(whole)),
            tenants: Held::new(tenant),
            strangers: Held::new((whole / 2).max(one)),
            of_tenant: Held::new((tenant / 2).max(one)),
            of_address: Held::new((tenant / 4).max(one)),
        }
    }

    /// A share of so much, until it is dropped. Never waits.
    ///
    /// # Errors
    /// [`Full`] says for want of what; nothing is held then.
    pub(crate) fn take(&self, holder: Holder, count: usize) -> Result<Share, Full> {
        let stranger = holder.stranger.map(|client| self.of_stranger(holder.tenant, client, count));
        let stranger = stranger.transpose()?;
        let tenant = self.tenants.take(holder.tenant, count).ok_or(Full::Tenant)?;
        let permits = u32::try_from(count).map_err(|_| Full::Whole)?;
        let permit = Arc::clone(&self.whole).try_acquire_many_owned(permits).map_err(|_| Full::Whole)?;
        Ok(Share { permit, tenant, stranger })
    }

    fn of_stranger(&self, tenant: TenantNo, client: Client, count: usize) -> Result<OfStranger, Full> {
        Ok(OfStranger {
            address: self.of_address.take((tenant, client), count).ok_or(Full::Strangers)?,
            tenant: self.of_tenant.take(tenant, count).ok_or(Full::Strangers)?,
            all: self.strangers.take((), count).ok_or(Full::Strangers)?,
        })
    }

    /// How much may still be held.
    #[cfg(test)]
    pub(crate) fn available(&self) -> usize {
        self.whole.available_permits()
    }
}

/// The memory for bodies, as one sender has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory<'a> {
    room: &'a Room,
    holder: Holder,
}

impl<'a> Memory<'a> {
    /// A sender's.
    pub(crate) const fn new(room: &'a Room, holder: Holder) -> Self {
        Self { room, holder }
    }

    /// That of the only tenant that there is.
    #[cfg(test)]
    pub(crate) const fn of_one(room: &'a Room) -> Self {
        Self::new(room, Holder { tenant: TenantNo(1), stranger: None })
    }

    /// A share of so many bytes.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(crate) fn take(&self, bytes: usize) -> Result<Share, Full> {
        self.room.take(self.holder, bytes)
    }
}

/// A part of the room, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    permit: OwnedSemaphorePermit,
    tenant: Part<TenantNo>,
    stranger: Option<OfStranger>,
}

#[derive(Debug)]
struct OfStranger {
    address: Part<(TenantNo, Client)>,
    tenant: Part<TenantNo>,
    all: Part<()>,
}

impl Share {
    /// How much.
    pub(crate) fn count(&self) -> usize {
        self.permit.num_permits()
    }

    /// Makes one of two that the same room gave to the same holder.
    pub(crate) fn merge(&mut self, other: Self) {
        self.permit.merge(other.permit);
        self.tenant.merge(other.tenant);
        if let (Some(own), Some(other)) = (&mut self.stranger, other.stranger) {
            own.address.merge(other.address);
            own.tenant.merge(other.tenant);
            own.all.merge(other.all);
        }
    }
}

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

impl<K: Copy + Eq + Hash> Part<K> {
    /// Makes one of two of the same key.
    fn merge(&mut self, mut other: Self) {
        self.count += std::mem::take(&mut other.count);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn known(tenant: i64) -> Holder {
        Holder { tenant: TenantNo(tenant), stranger: None }
    }

    fn strange(tenant: i64, last: u8) -> Holder {
        Holder { stranger: Some(Client::of([192, 0, 2, last].into())), ..known(tenant) }
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
    fn room_is_refused_by_the_part_or_by_the_whole_and_given_back() {
        let room = Room::new(10, 60, 1);
        let mut share = room.take(known(1), 4).expect("there is room");
        share.merge(room.take(known(1), 2).expect("there is room"));
        assert_eq!(share.count(), 6);
        assert_eq!(room.take(known(1), 1).expect_err("its part is used up"), Full::Tenant);
        assert_eq!(room.take(known(2), 5).expect_err("the whole is used up"), Full::Whole);
        let other = room.take(known(2), 4).expect("there is room");
        drop((share, other));
        assert_eq!(room.available(), 10);
        assert!(room.tenants.lock().is_empty());
    }

    #[test]
    fn strangers_leave_half_of_everything_to_those_who_are_known() {
        let room = Room::new(32, 50, 1);
        let mut held: Vec<_> = (1..=4).map(|_| room.take(strange(1, 1), 1).expect("there is room")).collect();
        assert_eq!(room.take(strange(1, 1), 1).expect_err("one address"), Full::Strangers);
        held.extend((1..=4).map(|_| room.take(strange(1, 2), 1).expect("there is room")));
        assert_eq!(room.take(strange(1, 3), 1).expect_err("one tenant's strangers"), Full::Strangers);
        let provider = room.take(known(1), 8).expect("the other half is for those who are known");
        held.extend([1, 2].map(|last| room.take(strange(2, last), 4).expect("another tenant's strangers")));
        assert_eq!(room.take(strange(3, 1), 1).expect_err("all strangers"), Full::Strangers);
        drop(room.take(known(3), 8).expect("the other half is for those who are known"));
        let mut share = held.pop().expect("some");
        share.merge(room.take(strange(2, 2), 0).expect("nothing is always there"));
        drop((share, held, provider));
        assert_eq!(room.available(), 32);
        let is_empty = room.of_address.lock().is_empty() && room.of_tenant.lock().is_empty();
        assert!(is_empty && room.strangers.lock().is_empty() && room.tenants.lock().is_empty());
    }

    #[test]
    fn the_largest_that_is_taken_at_once_fits_into_every_part() {
        let room = Room::new(10, 1, 9);
        for holder in [known(1), strange(1, 1)] {
            drop(room.take(holder, 9).expect("there is room"));
        }
    }
}
