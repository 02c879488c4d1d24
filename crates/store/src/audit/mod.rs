//! The audit log: who changed what, when and by which request, as a chain in which each row seals the one before.
//!
//! A row is written in the transaction of what it tells of: both are there, or neither. Rows are never changed or deleted;
//! the databases refuse it. Whoever works around that breaks the chain: see [`entry_hash`] and [`Chain`].
//!
//! Nothing here may ever hold a secret's value, an ingest key or a payload: see [`view`].

mod chain;
mod hash;
pub mod view;

use async_trait::async_trait;
use portero_types::{SourceId, TenantId, TenantNo, Timestamp};

pub use chain::{Broken, Chain};
pub use hash::{AuditHash, entry_hash};

use crate::{Actor, Change, Grant, Page, Secret, Source, Subscription, Tenant};

/// Longest name of an action, bytes.
pub const ACTION_BYTES_MAX: usize = 64;
/// Longest name of a resource, bytes of UTF-8.
pub const RESOURCE_BYTES_MAX: usize = 512;
/// Longest view of a resource, bytes of UTF-8. A longer one is replaced by its digest.
pub const VIEW_BYTES_MAX: usize = 256 * 1024;
/// Most entries of one page: each may hold two views.
pub const AUDIT_PAGE_MAX: u32 = 100;

/// One row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its number: 1 for the first, without gaps.
    pub seq: u64,
    /// When the change was asked for, by the clock of the gateway that made it.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// What was done, named as the RPC that does it, such as `CreateSource`.
    pub action: String,
    /// The resource's name, such as `tenants/acme/sources/stripe`.
    pub resource: String,
    /// The tenant to which the resource belongs; `None` for what belongs to the platform.
    pub tenant: Option<TenantId>,
    /// The same tenant's row number: a name may be used again by another.
    pub tenant_no: Option<TenantNo>,
    /// See [`Change::request_id`].
    pub request_id: String,
    /// See [`Change::reason`].
    pub reason: Option<String>,
    /// The resource before, as JSON; `None` when it was not there or nothing was changed.
    pub before: Option<String>,
    /// The resource after, as JSON; `None` when it is gone or nothing was changed.
    pub after: Option<String>,
    /// The hash of the entry before; 32 zero bytes for the first.
    pub prev_hash: AuditHash,
    /// [`entry_hash`] of all the rest.
    pub hash: AuditHash,
}

/// An entry to be appended: what a store does not find out by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAuditEntry {
    /// Who, when, by which request.
    pub change: Change,
    /// See [`AuditEntry::action`].
    pub action: String,
    /// See [`AuditEntry::resource`].
    pub resource: String,
    /// See [`AuditEntry::tenant`].
    pub tenant: Option<TenantId>,
    /// See [`AuditEntry::before`].
    pub before: Option<String>,
    /// See [`AuditEntry::after`].
    pub after: Option<String>,
}

impl NewAuditEntry {
    /// Something done to a resource that changes none of its fields, such as a secret that was shown.
    #[must_use]
    pub fn deed(change: &Change, action: &str, resource: String, tenant: Option<&TenantId>) -> Self {
        let (action, tenant) = (action.to_owned(), tenant.cloned());
        Self { change: change.clone(), action, resource, tenant, before: None, after: None }
    }

    fn changed(mut self, before: Option<String>, after: Option<String>) -> Self {
        (self.before, self.after) = (before, after);
        self
    }

    /// What became of a tenant.
    #[must_use]
    pub fn tenant(change: &Change, action: &str, before: Option<&Tenant>, after: Option<&Tenant>) -> Self {
        let id = after.or(before).map(|tenant| &tenant.id);
        let name = id.map(|id| format!("tenants/{id}")).unwrap_or_default();
        Self::deed(change, action, name, id).changed(before.map(view::tenant), after.map(view::tenant))
    }

    /// What became of a source.
    #[must_use]
    pub fn source(change: &Change, action: &str, before: Option<&Source>, after: Option<&Source>) -> Self {
        let source = after.or(before);
        let name = source.map(|it| format!("tenants/{}/sources/{}", it.tenant, it.id)).unwrap_or_default();
        Self::deed(change, action, name, source.map(|it| &it.tenant))
            .changed(before.map(view::source), after.map(view::source))
    }

    /// What became of a secret of a source.
    #[must_use]
    pub fn secret(
        change: &Change,
        action: &str,
        of: (&TenantId, &SourceId),
        before: Option<&Secret>,
        after: Option<&Secret>,
    ) -> Self {
        let (tenant, source) = of;
        let id = after.or(before).map_or("", |secret| secret.id.as_str());
        Self::deed(change, action, format!("tenants/{tenant}/sources/{source}/secrets/{id}"), Some(tenant))
            .changed(before.map(view::secret), after.map(view::secret))
    }

    /// What became of a subscription.
    #[must_use]
    pub fn subscription(
        change: &Change,
        action: &str,
        before: Option<&Subscription>,
        after: Option<&Subscription>,
    ) -> Self {
        let it = after.or(before);
        let name = it.map(|it| format!("subscriptions/{}", it.id)).unwrap_or_default();
        Self::deed(change, action, name, it.and_then(|it| it.tenant.as_ref()))
            .changed(before.map(view::subscription), after.map(view::subscription))
    }

    /// What became of a grant.
    #[must_use]
    pub fn grant(change: &Change, action: &str, before: Option<&Grant>, after: Option<&Grant>) -> Self {
        let it = after.or(before);
        let name = it.map(|it| format!("grants/{}", it.id)).unwrap_or_default();
        Self::deed(change, action, name, it.and_then(|it| it.tenant.as_ref()))
            .changed(before.map(view::grant), after.map(view::grant))
    }

    /// The entry as the next one after `head`: for implementations.
    #[must_use]
    pub fn following(self, head: (u64, AuditHash), tenant_no: Option<TenantNo>) -> AuditEntry {
        let Change { actor, request_id, reason, owner: _, at } = self.change;
        let mut entry = AuditEntry {
            seq: head.0.saturating_add(1),
            at,
            actor,
            action: self.action,
            resource: self.resource,
            tenant: self.tenant,
            tenant_no,
            request_id,
            reason,
            before: self.before.map(view::bounded),
            after: self.after.map(view::bounded),
            prev_hash: head.1,
            hash: AuditHash::GENESIS,
        };
        entry.hash = entry_hash(&entry);
        entry
    }
}

/// In which order entries are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditOrder {
    /// By rising number.
    #[default]
    OldestFirst,
    /// By falling number.
    NewestFirst,
}

/// Which entries are read. All of its conditions hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those of tenants with this name, deleted ones as well.
    pub tenant: Option<TenantId>,
    /// Only those of this very tenant.
    pub tenant_no: Option<TenantNo>,
    /// Only those of actors with this subject, whoever vouches for them.
    pub subject: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Those that come after this number in `order`; `None` begins with the first.
    pub after_seq: Option<u64>,
    /// In which order.
    pub order: AuditOrder,
}

/// Keeps the audit log. What changes configuration is written by [`crate::ConfigStore`]'s calls themselves.
#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// Appends what is no change of configuration. Appends are serial with each other and with changes of configuration.
    ///
    /// # Errors
    /// `Refused` when a bound is broken. After `OutcomeUnknown` it may be written.
    async fn append(&self, entry: NewAuditEntry) -> crate::Result<()>;
    /// Entries in the order asked for; at most [`AUDIT_PAGE_MAX`] of them. Spans tenants unless the filter names one.
    async fn audit_entries(&self, filter: AuditFilter, limit: u32) -> crate::Result<Page<AuditEntry>>;
    /// The last entry's number and hash; 0 and zero bytes when there is none.
    async fn audit_head(&self) -> crate::Result<(u64, AuditHash)>;
}
