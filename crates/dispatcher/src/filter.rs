//! Which entries of the log a subscription gets.

use std::collections::{BTreeSet, HashSet};

use portero_directory::Snapshot;
use portero_store::{LogEntry, Revision, Scope, Subscription};
use portero_types::{SourceNo, TenantNo};

/// Longest list of sources that is sent to the store with each page.
const SCOPE_SOURCES_MAX: usize = 256;

/// A subscription's filter with names resolved to row numbers, as of one configuration revision.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    revision: Revision,
    /// `None`: every tenant. `Some(None)`: a tenant that does not exist, so nothing.
    tenant: Option<Option<TenantNo>>,
    /// `None`: every source.
    sources: Option<BTreeSet<SourceNo>>,
    exact: HashSet<String>,
    prefixes: Vec<String>,
}

impl Filter {
    /// Resolves the names of a subscription.
    pub(crate) fn new(subscription: &Subscription, snapshot: &Snapshot) -> Self {
        let tenant = subscription.tenant.as_ref().map(|id| snapshot.tenant(id).map(|tenant| tenant.no));
        let sources = (!subscription.sources.is_empty()).then(|| {
            subscription
                .sources
                .iter()
                .flat_map(|id| snapshot.sources_named(id))
                .filter(|source| subscription.tenant.as_ref().is_none_or(|tenant| *tenant == source.tenant))
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
        Self { revision: snapshot.revision(), tenant, sources, exact, prefixes }
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

    /// Whether it depends on which sources there are. One of a name that it lists may be created at another gateway, and have
    /// events, before anyone here hears of it: so whoever read some of the log looks at the configuration once more
    /// before he passes over anything.
    pub(crate) const fn names_sources(&self) -> bool {
        self.sources.is_some()
    }

    /// Follows what is known of sources by now.
    pub(crate) fn follow(&mut self, subscription: &Subscription, snapshot: &Snapshot) {
        if self.names_sources() && self.revision != snapshot.revision() {
            *self = Self::new(subscription, snapshot);
        }
    }

    /// Whether what was read within `scope` has everything that it lets through.
    pub(crate) fn is_met_by(&self, scope: &Scope) -> bool {
        scope.sources.is_empty() || self.sources.iter().flatten().all(|source| scope.sources.contains(source))
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
