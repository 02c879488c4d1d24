//! From rows to a snapshot: from all of them, or from the former snapshot and what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portero_keyring::Keyring;
use portero_store::{
    ConfigDelta, ConfigSnapshot, FreedName, Grant, Name, Removed, Subscription, Tenant, TenantKey,
};
use portero_types::{SourceNo, TenantNo, Timestamp};

use crate::grants::Grants;
use crate::keys::Held;
use crate::secrets;
use crate::snapshot::{Origin, Snapshot, Source};

impl Snapshot {
    /// Makes stored configuration ready. Sources whose rows did not change are taken over from `former`.
    #[must_use]
    pub fn build(stored: ConfigSnapshot, keyring: &Keyring, former: Option<&Self>) -> Self {
        let everything = ConfigDelta {
            revision: stored.revision,
            tenants: stored.tenants,
            tenant_keys: stored.tenant_keys,
            sources: stored.sources,
            secrets: stored.secrets,
            subscriptions: stored.subscriptions,
            grants: stored.grants,
            freed_names: stored.freed_names,
            removed: Removed::default(),
        };
        Self::default().changed(everything, keyring, former)
    }

    /// What it is after a change. Costs as much as the change is large: everything else is shared with this one.
    #[must_use]
    pub fn apply(&self, delta: ConfigDelta, keyring: &Keyring) -> Self {
        self.clone().changed(delta, keyring, None)
    }

    /// This with what can be opened of these rows, which are all data keys of some tenants; `None` when it is the same.
    #[must_use]
    pub(crate) fn reopened(&self, rows: Vec<TenantKey>, keyring: &Keyring) -> Option<Self> {
        let tenants: BTreeSet<TenantNo> = rows.iter().map(|row| row.tenant_no).collect();
        let delta = ConfigDelta { revision: self.revision, tenant_keys: rows, ..ConfigDelta::default() };
        let after = self.apply(delta, keyring);
        let is_same = |no: &TenantNo| match (self.keys.get(no), after.keys.get(no)) {
            (Some(former), Some(held)) => Arc::ptr_eq(former, held),
            _ => false,
        };
        (!tenants.iter().all(is_same)).then_some(after)
    }

    fn changed(mut self, mut delta: ConfigDelta, keyring: &Keyring, known: Option<&Self>) -> Self {
        self.revision = delta.revision;
        let removed = std::mem::take(&mut delta.removed);
        let rekeyed = self.change_keys(std::mem::take(&mut delta.tenant_keys), &removed, keyring, known);
        let origins = self.touched(&mut delta, &removed, &rekeyed, known);
        for no in &removed.sources {
            self.remove_source(*no);
        }
        for origin in origins {
            let former = known.unwrap_or(&self).sources_by_no.get(&origin.source.no);
            let held = self.keys.get(&origin.source.tenant_no);
            let source = match former {
                Some(former) if former.origin == origin && former.is_held_by(held) => Arc::clone(former),
                _ => {
                    let source = Source::build(origin, held.map(Arc::clone));
                    secrets::tell(former.map(Arc::as_ref), &source);
                    Arc::new(source)
                }
            };
            self.put_source(source);
        }
        self.change_tenants(delta.tenants, &removed);
        self.change_subscriptions(delta.subscriptions, &removed);
        self.change_grants(delta.grants, &removed);
        self.change_freed_names(delta.freed_names);
        self
    }

    /// The rows of the sources that a change touches, as they are after it.
    fn touched(
        &self,
        delta: &mut ConfigDelta,
        removed: &Removed,
        rekeyed: &BTreeSet<TenantNo>,
        former: Option<&Self>,
    ) -> Vec<Origin> {
        let mut touched: BTreeMap<SourceNo, Touched> = BTreeMap::new();
        if !rekeyed.is_empty() {
            let theirs = self.sources_by_no.values().filter(|source| rekeyed.contains(&source.tenant_no));
            touched.extend(theirs.map(|source| (source.no, Touched::default())));
        }
        for source in std::mem::take(&mut delta.sources) {
            let no = source.no;
            touched.entry(no).or_default().row = Some(source);
        }
        for mut secret in std::mem::take(&mut delta.secrets) {
            // Whether somebody saw it makes no difference to what it verifies.
            secret.unseen = false;
            secret.revoked_at = secret.revoked_at.or_else(|| former.unwrap_or(self).revoked_before(&secret));
            touched.entry(secret.source_no).or_default().secrets.push(secret);
        }
        for no in &removed.secrets {
            if let Some(source) = self.source_of_secret.get(no) {
                touched.entry(*source).or_default();
            }
        }
        let gone: BTreeSet<_> = removed.secrets.iter().collect();
        let sources_gone: BTreeSet<_> = removed.sources.iter().collect();
        let left = touched.into_iter().filter(|(no, _)| !sources_gone.contains(no));
        let origins = left.filter_map(|(no, touched)| {
            let known = self.sources_by_no.get(&no).map(|source| &source.origin);
            let source = touched.row.or_else(|| known.map(|origin| origin.source.clone()))?;
            let mut secrets: BTreeMap<_, _> = known
                .into_iter()
                .flat_map(|origin| &origin.secrets)
                .map(|secret| (secret.no, secret.clone()))
                .chain(touched.secrets.into_iter().map(|secret| (secret.no, secret)))
                .collect();
            secrets.retain(|no, _| !gone.contains(no));
            Some(Origin { source, secrets: secrets.into_values().collect() })
        });
        origins.collect()
    }

    /// When a secret was revoked that is not any more: there is no way back, so the database lost its latest changes, or somebody
    /// wrote to it.
    fn revoked_before(&self, secret: &portero_store::Secret) -> Option<Timestamp> {
        let source = self.sources_by_no.get(self.source_of_secret.get(&secret.no)?)?;
        let known = source.origin.secrets.iter().find(|known| known.no == secret.no)?;
        let is_same = (known.source_no, &known.id, known.created_at)
            == (secret.source_no, &secret.id, secret.created_at);
        let revoked_at = known.revoked_at.filter(|_| is_same)?;
        tracing::error!(
            tenant.id = %source.tenant, source.id = %source.id, secret.id = %secret.id,
            "a secret that was revoked is not any more, because the database lost changes or was written to: \
             revoke it again, for only processes that know of it go on refusing it"
        );
        Some(revoked_at)
    }

    /// Opens changed data keys; whose are others now.
    fn change_keys(
        &mut self,
        changed: Vec<TenantKey>,
        removed: &Removed,
        keyring: &Keyring,
        known: Option<&Self>,
    ) -> BTreeSet<TenantNo> {
        let mut rows: BTreeMap<TenantNo, Vec<TenantKey>> = BTreeMap::new();
        for row in changed {
            rows.entry(row.tenant_no).or_default().push(row);
        }
        let mut rekeyed = BTreeSet::new();
        for (no, rows) in rows {
            let former = known.unwrap_or(self).keys.get(&no);
            let held = Held::open(&rows, keyring, former);
            if self.keys.get(&no).is_none_or(|former| !Arc::ptr_eq(former, &held)) {
                rekeyed.insert(no);
            }
            let was_unopened = known.unwrap_or(self).unopened.contains(&no);
            if !held.is_complete() {
                self.unopened.insert(no);
            } else if (self.unopened.remove(&no) || was_unopened)
                && let Some(row) = rows.first()
            {
                tracing::info!(tenant.id = %row.tenant, "all data keys of a tenant can be opened again");
            }
            self.keys.insert(no, held);
        }
        for no in &removed.tenant_keys {
            self.unopened.remove(no);
            if self.keys.remove(no).is_some() {
                rekeyed.insert(*no);
            }
        }
        rekeyed
    }

    fn remove_source(&mut self, no: SourceNo) {
        let Some(source) = self.sources_by_no.remove(&no) else { return };
        self.sources_by_key.remove(&source.ingest_key);
        for secret in &source.origin.secrets {
            self.source_of_secret.remove(&secret.no);
            self.unreadable.remove(&secret.no);
        }
        let named = Arc::make_mut(self.sources_by_id.entry(source.id.clone()));
        named.remove(&no);
        if named.is_empty() {
            self.sources_by_id.remove(&source.id);
        }
    }

    fn put_source(&mut self, source: Arc<Source>) {
        self.remove_source(source.no);
        for secret in &source.origin.secrets {
            self.source_of_secret.insert(secret.no, source.no);
        }
        self.unreadable.extend(source.unreadable().iter().map(|secret| secret.no));
        self.sources_by_key.insert(source.ingest_key, Arc::clone(&source));
        Arc::make_mut(self.sources_by_id.entry(source.id.clone())).insert(source.no);
        self.sources_by_no.insert(source.no, source);
    }

    fn change_tenants(&mut self, changed: Vec<Tenant>, removed: &Removed) {
        for no in &removed.tenants {
            if let Some(tenant) = self.tenants_by_no.remove(no) {
                self.tenants.remove(&tenant.id);
            }
        }
        for tenant in changed.into_iter().map(Arc::new) {
            self.tenants.insert(tenant.id.clone(), Arc::clone(&tenant));
            self.tenants_by_no.insert(tenant.no, tenant);
        }
    }

    fn change_subscriptions(&mut self, changed: Vec<Subscription>, removed: &Removed) {
        for no in &removed.subscriptions {
            if let Some(subscription) = self.subscriptions_by_no.remove(no) {
                self.subscriptions.remove(&subscription.id);
            }
        }
        for subscription in changed.into_iter().map(Arc::new) {
            self.subscriptions.insert(subscription.id.clone(), Arc::clone(&subscription));
            self.subscriptions_by_no.insert(subscription.no, subscription);
        }
    }

    fn change_grants(&mut self, changed: Vec<Grant>, removed: &Removed) {
        if changed.is_empty() && removed.grants.is_empty() {
            return;
        }
        for no in &removed.grants {
            self.grants_by_no.remove(no);
        }
        for grant in changed.into_iter().map(Arc::new) {
            self.grants_by_no.insert(grant.no, grant);
        }
        self.grants = Arc::new(Grants::new(self.grants_by_no.values().map(Arc::clone)));
    }

    fn change_freed_names(&mut self, changed: Vec<FreedName>) {
        for FreedName { name, at } in changed {
            match name {
                Name::Tenant(id) => self.freed_tenants.insert(id, at),
                Name::Subscription(id) => self.freed_subscriptions.insert(id, at),
            }
        }
    }
}

/// What of a source a change names.
#[derive(Default)]
struct Touched {
    row: Option<portero_store::Source>,
    secrets: Vec<portero_store::Secret>,
}
