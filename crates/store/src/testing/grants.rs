//! Grants: created, read, deleted, and gone with what they name.

use portero_types::{GrantId, SubscriptionId};

use super::fixture::{
    Fixture, NOW, new_subscription, new_tenant, source_id, subscription_id, tenant_id, tester,
};
use super::{Database, assert_fails, migrated};
use crate::{
    AuditFilter, DynStore, ErrorKind, Grant, NewGrant, NewSubscription, Revision, SubscriptionUpdate,
};

fn grant_id(id: &str) -> GrantId {
    GrantId::new(id).expect("valid")
}

fn consumer(id: &str, subscriptions: &[&str]) -> NewGrant {
    NewGrant {
        id: grant_id(id),
        issuer: "https://kubernetes.default.svc".to_owned(),
        subject: format!("system:serviceaccount:{id}:*"),
        role: "consumer".to_owned(),
        tenant: None,
        subscriptions: subscriptions.iter().map(|id| subscription_id(id)).collect(),
        created_at: NOW,
    }
}

fn security(id: &str, tenant: Option<&str>) -> NewGrant {
    NewGrant { role: "security".to_owned(), tenant: tenant.map(tenant_id), ..consumer(id, &[]) }
}

async fn subscriptions_of(store: &DynStore, id: &str) -> Option<Vec<SubscriptionId>> {
    store.grant(&grant_id(id)).await.expect("read").map(|grant| grant.subscriptions)
}

async fn actions(store: &DynStore) -> Vec<(String, String)> {
    let page = store.audit_entries(AuditFilter::default(), 100).await.expect("read");
    let of_grants = page.items.into_iter().filter(|entry| entry.resource.starts_with("grants/"));
    of_grants.map(|entry| (entry.action, entry.resource)).collect()
}

pub async fn grants_are_created_read_and_deleted(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    for id in ["billing", "audit"] {
        store.create_subscription(new_subscription(id), &tester()).await.expect("created");
    }
    let new =
        NewGrant { tenant: Some(tenant_id("acme")), ..consumer("workers", &["billing", "audit", "billing"]) };
    let before = store.revision().await.expect("a revision");
    let created = store.create_grant(new.clone(), &tester()).await.expect("created");
    assert!(store.revision().await.expect("a revision") > before);
    let expected = Grant {
        no: created.no,
        id: new.id.clone(),
        issuer: new.issuer.clone(),
        subject: new.subject.clone(),
        role: "consumer".to_owned(),
        tenant: Some(tenant_id("acme")),
        subscriptions: vec![subscription_id("audit"), subscription_id("billing")],
        created_at: NOW,
    };
    assert_eq!(created, expected);
    assert_eq!(store.grant(&new.id).await.expect("read"), Some(expected.clone()));
    assert_eq!(store.snapshot().await.expect("a snapshot").grants, std::slice::from_ref(&expected));
    assert_fails(store.create_grant(new.clone(), &tester()).await, ErrorKind::AlreadyExists);
    store.delete_grant(&new.id, &tester()).await.expect("deleted");
    assert_eq!(store.grant(&new.id).await.expect("read"), None);
    assert_eq!(store.snapshot().await.expect("a snapshot").grants, []);
    assert_fails(store.delete_grant(&new.id, &tester()).await, ErrorKind::NotFound);
    let again = store.create_grant(new, &tester()).await.expect("created again");
    assert_ne!(again.no, expected.no);
    let name = || "grants/workers".to_owned();
    assert_eq!(
        actions(store).await,
        [
            ("CreateGrant".to_owned(), name()),
            ("DeleteGrant".to_owned(), name()),
            ("CreateGrant".to_owned(), name())
        ]
    );
}

pub async fn grants_come_in_the_order_of_names_page_by_page(database: &dyn Database) {
    let store = migrated(database).await;
    for id in ["c", "a", "b"] {
        store.create_grant(security(id, None), &tester()).await.expect("created");
    }
    let first = store.grants(None, 2).await.expect("read");
    let ids: Vec<_> = first.items.iter().map(|grant| grant.id.as_str()).collect();
    assert_eq!((ids, first.more), (vec!["a", "b"], true));
    let rest = store.grants(Some(&grant_id("b")), 2).await.expect("read");
    let ids: Vec<_> = rest.items.iter().map(|grant| grant.id.as_str()).collect();
    assert_eq!((ids, rest.more), (vec!["c"], false));
}

pub async fn a_grant_of_what_does_not_exist_is_refused(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let before = store.revision().await.expect("a revision");
    assert_fails(store.create_grant(security("a", Some("nobody")), &tester()).await, ErrorKind::NotFound);
    assert_fails(store.create_grant(consumer("a", &["nothing"]), &tester()).await, ErrorKind::NotFound);
    let odd = NewGrant { role: "king".to_owned(), ..security("a", None) };
    assert_fails(store.create_grant(odd, &tester()).await, ErrorKind::Refused);
    let odd = NewGrant { subject: String::new(), ..security("a", None) };
    assert_fails(store.create_grant(odd, &tester()).await, ErrorKind::Refused);
    let odd = NewGrant { issuer: "a\0b".to_owned(), ..security("a", None) };
    assert_fails(store.create_grant(odd, &tester()).await, ErrorKind::Refused);
    assert_eq!(store.revision().await.expect("a revision"), before);
    assert_eq!(store.snapshot().await.expect("a snapshot").grants, []);
}

pub async fn a_tenant_takes_its_grants_along(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    for (id, tenant) in [("a", Some("acme")), ("g", Some("globex")), ("p", None)] {
        store.create_grant(security(id, tenant), &tester()).await.expect("created");
    }
    store.delete_source(&tenant_id("acme"), &source_id("stripe-eu"), &tester()).await.expect("deleted");
    store.delete_tenant(&tenant_id("acme"), &tester()).await.expect("deleted");
    store.create_tenant(new_tenant("acme"), &tester()).await.expect("created again");
    let left: Vec<_> = store.snapshot().await.expect("a snapshot").grants;
    let ids: Vec<_> = left.iter().map(|grant| grant.id.as_str()).collect();
    assert_eq!(ids, ["g", "p"]);
    let last = actions(store).await.pop().expect("an entry");
    assert_eq!(last, ("DeleteGrant".to_owned(), "grants/a".to_owned()));
}

pub async fn a_subscription_leaves_the_grants_that_name_it(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    for id in ["billing", "audit"] {
        store.create_subscription(new_subscription(id), &tester()).await.expect("created");
    }
    for (id, named) in [("both", &["billing", "audit"][..]), ("one", &["billing"]), ("other", &["audit"])] {
        store.create_grant(consumer(id, named), &tester()).await.expect("created");
    }
    store.create_grant(security("none", None), &tester()).await.expect("created");
    store.delete_subscription(&subscription_id("billing"), &tester()).await.expect("deleted");
    store.create_subscription(new_subscription("billing"), &tester()).await.expect("created again");
    assert_eq!(subscriptions_of(store, "both").await, Some(vec![subscription_id("audit")]));
    assert_eq!(subscriptions_of(store, "one").await, None);
    assert_eq!(subscriptions_of(store, "other").await, Some(vec![subscription_id("audit")]));
    assert_eq!(subscriptions_of(store, "none").await, Some(vec![]));
    let told = actions(store).await;
    assert_eq!(
        told[4..],
        [
            ("UpdateGrant".to_owned(), "grants/both".to_owned()),
            ("DeleteGrant".to_owned(), "grants/one".to_owned())
        ]
    );
}

/// Between the moment when somebody was found to be allowed to change something and the change, it may be deleted, and another
/// tenant's have its name.
pub async fn what_became_anothers_is_not_changed_by_who_was_allowed_to_before(database: &dyn Database) {
    let store = Fixture::new(database).await.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    let globex = Some(tenant_id("globex"));
    let new = NewSubscription { tenant: globex.clone(), ..new_subscription("billing") };
    let subscription = store.create_subscription(new, &tester()).await.expect("created");
    let grant = store.create_grant(security("oncall", Some("globex")), &tester()).await.expect("created");
    let before = store.revision().await.expect("a revision");
    for owner in [Some(tenant_id("acme")), None] {
        let change = tester().of(owner);
        let update =
            SubscriptionUpdate { attempts_max: Some(7), ..SubscriptionUpdate::new(subscription.id.clone()) };
        assert_fails(store.update_subscription(update, &change).await, ErrorKind::NotFound);
        assert_fails(store.delete_subscription(&subscription.id, &change).await, ErrorKind::NotFound);
        assert_fails(store.delete_grant(&grant.id, &change).await, ErrorKind::NotFound);
    }
    assert_eq!(store.revision().await.expect("a revision"), before, "no trace is left");
    assert_eq!(store.subscription(&subscription.id).await.expect("read"), Some(subscription.clone()));
    let change = tester().of(globex);
    store.delete_grant(&grant.id, &change).await.expect("still its");
    store.delete_subscription(&subscription.id, &change).await.expect("still its");
}

/// So many grants of one tenant at once.
const MANY_OF_ACME: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
    INSERT INTO grants (grant_id, tenant_no, issuer, subject, role, created_at)
    SELECT 'acme-' || i, tenant_no, 'issuer', 'subject', 'viewer', 0 FROM n, tenants WHERE tenant_id = 'acme'";
/// So many of the platform.
const MANY_OF_PLATFORM: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
    INSERT INTO grants (grant_id, issuer, subject, role, created_at)
    SELECT 'all-' || i, 'issuer', 'subject', 'viewer', 0 FROM n";

pub async fn grants_are_bounded_for_each_tenant_and_for_the_platform(database: &dyn Database) {
    let store = Fixture::new(database).await.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    database.execute(MANY_OF_ACME).await;
    store.create_grant(security("last", Some("acme")), &tester()).await.expect("the thousandth");
    let refused = store.create_grant(security("more", Some("acme")), &tester()).await.expect_err("full");
    assert_eq!(refused.kind(), ErrorKind::Exhausted);
    for word in ["tenant acme", "1000", "delete those"] {
        assert!(refused.to_string().contains(word), "{word} is missing: {refused}");
    }
    store.create_grant(security("globex", Some("globex")), &tester()).await.expect("another tenant's");
    database.execute(MANY_OF_PLATFORM).await;
    let before = store.revision().await.expect("a revision");
    store.create_grant(security("full", None), &tester()).await.expect("the ten thousandth");
    let refused = store.create_grant(security("more", None), &tester()).await.expect_err("full");
    assert_eq!(refused.kind(), ErrorKind::Exhausted);
    assert!(refused.to_string().contains("the platform has 10000"), "{refused}");
    assert_eq!(store.revision().await.expect("a revision"), Revision(before.0 + 1), "no trace is left");
    store
        .create_grant(security("globex-2", Some("globex")), &tester())
        .await
        .expect("a tenant's room is its own");
    store.delete_grant(&grant_id("full"), &tester()).await.expect("deleted");
    store.create_grant(security("more", None), &tester()).await.expect("there is room again");
}
