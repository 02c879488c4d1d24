//! Secrets that a handshake brought, which are shown once.

use portero_types::Timestamp;
use tokio::task::JoinSet;

use super::Database;
use super::fixture::{
    Fixture, NOW, new_secret, new_source, new_tenant, secret_id, source_id, tenant_id, tester,
};
use crate::{DynStore, NewSecret, Sealed, Secret, SourceUpdate};

/// Lets a handshake bring a secret.
async fn bring(fixture: &Fixture, secret: NewSecret) {
    let wait = SourceUpdate {
        secret_expected_until: Some(Some(NOW)),
        ..SourceUpdate::new(tenant_id("acme"), source_id("stripe-eu"))
    };
    fixture.store.update_source(wait, &tester()).await.expect("updated");
    let before = Timestamp::from_secs(NOW.as_secs() - 1);
    let written = fixture.store.write_handshake_secret(fixture.source.no, secret, before, &tester()).await;
    assert!(written.expect("answered"), "the source waits");
}

async fn read(fixture: &Fixture, id: &str) -> Secret {
    let read = fixture.store.secret(&tenant_id("acme"), &source_id("stripe-eu"), &secret_id(id)).await;
    read.expect("read").expect("there")
}

async fn take(store: &DynStore, tenant: &str, source: &str, id: &str) -> Option<Sealed> {
    let taken = store.take_unseen(&tenant_id(tenant), &source_id(source), &secret_id(id), &tester()).await;
    taken.expect("answered")
}

pub async fn only_what_a_handshake_brought_is_unseen_and_it_is_taken_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let added = store.add_secret(new_secret("added"), &tester()).await.expect("added");
    assert!(!added.unseen, "whoever added it knows it");
    let sealed = Sealed(b"brought".to_vec());
    bring(&fixture, NewSecret { sealed: sealed.clone(), ..new_secret("brought") }).await;
    let brought = read(&fixture, "brought").await;
    assert!(brought.unseen);
    let listed = store.secrets(&tenant_id("acme"), &source_id("stripe-eu"), None, 9).await.expect("a page");
    let unseen: Vec<_> = listed.items.iter().map(|secret| secret.unseen).collect();
    assert_eq!(unseen, [false, true], "lists say it, too");

    let before = store.revision().await.expect("revision");
    assert_eq!(take(store, "acme", "stripe-eu", "added").await, None);
    assert_eq!(take(store, "acme", "stripe-eu", "brought").await, Some(sealed));
    assert_eq!(take(store, "acme", "stripe-eu", "brought").await, None);
    assert_eq!(read(&fixture, "brought").await, Secret { unseen: false, ..brought }, "nothing else changed");
    assert_eq!(read(&fixture, "added").await, added);
    assert_eq!(store.revision().await.expect("revision"), before, "what verifies is the same");
}

pub async fn of_twenty_who_take_one_unseen_secret_one_gets_it(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    bring(&fixture, new_secret("brought")).await;
    let handles = [database.open().await, database.open().await];
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let store = handles[n % 2].clone();
        tasks.spawn(async move { take(&store, "acme", "stripe-eu", "brought").await });
    }
    let taken: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(taken, [new_secret("brought").sealed]);
}

pub async fn an_unseen_secret_is_taken_by_its_full_name_only(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    bring(&fixture, new_secret("brought")).await;
    store.create_source(new_source("acme", "other"), &tester()).await.expect("created");
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    store.create_source(new_source("globex", "stripe-eu"), &tester()).await.expect("created");
    for (tenant, source, id) in [
        ("globex", "stripe-eu", "brought"),
        ("acme", "other", "brought"),
        ("acme", "stripe-eu", "none"),
        ("acme", "none", "brought"),
        ("none", "stripe-eu", "brought"),
    ] {
        assert_eq!(take(store, tenant, source, id).await, None, "{tenant} {source} {id}");
    }
    assert!(read(&fixture, "brought").await.unseen, "none of them used it up");

    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    store.revoke_secret(&acme, &stripe, &secret_id("brought"), &tester()).await.expect("revoked");
    store.delete_secret(&acme, &stripe, &secret_id("brought"), &tester()).await.expect("deleted");
    store.add_secret(new_secret("brought"), &tester()).await.expect("added");
    assert_eq!(take(store, "acme", "stripe-eu", "brought").await, None, "another one has its name");
    store.delete_source(&acme, &stripe, &tester()).await.expect("deleted");
    assert_eq!(take(store, "acme", "stripe-eu", "brought").await, None, "the source is deleted");
}
