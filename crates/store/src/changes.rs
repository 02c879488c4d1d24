//! What changed since a revision, so that one change costs as much as it is large.

use std::collections::{BTreeMap, BTreeSet};

use portero_types::{GrantNo, SecretNo, SourceNo, SubscriptionNo, TenantNo, Timestamp};

use crate::{
    ConfigSnapshot, FreedName, Grant, Name, Revision, Secret, Source, Subscription, Tenant, TenantKey,
};

/// What changed since a revision.
#[derive(Clone, Debug)]
pub enum ConfigChanges {
    /// Only this.
    Delta(ConfigDelta),
    /// Everything there is: what was deleted since is no longer known, or the revision asked for is not of this history.
    Full(ConfigSnapshot),
}

impl ConfigChanges {
    /// The revision that they lead to.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        match self {
            Self::Delta(delta) => delta.revision,
            Self::Full(snapshot) => snapshot.revision,
        }
    }
}

/// What was created or changed, as it is now, and what is gone. A row may be among them though it did not change. What was
/// created and deleted in between is only among what is gone.
#[derive(Clone, Debug, Default)]
pub struct ConfigDelta {
    /// The revision that it leads to.
    pub revision: Revision,
    /// Tenants.
    pub tenants: Vec<Tenant>,
    /// Data keys: all of each tenant that got one.
    pub tenant_keys: Vec<TenantKey>,
    /// Sources.
    pub sources: Vec<Source>,
    /// Secrets.
    pub secrets: Vec<Secret>,
    /// Subscriptions.
    pub subscriptions: Vec<Subscription>,
    /// Grants.
    pub grants: Vec<Grant>,
    /// Names that were given up, once more or for the first time.
    pub freed_names: Vec<FreedName>,
    /// What is gone. Some of it may never have been known.
    pub removed: Removed,
}

/// Numbers of what is gone. A number is never used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Tenants: deleted or erased.
    pub tenants: Vec<TenantNo>,
    /// Tenants whose data keys were destroyed.
    pub tenant_keys: Vec<TenantNo>,
    /// Sources.
    pub sources: Vec<SourceNo>,
    /// Secrets: deleted, or over for more than a day.
    pub secrets: Vec<SecretNo>,
    /// Subscriptions.
    pub subscriptions: Vec<SubscriptionNo>,
    /// Grants.
    pub grants: Vec<GrantNo>,
}

impl Removed {
    /// Adds what a tombstone names. `false` when it names no kind that is known.
    pub fn add(&mut self, kind: &str, no: i64) -> bool {
        match kind {
            "tenant" => self.tenants.push(TenantNo(no)),
            "tenant_keys" => self.tenant_keys.push(TenantNo(no)),
            "source" => self.sources.push(SourceNo(no)),
            "secret" => self.secrets.push(SecretNo(no)),
            "subscription" => self.subscriptions.push(SubscriptionNo(no)),
            "grant" => self.grants.push(GrantNo(no)),
            _ => return false,
        }
        true
    }
}

impl ConfigDelta {
    /// Adds changed secrets. Those that a snapshot leaves out because they are over for more than a day at `now` are gone.
    pub fn add_secrets(&mut self, secrets: Vec<Secret>, now: Timestamp) {
        for secret in secrets {
            if secret.is_long_over(now) {
                self.removed.secrets.push(secret.no);
            } else {
                self.secrets.push(secret);
            }
        }
    }
}

impl Secret {
    /// Whether it is past its end or its revocation by a day or more: snapshots leave it out then.
    #[must_use]
    pub fn is_long_over(&self, now: Timestamp) -> bool {
        let end = match (self.not_after, self.revoked_at) {
            (Some(end), Some(revoked)) => Some(end.min(revoked)),
            (end, revoked) => end.or(revoked),
        };
        end.is_some_and(|end| end.plus(std::time::Duration::from_hours(24)) <= now)
    }
}

impl ConfigSnapshot {
    /// Applies a delta that was asked for with this snapshot's revision. Everything is in the order of numbers
    /// or names afterwards.
    pub fn apply(&mut self, delta: ConfigDelta) {
        self.revision = delta.revision;
        let Removed { tenants, tenant_keys, sources, secrets, subscriptions, grants } = delta.removed;
        merge(&mut self.tenants, delta.tenants, tenants, |tenant| tenant.no);
        let changed: BTreeSet<TenantNo> = delta.tenant_keys.iter().map(|key| key.tenant_no).collect();
        self.tenant_keys.retain(|key| !changed.contains(&key.tenant_no));
        self.tenant_keys.extend(delta.tenant_keys);
        self.tenant_keys.retain(|key| !tenant_keys.contains(&key.tenant_no));
        self.tenant_keys.sort_by_key(|key| (key.tenant_no, key.key.version));
        merge(&mut self.sources, delta.sources, sources, |source| source.no);
        merge(&mut self.secrets, delta.secrets, secrets, |secret| secret.no);
        merge(&mut self.subscriptions, delta.subscriptions, subscriptions, |subscription| subscription.no);
        merge(&mut self.grants, delta.grants, grants, |grant| grant.no);
        let all = std::mem::take(&mut self.freed_names).into_iter().chain(delta.freed_names);
        let by_name: BTreeMap<Name, FreedName> = all.map(|freed| (freed.name.clone(), freed)).collect();
        self.freed_names = by_name.into_values().collect();
    }
}

fn merge<T, N: Ord + Copy>(known: &mut Vec<T>, changed: Vec<T>, removed: Vec<N>, no: impl Fn(&T) -> N) {
    let removed: BTreeSet<N> = removed.into_iter().collect();
    let all = std::mem::take(known).into_iter().chain(changed);
    let by_no: BTreeMap<N, T> =
        all.map(|item| (no(&item), item)).filter(|(no, _)| !removed.contains(no)).collect();
    *known = by_no.into_values().collect();
}
