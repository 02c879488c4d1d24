//! How much of the configuration one tenant may make up.

use super::fixture::{Fixture, new_source, new_subscription, new_tenant, source_id, tenant_id, tester};
use super::{Database, assert_fails};
use crate::{
    ErrorKind, NewSource, NewSubscription, RECIPE_BYTES_PER_TENANT_MAX, SOURCES_PER_TENANT_MAX, SourceUpdate,
    SourcesHeld,
};

/// So many subscriptions of acme at once, like one that is there.
const MANY_OF_ACME: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 998)
    INSERT INTO subscriptions (subscription_id, tenant_no, sources, event_types, lanes, attempts_max, defer_deadline_ms,
                               dead_letter_policy, starts_after, created_at)
    SELECT 'acme-' || i, tenant_no, sources, event_types, lanes, attempts_max, defer_deadline_ms, dead_letter_policy,
           starts_after, created_at
    FROM n, subscriptions WHERE subscription_id = 'billing'";

pub async fn subscriptions_are_bounded_for_each_tenant(database: &dyn Database) {
    let store = Fixture::new(database).await.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    let of = |id: &str, tenant: Option<&str>| NewSubscription {
        tenant: tenant.map(tenant_id),
        ..new_subscription(id)
    };
    store.create_subscription(of("billing", Some("acme")), &tester()).await.expect("the first");
    database.execute(MANY_OF_ACME).await;
    store.create_subscription(of("last", Some("acme")), &tester()).await.expect("the thousandth");
    let before = store.revision().await.expect("a revision");
    let refused = store.create_subscription(of("more", Some("acme")), &tester()).await.expect_err("full");
    assert_eq!(refused.kind(), ErrorKind::Exhausted);
    for word in ["tenant acme", "1000", "delete those"] {
        assert!(refused.to_string().contains(word), "{word} is missing: {refused}");
    }
    assert_eq!(store.revision().await.expect("a revision"), before, "no trace is left");
    for tenant in [Some("globex"), None] {
        let id = format!("of-{}", tenant.unwrap_or("all"));
        store.create_subscription(of(&id, tenant), &tester()).await.expect("others are not concerned");
    }
}

pub async fn a_tenants_own_recipes_have_so_many_bytes_together(database: &dyn Database) {
    let store = Fixture::new(database).await.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    // The largest that a source takes.
    let largest = 65_536;
    let with = |tenant: &str, id: &str, bytes: usize| NewSource {
        preset: String::new(),
        recipe: "x".repeat(bytes),
        ..new_source(tenant, id)
    };
    for n in 0..RECIPE_BYTES_PER_TENANT_MAX / 65_536 {
        store.create_source(with("acme", &format!("own-{n}"), largest), &tester()).await.expect("room");
    }
    let refused = store.create_source(with("acme", "more", 1), &tester()).await.expect_err("full");
    assert_eq!(refused.kind(), ErrorKind::Exhausted);
    assert!(refused.to_string().contains("tenant acme"), "{refused}");
    store.create_source(new_source("acme", "preset"), &tester()).await.expect("a preset takes no room");
    store.create_source(with("globex", "own", 1), &tester()).await.expect("another tenant's");
    let update = |id: &str, bytes: usize| SourceUpdate {
        preset: Some(String::new()),
        recipe: Some("y".repeat(bytes)),
        ..SourceUpdate::new(tenant_id("acme"), source_id(id))
    };
    assert_fails(store.update_source(update("preset", 1), &tester()).await, ErrorKind::Exhausted);
    store.update_source(update("own-0", largest - 1), &tester()).await.expect("less than before");
    assert_fails(store.update_source(update("preset", 2), &tester()).await, ErrorKind::Exhausted);
    store.update_source(update("preset", 1), &tester()).await.expect("there is room again");
    let held = |count| SourcesHeld { count, recipe_bytes: 0 };
    assert!(new_source("acme", "a").check_room(held(SOURCES_PER_TENANT_MAX - 1)).is_ok());
    assert_fails(new_source("acme", "a").check_room(held(SOURCES_PER_TENANT_MAX)), ErrorKind::Exhausted);
}
