//! Which entries of the log a subscription gets.

use std::collections::HashSet;

use portero_directory::Snapshot;
use portero_store::{LogEntry, Scope, Subscription};
use portero_types::{SourceNo, TenantNo};

/// Longest list of sources that is sent to the store with each page.
const SCOPE_SOURCES_MAX: usize = 256;

/// A subscription's filter with names resolved to row numbers, as of one configuration revision.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// `None`: every tenant. `Some(None)`: a tenant that does not exist, so nothing.
    tenant: Option<Option<TenantNo>>,
    /// `None`: every source.
    sources: Option<HashSet<SourceNo>>,
    exact: HashSet<String>,
    prefixes: Vec<String>,
}

impl Filter {
    /// Resolves the names of a subscription.
    pub(crate) fn new(subscription: &Subscription, snapshot: &Snapshot) -> Self {
        let tenant = subscription.tenant.as_ref().map(|id| snapshot.tenant(id).map(|tenant| tenant.no));
        let sources = (!subscription.sources.is_empty()).then(|| {
            snapshot
                .sources()
                .filter(|source| subscription.tenant.as_ref().is_none_or(|tenant| *tenant == source.tenant))
                .filter(|source| subscription.sources.contains(&source.id))
                .map(|source| source.no)
                .collect()
        });
        let (mut exact, mut prefixes) = (HashSet::new(), Vec::new());
        for pattern in &subscription.event_types {
            match pattern.strip_suffix('*') {
                Some(prefix) => prefixes.push(prefix.to_owned()),
                None => {
                    exact.insert(pattern.clone());
                }
            }
        }
        Self { tenant, sources, exact, prefixes }
    }

    /// What of the filter the store can apply while it reads, so that others' entries need not be sent: never less than what
    /// matches.
    pub(crate) fn scope(&self) -> Scope {
        let sources = self.sources.iter().flatten().copied().take(SCOPE_SOURCES_MAX + 1).collect::<Vec<_>>();
        let is_short = sources.len() <= SCOPE_SOURCES_MAX;
        Scope {
            tenant: self.tenant.flatten(),
            sources: if is_short { sources } else { Vec::new() },
            ..Scope::default()
        }
    }

    /// Whether the subscription gets this entry.
    pub(crate) fn matches(&self, entry: &LogEntry) -> bool {
        self.tenant.is_none_or(|tenant| tenant == Some(entry.tenant_no))
            && self.sources.as_ref().is_none_or(|sources| sources.contains(&entry.source_no))
            && self.matches_type(&entry.event_type)
    }

    fn matches_type(&self, event_type: &str) -> bool {
        (self.exact.is_empty() && self.prefixes.is_empty())
            || self.exact.contains(event_type)
            || self.prefixes.iter().any(|prefix| event_type.starts_with(prefix.as_str()))
    }
}
