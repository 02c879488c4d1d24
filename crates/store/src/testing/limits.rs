//! Tenants that change, and the limits of tenants and sources.

use super::fixture::{Fixture, new_source, new_tenant, source_id, tenant_id, tester};
use super::{Database, assert_fails};
use crate::{
    ErrorKind, LIMIT_BYTES_MAX, LIMIT_EVENTS_MAX, Limits, NewSource, NewTenant, SourceUpdate, TenantUpdate,
};

const FULL: Limits = Limits {
    events_per_second: Some(LIMIT_EVENTS_MAX),
    burst: Some(1),
    bytes_per_second: Some(LIMIT_BYTES_MAX),
};

fn update() -> TenantUpdate {
    TenantUpdate { id: tenant_id("acme"), display_name: None, limits: None }
}

pub async fn a_tenants_update_changes_what_is_given_and_nothing_else(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let mut expected = store.tenant(&tenant_id("acme")).await.expect("read").expect("there");
    assert_eq!(expected.limits, Limits::default());
    let before = store.revision().await.expect("revision");
    assert_eq!(store.update_tenant(update(), &tester()).await.expect("updated"), expected);
    assert!(store.revision().await.expect("revision") > before);

    let change = TenantUpdate { display_name: Some("Acme Ltd".to_owned()), ..update() };
    expected.display_name = "Acme Ltd".to_owned();
    assert_eq!(store.update_tenant(change, &tester()).await.expect("updated"), expected);

    let free = Limits { events_per_second: Some(0), ..Limits::default() };
    for limits in [FULL, free, Limits::default(), FULL] {
        expected.limits = limits;
        let change = TenantUpdate { limits: Some(limits), ..update() };
        assert_eq!(store.update_tenant(change, &tester()).await.expect("updated"), expected);
        assert_eq!(store.tenant(&tenant_id("acme")).await.expect("read").as_ref(), Some(&expected));
    }
    assert_eq!(store.snapshot().await.expect("snapshot").tenants, [expected]);
    let unknown = TenantUpdate { id: tenant_id("nobody"), ..update() };
    assert_fails(store.update_tenant(unknown, &tester()).await, ErrorKind::NotFound);
}

pub async fn a_source_has_limits_of_its_own(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let new = NewSource { limits: FULL, ..new_source("acme", "limited") };
    let mut expected = store.create_source(new, &tester()).await.expect("created");
    assert_eq!(expected.limits, FULL);
    let (acme, id) = (tenant_id("acme"), source_id("limited"));
    let change = SourceUpdate { public_urls: Some(vec![]), ..SourceUpdate::new(acme.clone(), id.clone()) };
    expected.public_urls = vec![];
    assert_eq!(store.update_source(change, &tester()).await.expect("updated"), expected, "they stay");
    let limits = Limits { burst: Some(3), ..Limits::default() };
    let change = SourceUpdate { limits: Some(limits), ..SourceUpdate::new(acme.clone(), id.clone()) };
    expected.limits = limits;
    assert_eq!(store.update_source(change, &tester()).await.expect("updated"), expected);
    assert_eq!(store.source(&acme, &id).await.expect("read"), Some(expected));
}

pub async fn limits_beyond_their_bounds_are_refused(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let none = Limits::default();
    for limits in [
        Limits { events_per_second: Some(LIMIT_EVENTS_MAX + 1), ..none },
        Limits { burst: Some(0), ..none },
        Limits { bytes_per_second: Some(u64::MAX), ..none },
    ] {
        let before = store.revision().await.expect("revision");
        let tenant = NewTenant { limits, ..new_tenant("globex") };
        assert_fails(store.create_tenant(tenant, &tester()).await, ErrorKind::Refused);
        let change = TenantUpdate { limits: Some(limits), ..update() };
        assert_fails(store.update_tenant(change, &tester()).await, ErrorKind::Refused);
        let source = NewSource { limits, ..new_source("acme", "other") };
        assert_fails(store.create_source(source, &tester()).await, ErrorKind::Refused);
        let change = SourceUpdate {
            limits: Some(limits),
            ..SourceUpdate::new(tenant_id("acme"), source_id("stripe-eu"))
        };
        assert_fails(store.update_source(change, &tester()).await, ErrorKind::Refused);
        assert_eq!(store.revision().await.expect("revision"), before);
    }
}
