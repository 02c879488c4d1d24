//! Tenants' data keys, and how they are destroyed.

use portero_types::{TenantNo, Timestamp, WrappedKey};

use super::fixture::{
    Fixture, NOW, fresh, keyring, new_rejection, new_secret, new_source, new_subscription, new_tenant,
    opened, secret_id, source_id, tenant_id, tester,
};
use super::{Database, assert_fails};
use crate::{
    AuditFilter, DynStore, ErrorKind, KeyUse, NewSubscription, Resealed, Rewrapped, Sealed, TENANT_KEYS_MAX,
    TenantKey,
};

fn key(version: u16, key_id: &str) -> WrappedKey {
    WrappedKey { version, key_id: key_id.to_owned(), bytes: vec![9; 61] }
}

fn key_use(key_id: &str, data_keys: u64, tenants: u64) -> KeyUse {
    KeyUse { key_id: key_id.to_owned(), data_keys, tenants }
}

async fn keys(store: &DynStore, tenant: &str) -> Vec<TenantKey> {
    store.tenant_keys(&tenant_id(tenant)).await.expect("read")
}

async fn uses(store: &DynStore) -> Vec<KeyUse> {
    store.key_uses().await.expect("read")
}

async fn in_snapshot(store: &DynStore) -> Vec<TenantKey> {
    store.snapshot().await.expect("a snapshot").tenant_keys
}

pub async fn a_tenants_data_key_is_made_with_it_and_outlives_it(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let made = keys(store, "acme").await;
    assert_eq!(made.len(), 1);
    assert_eq!((made[0].tenant_no, &made[0].tenant), (fixture.tenant.no, &fixture.tenant.id));
    assert_eq!((&made[0].key, made[0].created_at), (&new_tenant("acme").key, NOW));
    assert!(keyring().unwrap(&made[0].key, &fixture.tenant.id).is_ok());
    assert_eq!(keys(store, "nobody").await, []);
    let event = fixture.event("evt_1");
    fixture.accepted(&event).await;
    store.delete_source(&tenant_id("acme"), &source_id("stripe-eu"), &tester()).await.expect("deleted");
    store.delete_tenant(&tenant_id("acme"), &tester()).await.expect("deleted");
    assert_eq!(keys(store, "acme").await, [], "no living tenant of this name");
    assert_eq!(in_snapshot(store).await, made, "its events are still to be delivered");
    assert_eq!(uses(store).await, [key_use("k1", 1, 1)]);
    let stored = store.events(&[event.receipt_id]).await.expect("read");
    assert_eq!(opened(&stored[0]).body, "{\"id\":\"evt_1\"}");
}

pub async fn data_keys_are_read_of_the_tenants_that_are_asked_for(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme) = (&fixture.store, fixture.tenant.no);
    let other = store.create_tenant(new_tenant("other"), &tester()).await.expect("created");
    let third = store.create_tenant(new_tenant("third"), &tester()).await.expect("created");
    store.add_tenant_key(acme, key(2, "k2"), &tester()).await.expect("added");
    let of = async |tenants: &[TenantNo]| store.tenant_keys_of(tenants).await.expect("read");
    let both = [keys(store, "acme").await, keys(store, "third").await].concat();
    assert_eq!(both.len(), 3);
    assert_eq!(of(&[third.no, TenantNo(i64::MAX), acme]).await, both);
    assert_eq!(of(&[]).await, []);
    let made = keys(store, "other").await;
    store.delete_tenant(&other.id, &tester()).await.expect("deleted");
    assert_eq!(of(&[other.no]).await, made, "its events are still to be delivered");
    store.erase_tenant(&other.id, &tester()).await.expect("erased");
    assert_eq!(of(&[other.no]).await, []);
}

pub async fn uses_and_pages_say_what_is_wrapped_under_which_key(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    for (name, key_id) in [("b", "k2"), ("c", "k1"), ("d", "k3")] {
        let mut new = new_tenant(name);
        new.key = key(1, key_id);
        store.create_tenant(new, &tester()).await.expect("created");
    }
    let acme = fixture.tenant.no;
    store.add_tenant_key(acme, key(2, "k2"), &tester()).await.expect("added");
    assert_eq!(uses(store).await, [key_use("k1", 2, 2), key_use("k2", 2, 2), key_use("k3", 1, 1)]);
    let all = store.keys_not_under("k2", None, 10).await.expect("read");
    let names: Vec<_> = all.iter().map(|found| (found.tenant.as_str(), found.key.version)).collect();
    assert_eq!(names, [("acme", 1), ("c", 1), ("d", 1)]);
    let first = store.keys_not_under("k3", None, 2).await.expect("read");
    assert_eq!(first.iter().map(|found| found.key.version).collect::<Vec<_>>(), [1, 2]);
    let rest = store.keys_not_under("k3", Some((acme, 2)), 10).await.expect("read");
    assert_eq!(rest.iter().map(|found| found.tenant.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    let between = store.keys_not_under("k3", Some((acme, 1)), 1).await.expect("read");
    assert_eq!(between[0].key.version, 2, "a page may end between two versions");
}

pub async fn wrapping_again_replaces_what_is_still_as_it_was_and_raises_no_revision(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    store.create_tenant(new_tenant("other"), &tester()).await.expect("created");
    let (acme, other) = (keys(store, "acme").await.remove(0), keys(store, "other").await.remove(0));
    let before = store.revision().await.expect("revision");
    let of = |found: &TenantKey, from: &WrappedKey| Rewrapped {
        tenant_no: found.tenant_no,
        from: from.clone(),
        to: key(found.key.version, "k2"),
    };
    let stale = of(&other, &key(1, "k1"));
    let gone = Rewrapped { tenant_no: TenantNo(i64::MAX), ..of(&acme, &acme.key) };
    let count = store.rewrap(vec![of(&acme, &acme.key), stale, gone], &tester()).await.expect("wrapped");
    assert_eq!(count, 1, "what changed meanwhile, or is gone, is passed over");
    assert_eq!(keys(store, "acme").await[0].key, key(1, "k2"));
    assert_eq!(keys(store, "other").await, [other]);
    let (seq, _) = store.audit_head().await.expect("a head");
    let told = AuditFilter { after_seq: Some(seq - 1), ..AuditFilter::default() };
    let told = store.audit_entries(told, 2).await.expect("read").items.remove(0);
    assert_eq!((told.action.as_str(), told.resource.as_str()), ("RewrapDataKeys", "keyring/k2"));
    assert_eq!(store.rewrap(vec![of(&acme, &acme.key)], &tester()).await.expect("nothing"), 0);
    assert_eq!(store.rewrap(vec![], &tester()).await.expect("nothing"), 0);
    assert_eq!(store.audit_head().await.expect("a head").0, seq, "nothing was done");
    assert_eq!(store.revision().await.expect("revision"), before, "nobody acts otherwise");
}

pub async fn a_further_data_key_is_added_once_and_raises_the_revision(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme) = (&fixture.store, fixture.tenant.no);
    let later = Timestamp::from_secs(NOW.as_secs() + 1);
    let newest = store.newest_keys_before(later, None, 10).await.expect("read");
    assert_eq!(newest.iter().map(|found| found.key.version).collect::<Vec<_>>(), [1]);
    assert_eq!(store.newest_keys_before(NOW, None, 10).await.expect("read"), [], "made at that time");
    assert_eq!(store.newest_keys_before(later, Some(acme), 10).await.expect("read"), []);
    let before = store.revision().await.expect("revision");
    let mut change = tester();
    change.at = later;
    store.add_tenant_key(acme, key(2, "k1"), &change).await.expect("added");
    assert!(store.revision().await.expect("revision") > before);
    let found = keys(store, "acme").await;
    assert_eq!(found.iter().map(|found| found.key.version).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(in_snapshot(store).await, found);
    assert_eq!(store.newest_keys_before(later, None, 10).await.expect("read"), [], "the newest counts");
    let again = store.add_tenant_key(acme, key(2, "k1"), &tester()).await;
    assert_fails(again, ErrorKind::AlreadyExists);
    let nobody = store.add_tenant_key(TenantNo(i64::MAX), key(2, "k1"), &tester()).await;
    assert_fails(nobody, ErrorKind::NotFound);
}

pub async fn a_tenant_has_sixteen_data_keys_at_most(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let most = u16::try_from(TENANT_KEYS_MAX).expect("few");
    for version in 2..=most {
        let added = fixture.store.add_tenant_key(fixture.tenant.no, key(version, "k1"), &tester()).await;
        added.expect("added");
    }
    let one_more = fixture.store.add_tenant_key(fixture.tenant.no, key(most + 1, "k1"), &tester()).await;
    assert_fails(one_more, ErrorKind::FailedPrecondition);
}

pub async fn resealing_replaces_what_is_still_as_it_was(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let first = store.add_secret(new_secret("first"), &tester()).await.expect("added");
    let second = store.add_secret(new_secret("second"), &tester()).await.expect("added");
    let of = store.secrets_of(fixture.tenant.no).await.expect("read");
    let names: Vec<_> = of.iter().map(|(source, secret)| (source.as_str(), secret.id.as_str())).collect();
    assert_eq!(names, [("stripe-eu", "first"), ("stripe-eu", "second")]);
    assert_eq!(store.secrets_of(TenantNo(i64::MAX)).await.expect("read"), []);
    let to = Sealed(b"again".to_vec());
    let good = Resealed { no: first.no, from: first.sealed, to: to.clone() };
    let stale = Resealed { no: second.no, from: Sealed(b"?".to_vec()), to: to.clone() };
    assert_eq!(store.reseal(vec![good, stale]).await.expect("resealed"), 1);
    let of = store.secrets_of(fixture.tenant.no).await.expect("read");
    assert_eq!((&of[0].1.sealed, &of[1].1), (&to, &second));
}

pub async fn erasing_destroys_keys_secrets_rejections_and_sources_at_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme) = (&fixture.store, tenant_id("acme"));
    store.add_secret(new_secret("first"), &tester()).await.expect("added");
    let rejection = new_rejection(&fixture.source, 1);
    store.record(vec![rejection.clone()]).await.expect("recorded");
    let own = NewSubscription { tenant: Some(acme.clone()), ..new_subscription("own") };
    store.create_subscription(own, &tester()).await.expect("created");
    fixture.subscription("all").await;
    store.create_tenant(new_tenant("other"), &tester()).await.expect("created");
    store.create_source(new_source("other", "stripe-eu"), &tester()).await.expect("created");
    let event = fixture.event("evt_1");
    fixture.accepted(&event).await;
    let before = store.revision().await.expect("revision");

    store.erase_tenant(&acme, &tester()).await.expect("erased");

    assert!(store.revision().await.expect("revision") > before);
    let now = store.snapshot().await.expect("a snapshot");
    let names: Vec<_> = now.tenants.iter().map(|tenant| tenant.id.as_str()).collect();
    assert_eq!(names, ["other"]);
    assert_eq!(now.sources.iter().map(|source| source.tenant.as_str()).collect::<Vec<_>>(), ["other"]);
    assert_eq!(now.secrets, []);
    let subscriptions: Vec<_> = now.subscriptions.iter().map(|found| found.id.as_str()).collect();
    assert_eq!(subscriptions, ["all"]);
    assert_eq!(now.tenant_keys.iter().map(|found| found.tenant.as_str()).collect::<Vec<_>>(), ["other"]);
    assert_eq!(uses(store).await, [key_use("k1", 1, 1)]);
    assert_eq!(store.tenant(&acme).await.expect("read"), None);
    let secret = store.secret(&acme, &source_id("stripe-eu"), &secret_id("first")).await;
    assert_eq!(secret.expect("read"), None);
    assert_eq!(store.get(&acme, rejection.request_id).await.expect("read"), None);
    let receipt = store.receipt(event.tenant_no, event.receipt_id).await.expect("read");
    assert!(receipt.is_some(), "what was accepted stays known");
    assert_fails(store.erase_tenant(&acme, &tester()).await, ErrorKind::NotFound);
    let late = store.add_tenant_key(fixture.tenant.no, key(2, "k1"), &tester()).await;
    assert_fails(late, ErrorKind::NotFound);
    store.create_tenant(new_tenant("acme"), &tester()).await.expect("the name is free");
}

pub async fn erasing_a_deleted_name_takes_all_of_them_and_no_living_one(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme) = (&fixture.store, tenant_id("acme"));
    store.delete_source(&acme, &source_id("stripe-eu"), &tester()).await.expect("deleted");
    store.delete_tenant(&acme, &tester()).await.expect("deleted");
    store.create_tenant(new_tenant("acme"), &tester()).await.expect("created");
    store.delete_tenant(&acme, &tester()).await.expect("deleted");
    let third = store.create_tenant(new_tenant("acme"), &tester()).await.expect("created");
    store.erase_tenant(&acme, &tester()).await.expect("erased");
    assert!(in_snapshot(store).await.iter().all(|found| found.tenant_no != third.no), "the living one");
    assert_eq!(in_snapshot(store).await.len(), 2, "the deleted ones stay while one lived");
    store.erase_tenant(&acme, &tester()).await.expect("erased");
    assert_eq!(in_snapshot(store).await, []);
    assert_fails(store.erase_tenant(&acme, &tester()).await, ErrorKind::NotFound);
    assert_fails(store.erase_tenant(&tenant_id("nobody"), &tester()).await, ErrorKind::NotFound);
}

pub async fn an_erased_tenants_events_say_so(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let event = fixture.event(&format!("evt_{}", fresh()));
    fixture.accepted(&event).await;
    fixture.store.erase_tenant(&tenant_id("acme"), &tester()).await.expect("erased");
    let stored = fixture.store.events(&[event.receipt_id]).await.expect("read");
    assert!(stored[0].is_erased, "so that nobody waits for its key");
    let keys = in_snapshot(&fixture.store).await;
    assert_eq!(keys, []);
}
