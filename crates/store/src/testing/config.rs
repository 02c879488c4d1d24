//! Tenants, sources, subscriptions, and the revision that rises with each change.

use portero_types::{IngestKey, LaneCount, Shard};
use tokio::task::JoinSet;

use super::fixture::{
    Fixture, NOW, fresh, new_secret, new_session, new_source, new_subscription, new_tenant, source_id,
    subscription_id, tenant_id, tester,
};
use super::{Database, assert_fails, migrated};
use crate::{
    DeadLetterPolicy, ErrorKind, NewSource, NewSubscription, PageRequest, StartAt, SubscriptionUpdate,
};

pub async fn every_change_raises_the_revision(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let mut last = store.revision().await.expect("revision");
    let mut rose = async |what: &str| {
        let now = store.revision().await.expect("revision");
        assert!(now > last, "{what}: {now:?}");
        last = now;
    };
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    rose("create tenant").await;
    store.create_source(new_source("globex", "github"), &tester()).await.expect("created");
    rose("create source").await;
    store.add_secret(new_secret("one"), &tester()).await.expect("added");
    rose("add secret").await;
    store.create_subscription(new_subscription("billing"), &tester()).await.expect("created");
    rose("create subscription").await;
    let (acme, stripe, one) = (tenant_id("acme"), source_id("stripe-eu"), new_secret("one").id);
    store.retire_secret(&acme, &stripe, &one, NOW, &tester()).await.expect("retired");
    rose("retire secret").await;
    store.revoke_secret(&acme, &stripe, &one, &tester()).await.expect("revoked");
    rose("revoke secret").await;
    store.delete_secret(&acme, &stripe, &one, &tester()).await.expect("deleted");
    rose("delete secret").await;
    store.delete_subscription(&subscription_id("billing"), &tester()).await.expect("deleted");
    rose("delete subscription").await;
    store.delete_source(&tenant_id("globex"), &source_id("github"), &tester()).await.expect("deleted");
    rose("delete source").await;
    store.delete_tenant(&tenant_id("globex"), &tester()).await.expect("deleted");
    rose("delete tenant").await;
    let before = store.revision().await.expect("revision");
    assert_fails(store.create_tenant(new_tenant("acme"), &tester()).await, ErrorKind::AlreadyExists);
    assert_eq!(store.revision().await.expect("revision"), before, "a failed change changes nothing");
}

pub async fn tenants_are_created_read_and_deleted(database: &dyn Database) {
    let store = migrated(database).await;
    let mut new = new_tenant("acme");
    new.display_name = "Ünïcode '; \"Company\"".to_owned();
    let tenant = store.create_tenant(new.clone(), &tester()).await.expect("created");
    assert!(tenant.no.0 > 0);
    assert_eq!(tenant.display_name, new.display_name);
    assert_eq!(tenant.created_at, new.created_at);
    assert_eq!(store.tenant(&new.id).await.expect("read"), Some(tenant));
    assert_fails(store.create_tenant(new.clone(), &tester()).await, ErrorKind::AlreadyExists);
    store.delete_tenant(&new.id, &tester()).await.expect("deleted");
    assert_eq!(store.tenant(&new.id).await.expect("read"), None);
    assert_fails(store.delete_tenant(&new.id, &tester()).await, ErrorKind::NotFound);
}

pub async fn sources_are_created_read_and_deleted(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let acme = tenant_id("acme");
    let mut new = new_source("acme", "custom");
    new.preset = String::new();
    new.recipe = "{\"name\":\"ü\"}".to_owned();
    new.public_urls = vec!["https://hooks.example.com/ü".to_owned(), "http://b/\"c\\".to_owned()];
    new.settings = [("a", "'; \"quoted\" {ü}"), ("b", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    new.secret_expected_until = Some(NOW);
    let source = store.create_source(new.clone(), &tester()).await.expect("created");
    assert_eq!((source.tenant_no, &source.tenant), (fixture.tenant.no, &fixture.tenant.id));
    assert_eq!((&source.recipe, &source.preset), (&new.recipe, &new.preset));
    assert_eq!((&source.public_urls, &source.settings), (&new.public_urls, &new.settings));
    assert_eq!(source.secret_expected_until, Some(NOW));
    assert_eq!((source.ingest_key, &source.provider), (new.ingest_key, &new.provider));
    assert_eq!(store.source(&acme, &new.id).await.expect("read"), Some(source));
    let twice = NewSource { ingest_key: IngestKey::from_bytes([9; 16]), ..new.clone() };
    assert_fails(store.create_source(twice, &tester()).await, ErrorKind::AlreadyExists);
    assert_fails(store.create_source(new_source("nobody", "custom"), &tester()).await, ErrorKind::NotFound);
    store.delete_source(&acme, &new.id, &tester()).await.expect("deleted");
    assert_eq!(store.source(&acme, &new.id).await.expect("read"), None);
    assert_fails(store.delete_source(&acme, &new.id, &tester()).await, ErrorKind::NotFound);
    assert_fails(store.delete_source(&tenant_id("nobody"), &new.id, &tester()).await, ErrorKind::NotFound);
}

pub async fn lists_come_in_the_order_of_names_page_by_page(database: &dyn Database) {
    let store = migrated(database).await;
    // '-' sorts below digits and letters in bytes; a database's own collation may think otherwise.
    let names = ["a", "a-b", "a1", "aa", "b", "b-1", "b0"];
    for name in names.iter().rev() {
        store.create_tenant(new_tenant(name), &tester()).await.expect("created");
        store.create_source(new_source("b", name), &tester()).await.map_or_else(
            |error| assert_eq!(error.kind(), ErrorKind::NotFound),
            |source| assert_eq!(source.id, source_id(name)),
        );
        store.create_subscription(new_subscription(name), &tester()).await.expect("created");
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store.tenants(after.as_ref(), 3).await.expect("a page");
        assert!(page.items.len() == 3 || !page.more);
        seen.extend(page.items.iter().map(|tenant| tenant.id.as_str().to_owned()));
        after = page.items.last().map(|tenant| tenant.id.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, names);
    let page = store.tenants(None, 7).await.expect("a page");
    assert!(!page.more && page.items.len() == 7, "a full last page has no more");
    let page = store.sources(&tenant_id("b"), Some(&source_id("a-b")), 2).await.expect("a page");
    assert_eq!(page.items.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["a1", "aa"]);
    assert!(page.more);
    let page = store.subscriptions(Some(&subscription_id("b")), 9).await.expect("a page");
    assert_eq!(page.items.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["b-1", "b0"]);
    assert!(!page.more);
}

pub async fn lists_show_nothing_of_other_tenants(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    store.create_source(new_source("globex", "github"), &tester()).await.expect("created");
    store.add_secret(new_secret("one"), &tester()).await.expect("added");
    let globex = tenant_id("globex");
    let page = store.sources(&globex, None, 10).await.expect("a page");
    assert_eq!(page.items.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["github"]);
    assert_eq!(store.source(&globex, &source_id("stripe-eu")).await.expect("read"), None);
    assert_eq!(store.secrets(&globex, &source_id("stripe-eu"), None, 10).await.expect("a page").items, []);
    assert_eq!(store.sources(&tenant_id("nobody"), None, 10).await.expect("a page").items, []);
}

pub async fn a_tenant_in_use_is_not_deleted(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let acme = tenant_id("acme");
    assert_fails(store.delete_tenant(&acme, &tester()).await, ErrorKind::FailedPrecondition);
    store.delete_source(&acme, &source_id("stripe-eu"), &tester()).await.expect("deleted");
    let mut subscription = new_subscription("billing");
    subscription.tenant = Some(acme.clone());
    store.create_subscription(subscription, &tester()).await.expect("created");
    assert_fails(store.delete_tenant(&acme, &tester()).await, ErrorKind::FailedPrecondition);
    store.delete_subscription(&subscription_id("billing"), &tester()).await.expect("deleted");
    store.delete_tenant(&acme, &tester()).await.expect("deleted");
}

pub async fn a_deleted_name_may_be_used_again(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let acme = tenant_id("acme");
    for _ in 0..3 {
        store.delete_source(&acme, &source_id("stripe-eu"), &tester()).await.expect("deleted");
        let source =
            store.create_source(new_source("acme", "stripe-eu"), &tester()).await.expect("created again");
        assert_ne!(source.no, fixture.source.no);
    }
    store.delete_source(&acme, &source_id("stripe-eu"), &tester()).await.expect("deleted");
    store.delete_tenant(&acme, &tester()).await.expect("deleted");
    let tenant = store.create_tenant(new_tenant("acme"), &tester()).await.expect("created again");
    assert_ne!(tenant.no, fixture.tenant.no);
    assert_eq!(store.sources(&acme, None, 10).await.expect("a page").items, []);
}

pub async fn an_ingest_key_belongs_to_one_source(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let same = NewSource { ingest_key: fixture.source.ingest_key, ..new_source("acme", "other") };
    assert_fails(fixture.store.create_source(same.clone(), &tester()).await, ErrorKind::AlreadyExists);
    fixture
        .store
        .delete_source(&tenant_id("acme"), &source_id("stripe-eu"), &tester())
        .await
        .expect("deleted");
    let outcome = fixture.store.create_source(same, &tester()).await;
    assert_fails(outcome, ErrorKind::AlreadyExists);
}

pub async fn events_outlive_their_source_and_tenant(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let event = fixture.event("evt_1");
    fixture.accepted(&event).await;
    fixture
        .store
        .delete_source(&tenant_id("acme"), &source_id("stripe-eu"), &tester())
        .await
        .expect("deleted");
    fixture.store.delete_tenant(&tenant_id("acme"), &tester()).await.expect("deleted");
    let stored = fixture.store.events(&[event.receipt_id]).await.expect("read");
    assert_eq!((&stored[0].tenant, &stored[0].source), (&fixture.tenant.id, &fixture.source.id));
    assert!(fixture.store.receipt(event.tenant_no, event.receipt_id).await.expect("read").is_some());
}

pub async fn subscriptions_read_back_as_they_were_created(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let new = NewSubscription {
        tenant: Some(tenant_id("acme")),
        sources: vec![source_id("stripe-eu"), source_id("a")],
        event_types: vec!["invoice.*".to_owned(), "ü, \"quoted\"".to_owned(), String::new()],
        lanes: LaneCount::new(256).expect("valid"),
        attempts_max: 1_000,
        defer_deadline_ms: 604_800_000,
        dead_letter_policy: DeadLetterPolicy::ParkEntity,
        ..new_subscription("billing")
    };
    let subscription = store.create_subscription(new.clone(), &tester()).await.expect("created");
    assert_eq!(subscription.tenant, new.tenant);
    assert_eq!((&subscription.sources, &subscription.event_types), (&new.sources, &new.event_types));
    assert_eq!((subscription.lanes, subscription.attempts_max), (new.lanes, new.attempts_max));
    assert_eq!(subscription.defer_deadline_ms, new.defer_deadline_ms);
    assert_eq!((subscription.dead_letter_policy, subscription.expired), (new.dead_letter_policy, 0));
    assert_eq!(subscription.created_at, new.created_at);
    assert_eq!(subscription.starts_after.len(), usize::from(fixture.shards.get()));
    assert_eq!(store.subscription(&new.id).await.expect("read"), Some(subscription));
    assert_fails(store.create_subscription(new.clone(), &tester()).await, ErrorKind::AlreadyExists);
    let orphan = NewSubscription { tenant: Some(tenant_id("nobody")), ..new_subscription("orphan") };
    assert_fails(store.create_subscription(orphan, &tester()).await, ErrorKind::NotFound);
    store.delete_subscription(&new.id, &tester()).await.expect("deleted");
    assert_eq!(store.subscription(&new.id).await.expect("read"), None);
    assert_fails(store.delete_subscription(&new.id, &tester()).await, ErrorKind::NotFound);
}

pub async fn a_subscriptions_update_changes_what_is_given_and_nothing_else(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let new = NewSubscription { tenant: Some(tenant_id("acme")), ..new_subscription("billing") };
    let mut expected = store.create_subscription(new, &tester()).await.expect("created");
    let update = || SubscriptionUpdate::new(expected.id.clone());
    let changes = [
        SubscriptionUpdate { attempts_max: Some(3), ..update() },
        SubscriptionUpdate { defer_deadline_ms: Some(1_000), ..update() },
        SubscriptionUpdate { dead_letter_policy: Some(DeadLetterPolicy::ParkEntity), ..update() },
        update(),
    ];
    let unknown = SubscriptionUpdate::new(subscription_id("nobody"));
    for change in changes {
        expected.attempts_max = change.attempts_max.unwrap_or(expected.attempts_max);
        expected.defer_deadline_ms = change.defer_deadline_ms.unwrap_or(expected.defer_deadline_ms);
        expected.dead_letter_policy = change.dead_letter_policy.unwrap_or(expected.dead_letter_policy);
        let before = store.revision().await.expect("a revision");
        assert_eq!(store.update_subscription(change, &tester()).await.expect("updated"), expected);
        assert!(store.revision().await.expect("a revision") > before, "gateways hear of it");
        assert_eq!(store.subscription(&expected.id).await.expect("read").as_ref(), Some(&expected));
    }
    assert_fails(store.update_subscription(unknown, &tester()).await, ErrorKind::NotFound);
}

pub async fn a_subscription_needs_a_lane_for_each_shard(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    for count in [1, 2, 4, 8, 16, 32, 64] {
        let lanes = LaneCount::new(count).expect("valid");
        let new = NewSubscription { lanes, ..new_subscription(&format!("lanes-{count}")) };
        let outcome = fixture.store.create_subscription(new, &tester()).await;
        if count < fixture.shards.get() {
            assert_fails(outcome, ErrorKind::FailedPrecondition);
        } else {
            outcome.expect("created");
        }
    }
}

pub async fn a_subscription_begins_at_the_head_or_at_the_oldest_event(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    fixture.fill(Shard(0), 7).await;
    fixture.fill(Shard(3), 2).await;
    let heads = fixture.store.heads().await.expect("heads");
    assert_eq!(fixture.subscription("latest").await.starts_after, heads);
    let new = NewSubscription { start_at: StartAt::Earliest, ..new_subscription("earliest") };
    let earliest = fixture.store.create_subscription(new, &tester()).await.expect("created");
    for (shard, count) in [(0, 7), (1, 0), (3, 2)] {
        let after = earliest.starts_after[usize::from(shard)];
        let page = PageRequest::new(Shard(shard), after, 100);
        assert_eq!(fixture.store.page(page).await.expect("a page").entries.len(), count);
    }
}

pub async fn a_deleted_subscription_takes_its_lanes_along(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let session = fixture.session("one").await;
    let claimed =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    assert_eq!(claimed.len(), 16);
    fixture.store.delete_subscription(&subscription.id, &tester()).await.expect("deleted");
    let outcome = fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await;
    assert_fails(outcome, ErrorKind::NotFound);
    let again = fixture.subscription("billing").await;
    assert_ne!(again.no, subscription.no);
    let claimed = fixture.store.claim_lanes(session, again.no, again.lanes, 1).await.expect("claimed");
    assert_eq!(claimed.len(), 16);
}

pub async fn the_snapshot_holds_what_is_live(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    let kept = store.create_source(new_source("globex", "github"), &tester()).await.expect("created");
    store.create_source(new_source("globex", "gone"), &tester()).await.expect("created");
    let secret = store.add_secret(new_secret("one"), &tester()).await.expect("added");
    let mut lost = new_secret("two");
    lost.tenant = tenant_id("globex");
    lost.source = source_id("gone");
    store.add_secret(lost, &tester()).await.expect("added");
    store.delete_source(&tenant_id("globex"), &source_id("gone"), &tester()).await.expect("deleted");
    let subscription = fixture.subscription("billing").await;
    let snapshot = store.snapshot().await.expect("snapshot");
    assert_eq!(snapshot.revision, store.revision().await.expect("revision"));
    assert_eq!(snapshot.tenants.len(), 2);
    let mut sources = snapshot.sources;
    sources.sort_by_key(|source| source.no);
    assert_eq!(sources, [fixture.source.clone(), kept]);
    assert_eq!(snapshot.secrets, [secret]);
    assert_eq!(snapshot.subscriptions, [subscription]);
    let session = new_session("unrelated", 1_000);
    let before = store.revision().await.expect("revision");
    store.open_session(&session).await.expect("a session");
    assert_eq!(store.revision().await.expect("revision"), before, "sessions are not configuration");
}

pub async fn creating_one_name_at_once_succeeds_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let before = fixture.store.revision().await.expect("revision");
    let handles = [database.open().await, database.open().await];
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let store = handles[n % 2].clone();
        tasks.spawn(async move { store.create_tenant(new_tenant("initech"), &tester()).await });
        let store = handles[n % 2].clone();
        tasks
            .spawn(async move { store.create_tenant(new_tenant(&format!("t{}", fresh())), &tester()).await });
    }
    let outcomes = tasks.join_all().await;
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(failed.len(), 15);
    assert!(failed.iter().all(|error| error.kind() == ErrorKind::AlreadyExists), "{failed:?}");
    let after = fixture.store.revision().await.expect("revision");
    assert!(after.0 >= before.0 + 17, "each of 17 changes raised it: {before:?} to {after:?}");
}
