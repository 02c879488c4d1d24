//! Pages of a part of the log: complete for their scope as far as they say.

use portero_types::{EntityHash, Shard, Slot, SourceNo, TenantNo};

use super::Database;
use super::fixture::{Fixture, event_of, fresh, new_source, new_tenant, tester};
use crate::{LogEntry, PageRequest, Scope, Source, Tenant};

const SHARD: Shard = Shard(1);

/// A shard with events of two tenants with three sources, in turns, and all its entries.
struct Mixed {
    fixture: Fixture,
    other: Tenant,
    entries: Vec<LogEntry>,
}

impl Mixed {
    async fn new(database: &dyn Database) -> Self {
        let fixture = Fixture::new(database).await;
        let store = &fixture.store;
        let other = store.create_tenant(new_tenant("umbrella"), &tester()).await.expect("a tenant");
        let second = store.create_source(new_source("acme", "stripe-us"), &tester()).await.expect("a source");
        let foreign =
            store.create_source(new_source("umbrella", "stripe"), &tester()).await.expect("a source");
        let sources = [(&fixture.tenant, &fixture.source), (&fixture.tenant, &second), (&other, &foreign)];
        let mut batch = Vec::new();
        for round in 0..6_u32 {
            for (tenant, source) in sources {
                batch.push(event_of(
                    tenant,
                    source,
                    &format!("evt_{}", fresh()),
                    &key(&fixture, tenant, source, round % 2),
                ));
            }
        }
        store.accept(&batch).await.expect("accepted");
        let entries = store.page(PageRequest::new(SHARD, 0, 100)).await.expect("a page").entries;
        assert_eq!(entries.len(), 18);
        Self { fixture, other, entries }
    }

    fn request(scope: Scope) -> PageRequest {
        PageRequest { scope, ..PageRequest::new(SHARD, 0, 100) }
    }

    /// Asserts that a scope finds exactly the entries that a filter finds, in one page and in small ones.
    async fn check(&self, scope: Scope, wanted: impl Fn(&LogEntry) -> bool) {
        let expected: Vec<_> = self.entries.iter().filter(|entry| wanted(entry)).cloned().collect();
        let page = self.fixture.store.page(Self::request(scope.clone())).await.expect("a page");
        let head = self.entries.last().expect("not empty").n;
        assert_eq!((&page.entries, page.head), (&expected, head), "{scope:?}");
        assert_eq!(page.through, scope.through.map_or(head, |through| through.min(head)));
        for (limit, span) in [(1, u32::MAX), (2, 5), (100, 1), (3, 4)] {
            assert_eq!(self.walk(&scope, limit, span).await, expected, "{scope:?} by {limit} and {span}");
        }
    }

    async fn walk(&self, scope: &Scope, limit: u32, span: u32) -> Vec<LogEntry> {
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let request = PageRequest { shard: SHARD, after, limit, span, scope: scope.clone() };
            let page = self.fixture.store.page(request).await.expect("a page");
            assert!(page.entries.len() <= limit as usize);
            assert!(page.entries.iter().all(|entry| (after + 1..=page.through).contains(&entry.n)));
            assert!(page.through <= page.head && page.through <= after + u64::from(span));
            seen.extend(page.entries);
            if page.through == after {
                return seen;
            }
            after = page.through;
        }
    }
}

/// An ordering key of the tenant's that lies in the shard, one of two of each source.
fn key(fixture: &Fixture, tenant: &Tenant, source: &Source, which: u32) -> String {
    (0..)
        .map(|n| format!("{}/{which}/{n}", source.id))
        .find(|key| EntityHash::of(&tenant.id, key).slot().shard(fixture.shards) == SHARD)
        .expect("some key lies in each shard")
}

pub async fn a_scope_of_nothing_is_everything(database: &dyn Database) {
    Mixed::new(database).await.check(Scope::default(), |_| true).await;
}

pub async fn a_scope_is_of_one_tenant(database: &dyn Database) {
    let mixed = Mixed::new(database).await;
    let (acme, other) = (mixed.fixture.tenant.no, mixed.other.no);
    let only = Scope { tenant: Some(other), ..Scope::default() };
    mixed.check(only, |entry| entry.tenant_no == other).await;
    mixed.check(Scope { tenant: Some(acme), ..Scope::default() }, |entry| entry.tenant_no == acme).await;
    let nobody = Scope { tenant: Some(TenantNo(9_999)), ..Scope::default() };
    mixed.check(nobody, |_| false).await;
}

pub async fn a_scope_is_of_some_sources(database: &dyn Database) {
    let mixed = Mixed::new(database).await;
    let two: Vec<SourceNo> = mixed.entries[1..3].iter().map(|entry| entry.source_no).collect();
    let scope = Scope { sources: two.clone(), ..Scope::default() };
    mixed.check(scope, |entry| two.contains(&entry.source_no)).await;
    mixed.check(Scope { sources: vec![SourceNo(9_999)], ..Scope::default() }, |_| false).await;
}

pub async fn a_scope_is_of_one_entity_or_of_some_slots(database: &dyn Database) {
    let mixed = Mixed::new(database).await;
    let entity = mixed.entries[4].entity;
    let scope = Scope { entity: Some(entity), ..Scope::default() };
    mixed.check(scope, |entry| entry.entity == entity).await;
    let mut slots: Vec<Slot> = mixed.entries.iter().map(|entry| entry.slot).collect();
    slots.sort_unstable();
    let (first, last) = (slots[4], slots[12]);
    let scope = Scope { slots: Some((first, last)), ..Scope::default() };
    mixed.check(scope, |entry| (first..=last).contains(&entry.slot)).await;
    mixed.check(Scope { slots: Some((Slot(0), Slot(0))), ..Scope::default() }, |_| false).await;
}

pub async fn a_scope_ends_where_it_is_told_to(database: &dyn Database) {
    let mixed = Mixed::new(database).await;
    let end = mixed.entries[7].n;
    mixed.check(Scope { through: Some(end), ..Scope::default() }, |entry| entry.n <= end).await;
    mixed.check(Scope { through: Some(u64::MAX), ..Scope::default() }, |_| true).await;
    let past =
        PageRequest { after: end, ..Mixed::request(Scope { through: Some(end - 2), ..Scope::default() }) };
    let page = mixed.fixture.store.page(past).await.expect("a page");
    assert_eq!((page.entries, page.through), (vec![], end), "nothing is left, and nothing is taken back");
}

pub async fn conditions_of_a_scope_hold_together(database: &dyn Database) {
    let mixed = Mixed::new(database).await;
    let wanted = mixed.entries[9].clone();
    let scope = Scope {
        tenant: Some(wanted.tenant_no),
        sources: vec![wanted.source_no],
        entity: Some(wanted.entity),
        slots: Some((wanted.slot, Slot(255))),
        through: Some(wanted.n),
    };
    mixed
        .check(scope, |entry| {
            (entry.entity, entry.source_no) == (wanted.entity, wanted.source_no) && entry.n <= wanted.n
        })
        .await;
}

pub async fn a_page_reaches_no_further_than_its_head(database: &dyn Database) {
    let mixed = Mixed::new(database).await;
    let head = mixed.entries.last().expect("not empty").n;
    let beyond = PageRequest::new(SHARD, head + 10, 5);
    let page = mixed.fixture.store.page(beyond).await.expect("a page");
    assert_eq!((page.entries, page.head, page.through), (vec![], head, head));
    let full = PageRequest { limit: 18, ..Mixed::request(Scope::default()) };
    assert_eq!(mixed.fixture.store.page(full).await.expect("a page").through, head);
}
