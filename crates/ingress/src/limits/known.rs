//! Which addresses are known at which sources: something verified there of late.

use std::collections::HashMap;
use std::time::Duration;

use portero_types::{SourceNo, TenantNo};

use super::Who;
use super::client::Client;
use super::table::Table;

/// The part of the table that one tenant may fill in the time for which an address stays known. So no tenant, however many
/// addresses its requests come from, makes others' be forgotten before that time.
const TENANT_PART: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Known {
    /// When an address last verified at a source.
    verified: Table<(SourceNo, Client), Duration>,
    /// For how long it is known.
    stays: Duration,
    /// Most that one tenant adds in that time.
    adds_max: usize,
    /// What each tenant has added since then.
    added: HashMap<TenantNo, usize>,
    since: Duration,
}

impl Known {
    /// At most so many pairs of source and address, each for so long.
    pub(super) fn new(entries_max: usize, stays: Duration) -> Self {
        Self {
            verified: Table::new(entries_max),
            stays,
            adds_max: (entries_max / TENANT_PART).max(1),
            added: HashMap::new(),
            since: Duration::ZERO,
        }
    }

    /// Whether the sender of a request is known at its source.
    pub(super) fn has(&mut self, who: &Who, now: Duration) -> bool {
        self.verified.get((who.source, who.client)).is_some_and(|at| now.saturating_sub(*at) < self.stays)
    }

    /// Something verified. An address that would be one too many of its tenant is not kept: it goes on being a stranger's.
    pub(super) fn add(&mut self, who: &Who, now: Duration) {
        let key = (who.source, who.client);
        if let Some(at) = self.verified.get(key) {
            *at = now;
            return;
        }
        if now.saturating_sub(self.since) >= self.stays {
            self.added.clear();
            self.since = now;
        }
        let added = self.added.entry(who.tenant).or_default();
        if *added < self.adds_max {
            *added += 1;
            self.verified.entry(key, || now);
        }
    }
}

#[cfg(test)]
mod tests {
    use portero_store::Limits;

    use super::super::{LimitsConfig, Rates};
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn who(tenant: i64, client: u32) -> Who {
        let none = LimitsConfig::none();
        let rates = Rates::of(&Limits::default(), &none.tenant, 1);
        Who {
            tenant: TenantNo(tenant),
            source: SourceNo(tenant),
            client: Client::of(std::net::Ipv4Addr::from_bits(client).into()),
            tenant_rates: rates,
            source_rates: rates,
        }
    }

    #[test]
    fn a_tenant_with_ever_new_addresses_makes_nobody_elses_be_forgotten() {
        let mut known = Known::new(64, HOUR);
        known.add(&who(1, 7), HOUR);
        for client in 0..10_000 {
            known.add(&who(2, client), HOUR);
        }
        assert!(known.has(&who(1, 7), HOUR * 2 - Duration::from_secs(1)));
        assert!((0..4).all(|client| known.has(&who(2, client), HOUR)), "its part");
        assert!(!known.has(&who(2, 4), HOUR));
        known.add(&who(2, 4), HOUR * 2);
        assert!(known.has(&who(2, 4), HOUR * 2), "an hour later it may add again");
    }

    #[test]
    fn an_address_is_known_for_its_time_from_the_last_time_on() {
        let mut known = Known::new(64, HOUR);
        known.add(&who(1, 7), HOUR);
        known.add(&who(1, 7), HOUR + HOUR / 2);
        assert!(known.has(&who(1, 7), HOUR * 2));
        assert!(!known.has(&who(1, 7), HOUR * 2 + HOUR / 2));
        assert!(!known.has(&who(1, 8), HOUR));
    }
}
