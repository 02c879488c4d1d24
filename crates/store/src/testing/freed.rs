//! Names that were given up.

use portero_types::Timestamp;

use super::fixture::{
    Fixture, NOW, new_subscription, new_tenant, source_id, subscription_id, tenant_id, tester,
};
use super::{Database, assert_fails};
use crate::{Change, ConfigChanges, DynStore, ErrorKind, FreedName, Name, NewSubscription, Revision};

fn tenant(id: &str, at: i64) -> FreedName {
    FreedName { name: Name::Tenant(tenant_id(id)), at: Timestamp::from_secs(at) }
}

fn subscription(id: &str, at: i64) -> FreedName {
    FreedName { name: Name::Subscription(subscription_id(id)), at: Timestamp::from_secs(at) }
}

/// A change at a moment, in seconds.
fn at(secs: i64) -> Change {
    Change { at: Timestamp::from_secs(secs), ..tester() }
}

async fn freed(store: &DynStore) -> Vec<FreedName> {
    store.snapshot().await.expect("a snapshot").freed_names
}

async fn freed_since(store: &DynStore, since: Revision) -> Vec<FreedName> {
    match store.changes(since).await.expect("read") {
        ConfigChanges::Delta(delta) => delta.freed_names,
        ConfigChanges::Full(_) => panic!("what changed since {since:?} is known"),
    }
}

pub async fn a_name_that_is_given_up_is_remembered_with_the_last_time(database: &dyn Database) {
    let store = Fixture::new(database).await.store;
    for (time, latest) in [(100, 100), (300, 300), (200, 300)] {
        store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
        store.create_subscription(new_subscription("globex"), &tester()).await.expect("created");
        let before = store.revision().await.expect("a revision");
        store.delete_subscription(&subscription_id("globex"), &at(time)).await.expect("deleted");
        assert_eq!(freed_since(&store, before).await, [subscription("globex", latest)]);
        let between = store.revision().await.expect("a revision");
        store.delete_tenant(&tenant_id("globex"), &at(time)).await.expect("deleted");
        assert_eq!(freed_since(&store, between).await, [tenant("globex", latest)]);
        let both = [subscription("globex", latest), tenant("globex", latest)];
        assert_eq!(freed(&store).await, both, "a clock that goes back takes nothing back");
        assert_eq!(freed_since(&store, store.revision().await.expect("a revision")).await, []);
    }
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    assert_eq!(freed(&store).await.len(), 2, "somebody else's having it changes nothing");
}

pub async fn an_erased_tenant_gives_up_its_name_and_its_subscriptions_theirs(database: &dyn Database) {
    let store = Fixture::new(database).await.store;
    let own = NewSubscription { tenant: Some(tenant_id("acme")), ..new_subscription("own") };
    store.create_subscription(own, &tester()).await.expect("created");
    store.create_subscription(new_subscription("all"), &tester()).await.expect("created");
    store.erase_tenant(&tenant_id("acme"), &at(100)).await.expect("erased");
    assert_eq!(freed(&store).await, [subscription("own", 100), tenant("acme", 100)]);

    store.create_tenant(new_tenant("acme"), &tester()).await.expect("created");
    store.delete_tenant(&tenant_id("acme"), &at(200)).await.expect("deleted");
    store.erase_tenant(&tenant_id("acme"), &at(300)).await.expect("erased");
    assert_eq!(freed(&store).await[1], tenant("acme", 200), "it was given up at the deletion");
}

pub async fn a_deletion_that_is_refused_gives_up_no_name(database: &dyn Database) {
    let store = Fixture::new(database).await.store;
    assert_fails(store.delete_tenant(&tenant_id("acme"), &tester()).await, ErrorKind::FailedPrecondition);
    assert_fails(
        store.delete_subscription(&subscription_id("missing"), &tester()).await,
        ErrorKind::NotFound,
    );
    assert_eq!(freed(&store).await, []);
    store.delete_source(&tenant_id("acme"), &source_id("stripe-eu"), &tester()).await.expect("deleted");
    assert_eq!(freed(&store).await, [], "a source's name is its tenant's affair");
    store.delete_tenant(&tenant_id("acme"), &tester()).await.expect("deleted");
    assert_eq!(freed(&store).await, [FreedName { name: Name::Tenant(tenant_id("acme")), at: NOW }]);
}
