//! Sources that change: updates, and secrets that a handshake brings.

use std::collections::BTreeMap;

use portero_types::{SourceNo, Timestamp};
use tokio::task::JoinSet;

use super::fixture::{
    Fixture, NOW, new_secret, new_source, new_tenant, secret_id, source_id, tenant_id, tester,
};
use super::{Database, assert_fails};
use crate::{ErrorKind, NewSecret, SourceUpdate};

fn update() -> SourceUpdate {
    SourceUpdate::new(tenant_id("acme"), source_id("stripe-eu"))
}

fn later(secs: i64) -> Timestamp {
    Timestamp::from_secs(NOW.as_secs() + secs)
}

/// Lets the fixture's source wait for a secret for an hour.
async fn wait_for_secret(fixture: &Fixture) {
    let wait = SourceUpdate { secret_expected_until: Some(Some(later(3_600))), ..update() };
    fixture.store.update_source(wait, &tester()).await.expect("updated");
}

pub async fn an_update_changes_what_is_given_and_nothing_else(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut expected = fixture.source.clone();
    assert_eq!(fixture.store.update_source(update(), &tester()).await.expect("updated"), expected);

    let urls = vec!["https://new.example.com/".to_owned(), "https://old.example.com/".to_owned()];
    let change = SourceUpdate { public_urls: Some(urls.clone()), ..update() };
    expected.public_urls = urls;
    assert_eq!(fixture.store.update_source(change, &tester()).await.expect("updated"), expected);

    let settings = BTreeMap::from([("b".to_owned(), "2".to_owned())]);
    let change = SourceUpdate { settings: Some(settings.clone()), ..update() };
    expected.settings = settings;
    assert_eq!(fixture.store.update_source(change, &tester()).await.expect("updated"), expected);

    let recipe = "{\"version\":1}".to_owned();
    let change = SourceUpdate { preset: Some(String::new()), recipe: Some(recipe.clone()), ..update() };
    (expected.preset, expected.recipe) = (String::new(), recipe);
    assert_eq!(fixture.store.update_source(change, &tester()).await.expect("updated"), expected);

    for until in [Some(later(60)), None] {
        let change = SourceUpdate { secret_expected_until: Some(until), ..update() };
        expected.secret_expected_until = until;
        assert_eq!(fixture.store.update_source(change, &tester()).await.expect("updated"), expected);
    }

    let change = SourceUpdate { public_urls: Some(vec![]), settings: Some(BTreeMap::new()), ..update() };
    (expected.public_urls, expected.settings) = (vec![], BTreeMap::new());
    assert_eq!(fixture.store.update_source(change, &tester()).await.expect("updated"), expected);
    let read = fixture.store.source(&tenant_id("acme"), &source_id("stripe-eu")).await.expect("read");
    assert_eq!(read.as_ref(), Some(&expected));
    assert_eq!(fixture.store.snapshot().await.expect("snapshot").sources, [expected]);
}

pub async fn an_update_raises_the_revision_and_a_refused_one_does_not(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let before = fixture.store.revision().await.expect("revision");
    fixture.store.update_source(update(), &tester()).await.expect("updated");
    let after = fixture.store.revision().await.expect("revision");
    assert!(after > before);
    let unknown = SourceUpdate::new(tenant_id("acme"), source_id("none"));
    assert_fails(fixture.store.update_source(unknown, &tester()).await, ErrorKind::NotFound);
    let torn = SourceUpdate { preset: Some("github".to_owned()), ..update() };
    assert_fails(fixture.store.update_source(torn, &tester()).await, ErrorKind::Refused);
    assert_eq!(fixture.store.revision().await.expect("revision"), after);
}

pub async fn a_source_beyond_its_bounds_is_refused(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let text = |n: usize| "x".repeat(n);
    for urls in [vec![text(1); 5], vec![text(2_001)], vec![text(0)], vec!["a\0".to_owned()]] {
        let mut new = new_source("acme", "other");
        new.public_urls.clone_from(&urls);
        assert_fails(fixture.store.create_source(new, &tester()).await, ErrorKind::Refused);
        let change = SourceUpdate { public_urls: Some(urls), ..update() };
        assert_fails(fixture.store.update_source(change, &tester()).await, ErrorKind::Refused);
    }
    let many = (0..17).map(|n| (n.to_string(), String::new())).collect();
    let one = |name: String, value: String| BTreeMap::from([(name, value)]);
    for settings in [
        many,
        one(text(65), text(1)),
        one(text(0), text(1)),
        one(text(1), text(1_025)),
        one(text(1), "\0".to_owned()),
        one("\0".to_owned(), text(1)),
    ] {
        let mut new = new_source("acme", "other");
        new.settings.clone_from(&settings);
        assert_fails(fixture.store.create_source(new, &tester()).await, ErrorKind::Refused);
        let change = SourceUpdate { settings: Some(settings), ..update() };
        assert_fails(fixture.store.update_source(change, &tester()).await, ErrorKind::Refused);
    }
    // What escapes grow to still fits.
    let full = (0..16).map(|n| (format!("{n:064}"), "\u{1}".repeat(1_024))).collect();
    let change =
        SourceUpdate { settings: Some(full), public_urls: Some(vec!["u".repeat(2_000); 4]), ..update() };
    fixture.store.update_source(change, &tester()).await.expect("updated");
}

pub async fn another_tenants_source_is_not_updated(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    fixture.store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    let foreign = SourceUpdate { public_urls: Some(vec![]), ..update() };
    let foreign = SourceUpdate { tenant: tenant_id("globex"), ..foreign };
    assert_fails(fixture.store.update_source(foreign, &tester()).await, ErrorKind::NotFound);
    let read = fixture.store.source(&tenant_id("acme"), &source_id("stripe-eu")).await.expect("read");
    assert_eq!(read, Some(fixture.source.clone()));
}

pub async fn a_handshake_brings_the_secret_exactly_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    wait_for_secret(&fixture).await;
    let before = fixture.store.revision().await.expect("revision");
    let (no, handles) = (fixture.source.no, [database.open().await, database.open().await]);
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let (store, secret) = (handles[n % 2].clone(), new_secret(&format!("handshake-{n}")));
        tasks.spawn(async move { store.write_handshake_secret(no, secret, later(1), &tester()).await });
    }
    let outcomes = tasks.join_all().await;
    let written = outcomes.into_iter().filter(|outcome| *outcome.as_ref().expect("answered")).count();
    assert_eq!(written, 1);
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    let secrets = fixture.store.secrets(&acme, &stripe, None, 100).await.expect("a page").items;
    assert_eq!(secrets.len(), 1);
    assert_eq!(secrets[0].sealed, new_secret("any").sealed);
    let source = fixture.store.source(&acme, &stripe).await.expect("read").expect("there");
    assert_eq!(source.secret_expected_until, None);
    let after = fixture.store.revision().await.expect("revision");
    assert_eq!(after.0, before.0 + 1, "those that came too late changed nothing");
}

pub async fn a_source_that_does_not_wait_takes_no_secret(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, no) = (&fixture.store, fixture.source.no);
    let write = async |no: SourceNo, at: i64| {
        store.write_handshake_secret(no, new_secret("one"), later(at), &tester()).await.expect("answered")
    };
    assert!(!write(no, 0).await, "it never waited");
    wait_for_secret(&fixture).await;
    let before = store.revision().await.expect("revision");
    assert!(!write(no, 3_600).await, "it waits no longer");
    assert!(!write(SourceNo(no.0 + 1_000), 0).await, "no such source");
    assert_eq!(store.revision().await.expect("revision"), before);
    let acme = tenant_id("acme");
    assert_eq!(store.secrets(&acme, &source_id("stripe-eu"), None, 9).await.expect("a page").items, []);

    store.delete_source(&acme, &source_id("stripe-eu"), &tester()).await.expect("deleted");
    assert!(!write(no, 0).await, "it is deleted");
    store.create_source(new_source("acme", "stripe-eu"), &tester()).await.expect("created again");
    assert!(!write(no, 0).await, "another one has its name");
    assert_eq!(store.secrets(&acme, &source_id("stripe-eu"), None, 9).await.expect("a page").items, []);
}

pub async fn a_secret_that_is_given_ends_the_wait_for_one(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    wait_for_secret(&fixture).await;
    fixture.store.add_secret(new_secret("given"), &tester()).await.expect("added");
    let source = fixture.store.source(&tenant_id("acme"), &source_id("stripe-eu")).await.expect("read");
    assert_eq!(source.expect("there").secret_expected_until, None);
    let late = fixture
        .store
        .write_handshake_secret(fixture.source.no, new_secret("late"), later(1), &tester())
        .await;
    assert!(!late.expect("answered"), "a stranger's is not taken beside it");
}

pub async fn a_refused_handshake_secret_leaves_the_source_waiting(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, no) = (&fixture.store, fixture.source.no);
    store.add_secret(new_secret("one"), &tester()).await.expect("added");
    store.create_source(new_source("acme", "other"), &tester()).await.expect("created");
    wait_for_secret(&fixture).await;
    let taken = store.write_handshake_secret(no, new_secret("one"), NOW, &tester()).await;
    assert_fails(taken, ErrorKind::AlreadyExists);
    let elsewhere = NewSecret { source: source_id("other"), ..new_secret("two") };
    assert_fails(store.write_handshake_secret(no, elsewhere, NOW, &tester()).await, ErrorKind::NotFound);
    let other = store.secrets(&tenant_id("acme"), &source_id("other"), None, 9).await.expect("a page");
    assert_eq!(other.items, [], "undone as a whole");
    let retiring = NewSecret { retire_others_at: Some(later(60)), ..new_secret("two") };
    assert!(store.write_handshake_secret(no, retiring, NOW, &tester()).await.expect("answered"));
    let first = store.secret(&tenant_id("acme"), &source_id("stripe-eu"), &secret_id("one")).await;
    assert_eq!(first.expect("read").expect("there").not_after, Some(later(60)));
}
