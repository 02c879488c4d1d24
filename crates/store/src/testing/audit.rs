//! The audit log: a row for each change, in the change's transaction, in a chain that nobody alters.

use std::collections::BTreeSet;

use portero_types::Timestamp;
use tokio::task::JoinSet;

use super::fixture::{
    Fixture, NOW, fresh, new_secret, new_source, new_subscription, new_tenant, secret_id, source_id,
    subscription_id, tenant_id, tester,
};
use super::{Database, assert_fails, migrated};
use crate::audit::Chain;
use crate::{
    Actor, AuditEntry, AuditFilter, AuditHash, AuditOrder, Change, DynStore, ErrorKind, NewAuditEntry,
    NewSecret, REASON_BYTES_MAX, SourceUpdate, SubscriptionUpdate, TenantUpdate,
};

/// Every entry, after the chain and the head were looked at.
async fn all(store: &DynStore) -> Vec<AuditEntry> {
    let mut entries: Vec<AuditEntry> = Vec::new();
    let mut chain = Chain::new(None);
    loop {
        let after_seq = entries.last().map(|entry| entry.seq);
        let page = store.audit_entries(AuditFilter { after_seq, ..AuditFilter::default() }, 7).await;
        let page = page.expect("read");
        for entry in &page.items {
            chain.follow(entry).expect("the chain holds");
        }
        entries.extend(page.items);
        if !page.more {
            break;
        }
    }
    assert_eq!(store.audit_head().await.expect("a head"), chain.finish().expect("whole"));
    entries
}

fn actions(entries: &[AuditEntry]) -> Vec<(&str, &str)> {
    entries.iter().map(|entry| (entry.action.as_str(), entry.resource.as_str())).collect()
}

pub async fn every_change_is_an_entry(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme, stripe) = (&fixture.store, tenant_id("acme"), source_id("stripe-eu"));
    let update = TenantUpdate { id: acme.clone(), display_name: Some("Acme".to_owned()), limits: None };
    store.update_tenant(update, &tester()).await.expect("updated");
    let settings = Some([("account".to_owned(), "a1".to_owned())].into());
    let update = SourceUpdate { settings, ..SourceUpdate::new(acme.clone(), stripe.clone()) };
    store.update_source(update, &tester()).await.expect("updated");
    store.add_secret(new_secret("one"), &tester()).await.expect("added");
    let end = Timestamp::from_secs(NOW.as_secs() + 3_600);
    store.retire_secret(&acme, &stripe, &secret_id("one"), end, &tester()).await.expect("retired");
    for _ in 0..2 {
        // The second time nothing changes.
        store.revoke_secret(&acme, &stripe, &secret_id("one"), &tester()).await.expect("revoked");
    }
    store.delete_secret(&acme, &stripe, &secret_id("one"), &tester()).await.expect("deleted");
    store.create_subscription(new_subscription("billing"), &tester()).await.expect("created");
    let update =
        SubscriptionUpdate { attempts_max: Some(7), ..SubscriptionUpdate::new(subscription_id("billing")) };
    store.update_subscription(update, &tester()).await.expect("updated");
    store.delete_subscription(&subscription_id("billing"), &tester()).await.expect("deleted");
    store.delete_source(&acme, &stripe, &tester()).await.expect("deleted");
    store.delete_tenant(&acme, &tester()).await.expect("deleted");
    let entries = all(store).await;
    let (source, secret) = ("tenants/acme/sources/stripe-eu", "tenants/acme/sources/stripe-eu/secrets/one");
    assert_eq!(
        actions(&entries),
        [
            ("CreateTenant", "tenants/acme"),
            ("CreateSource", source),
            ("UpdateTenant", "tenants/acme"),
            ("UpdateSource", source),
            ("CreateSecret", secret),
            ("RetireSecret", secret),
            ("RevokeSecret", secret),
            ("DeleteSecret", secret),
            ("CreateSubscription", "subscriptions/billing"),
            ("UpdateSubscription", "subscriptions/billing"),
            ("DeleteSubscription", "subscriptions/billing"),
            ("DeleteSource", source),
            ("DeleteTenant", "tenants/acme"),
        ]
    );
    for entry in &entries {
        assert_eq!(entry.before.is_none(), entry.action.starts_with("Create"), "{entry:?}");
        assert_eq!(entry.after.is_none(), entry.action.starts_with("Delete"), "{entry:?}");
        let of_tenant = entry.resource.starts_with("tenants/acme");
        assert_eq!(entry.tenant, of_tenant.then(|| acme.clone()), "{entry:?}");
        assert_eq!(entry.tenant_no, of_tenant.then_some(fixture.tenant.no), "{entry:?}");
    }
}

pub async fn a_secret_that_ends_others_is_an_entry_for_each(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    for id in ["one", "two"] {
        store.add_secret(new_secret(id), &tester()).await.expect("added");
    }
    let end = Some(Timestamp::from_secs(NOW.as_secs() + 3_600));
    let new = NewSecret { retire_others_at: end, ..new_secret("three") };
    store.add_secret(new, &tester()).await.expect("added");
    let entries = all(store).await;
    let mut ended: Vec<_> = entries.iter().filter(|entry| entry.action == "RetireSecret").collect();
    ended.sort_by(|a, b| a.resource.cmp(&b.resource));
    assert_eq!(ended.len(), 2);
    for (entry, id) in ended.iter().zip(["one", "two"]) {
        assert!(entry.resource.ends_with(&format!("/secrets/{id}")), "{entry:?}");
        assert!(entry.before.as_ref().is_some_and(|view| view.contains("\"not_after\":null")), "{entry:?}");
        assert!(entry.after.as_ref().is_some_and(|view| !view.contains("\"not_after\":null")), "{entry:?}");
    }
}

pub async fn an_entry_says_who_asked_by_which_request_and_when(database: &dyn Database) {
    let store = migrated(database).await;
    let actor = Actor { issuer: "https://id.example.com".to_owned(), subject: "ann@example.com".to_owned() };
    let change = Change::new(actor.clone(), "deploy-42", Timestamp::from_secs(1_760_000_000));
    store.create_tenant(new_tenant("acme"), &change).await.expect("created");
    let entries = all(&store).await;
    assert_eq!((&entries[0].actor, entries[0].request_id.as_str()), (&actor, "deploy-42"));
    assert_eq!((entries[0].seq, entries[0].at, entries[0].prev_hash), (1, change.at, AuditHash::GENESIS));
}

pub async fn an_entry_keeps_why_it_was_asked_for(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme, stripe) = (&fixture.store, tenant_id("acme"), source_id("stripe-eu"));
    store.add_secret(new_secret("one"), &tester()).await.expect("added");
    let because = |reason: &str| tester().because(reason).expect("a reason");
    let rotation = NewSecret {
        retire_others_at: Some(Timestamp::from_secs(NOW.as_secs() + 3_600)),
        ..new_secret("two")
    };
    store.add_secret(rotation, &because("yearly")).await.expect("added");
    let leaked = because("seen in a public repository, «portero» №7");
    store.revoke_secret(&acme, &stripe, &secret_id("one"), &leaked).await.expect("revoked");
    let longest = because(&"é".repeat(REASON_BYTES_MAX / 2));
    store.delete_secret(&acme, &stripe, &secret_id("one"), &longest).await.expect("deleted");
    let entries = all(store).await;
    let told: Vec<_> =
        entries.iter().skip(2).map(|entry| (entry.action.as_str(), entry.reason.as_deref())).collect();
    assert_eq!(
        told,
        [
            ("CreateSecret", None),
            ("RetireSecret", Some("yearly")),
            ("CreateSecret", Some("yearly")),
            ("RevokeSecret", leaked.reason.as_deref()),
            ("DeleteSecret", longest.reason.as_deref()),
        ]
    );
    for odd in ["", &"x".repeat(REASON_BYTES_MAX + 1)] {
        let odd = Change { reason: Some(odd.to_owned()), ..tester() };
        assert_fails(store.delete_source(&acme, &stripe, &odd).await, ErrorKind::Refused);
    }
    assert_eq!(all(store).await, entries, "nothing was changed");
}

pub async fn before_and_after_of_an_entry_follow_each_other(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    for attempt in 0..3 {
        let settings = Some([("account".to_owned(), format!("a{attempt}"))].into());
        let update =
            SourceUpdate { settings, ..SourceUpdate::new(tenant_id("acme"), source_id("stripe-eu")) };
        fixture.store.update_source(update, &tester()).await.expect("updated");
    }
    let entries = all(&fixture.store).await;
    let of_source: Vec<_> = entries.iter().filter(|entry| entry.resource.ends_with("/stripe-eu")).collect();
    assert_eq!(of_source.len(), 4);
    for pair in of_source.windows(2) {
        assert_eq!(pair[0].after, pair[1].before);
        assert_ne!(pair[1].before, pair[1].after);
    }
}

pub async fn no_secret_and_no_ingest_key_is_in_an_entry(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let key = fixture.source.ingest_key.to_string();
    let update = SourceUpdate {
        public_urls: Some(vec![format!("https://hooks.example.com/in/{key}")]),
        ..SourceUpdate::new(tenant_id("acme"), source_id("stripe-eu"))
    };
    fixture.store.update_source(update, &tester()).await.expect("updated");
    let mut secret = new_secret("one");
    secret.sealed.0 = b"the-sealed-value-of-the-secret".to_vec();
    fixture.store.add_secret(secret.clone(), &tester()).await.expect("added");
    for entry in all(&fixture.store).await {
        let shown = format!("{entry:?}");
        assert!(!shown.contains(&key), "{shown}");
        assert!(!shown.contains("the-sealed-value"), "{shown}");
    }
}

pub async fn a_change_that_failed_is_no_entry(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let before = store.audit_head().await.expect("a head");
    let (acme, unknown) = (tenant_id("acme"), source_id("unknown"));
    assert_fails(store.create_tenant(new_tenant("acme"), &tester()).await, ErrorKind::AlreadyExists);
    assert_fails(store.create_source(new_source("nobody", "a"), &tester()).await, ErrorKind::NotFound);
    assert_fails(store.delete_tenant(&acme, &tester()).await, ErrorKind::FailedPrecondition);
    assert_fails(store.delete_source(&acme, &unknown, &tester()).await, ErrorKind::NotFound);
    let orphan = NewSecret { source: unknown.clone(), ..new_secret("one") };
    assert_fails(store.add_secret(orphan, &tester()).await, ErrorKind::NotFound);
    let update = SourceUpdate::new(acme, unknown);
    assert_fails(store.update_source(update, &tester()).await, ErrorKind::NotFound);
    assert_eq!(store.audit_head().await.expect("a head"), before);
}

pub async fn changes_and_deeds_at_once_make_one_chain(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let store = fixture.store.clone();
        tasks.spawn(async move {
            store.create_tenant(new_tenant(&format!("t{n}")), &tester()).await.expect("created");
            let deed = NewAuditEntry::deed(&tester(), "RetryParkedEntity", format!("entities/{n}"), None);
            store.append(deed).await.expect("appended");
            // One of them is first; the others are undone, entries and all.
            let _ = store.create_tenant(new_tenant("initech"), &tester()).await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let entries = all(&fixture.store).await;
    let distinct: BTreeSet<_> = actions(&entries).into_iter().collect();
    assert_eq!((entries.len(), distinct.len()), (2 + 20 + 20 + 1, 2 + 20 + 20 + 1));
}

pub async fn entries_are_neither_altered_nor_deleted(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let before = all(&fixture.store).await;
    for statement in [
        "UPDATE audit_log SET subject = 'nobody'",
        "UPDATE audit_log SET subject = 'nobody' WHERE seq = 1",
        "DELETE FROM audit_log",
        "DELETE FROM audit_log WHERE seq = 2",
    ] {
        assert!(!database.try_execute(statement).await, "{statement}");
    }
    for statement in database.audit_loopholes() {
        assert!(!database.try_execute(statement).await, "{statement}");
    }
    assert_eq!(all(&fixture.store).await, before);
    fixture.store.create_tenant(new_tenant("globex"), &tester()).await.expect("the log goes on");
    assert_eq!(all(&fixture.store).await.len(), before.len() + 1);
}

pub async fn entries_are_found_by_tenant_subject_and_action(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let ann = Change::new(Actor::local("ann"), "r-1", NOW);
    store.create_tenant(new_tenant("globex"), &ann).await.expect("created");
    store.create_source(new_source("globex", "github"), &ann).await.expect("created");
    let found = async |filter: AuditFilter| {
        let page = store.audit_entries(filter, 100).await.expect("read");
        assert!(!page.more);
        page.items.into_iter().map(|entry| entry.seq).collect::<Vec<_>>()
    };
    let none = AuditFilter::default;
    assert_eq!(found(AuditFilter { tenant: Some(tenant_id("globex")), ..none() }).await, [3, 4]);
    assert_eq!(found(AuditFilter { tenant_no: Some(fixture.tenant.no), ..none() }).await, [1, 2]);
    assert_eq!(found(AuditFilter { subject: Some("ann".to_owned()), ..none() }).await, [3, 4]);
    assert_eq!(found(AuditFilter { action: Some("CreateSource".to_owned()), ..none() }).await, [2, 4]);
    assert_eq!(found(AuditFilter { order: AuditOrder::NewestFirst, ..none() }).await, [4, 3, 2, 1]);
    let later = AuditFilter { order: AuditOrder::NewestFirst, after_seq: Some(3), ..none() };
    assert_eq!(found(later).await, [2, 1]);
    let page = store.audit_entries(none(), 3).await.expect("read");
    assert_eq!((page.items.len(), page.more), (3, true));
}

pub async fn a_tenants_entries_are_not_those_of_the_next_one_of_its_name(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    store.delete_source(&tenant_id("acme"), &source_id("stripe-eu"), &tester()).await.expect("deleted");
    store.delete_tenant(&tenant_id("acme"), &tester()).await.expect("deleted");
    let again = store.create_tenant(new_tenant("acme"), &tester()).await.expect("created again");
    let of = async |filter: AuditFilter| store.audit_entries(filter, 100).await.expect("read").items;
    let none = AuditFilter::default;
    let old = of(AuditFilter { tenant_no: Some(fixture.tenant.no), ..none() }).await;
    let new = of(AuditFilter { tenant_no: Some(again.no), ..none() }).await;
    assert_eq!((old.len(), new.len()), (4, 1));
    assert_eq!(of(AuditFilter { tenant: Some(tenant_id("acme")), ..none() }).await.len(), 5);
}

pub async fn texts_beyond_their_bounds_are_refused_and_longest_ones_kept(database: &dyn Database) {
    let store = migrated(database).await;
    let longest = Actor { issuer: "i".repeat(1024), subject: "s".repeat(1024) };
    let change = Change::new(longest, &"r".repeat(128), NOW);
    let entry = NewAuditEntry::deed(&change, &"a".repeat(64), "x".repeat(512), None);
    store.append(entry.clone()).await.expect("kept");
    let views = NewAuditEntry {
        before: Some("b".repeat(crate::audit::VIEW_BYTES_MAX)),
        after: Some("a".repeat(crate::audit::VIEW_BYTES_MAX + 1)),
        ..entry.clone()
    };
    store.append(views.clone()).await.expect("kept");
    let mut long = entry.clone();
    long.action.push('a');
    assert_fails(store.append(long).await, ErrorKind::Refused);
    let long = NewAuditEntry { resource: "x".repeat(513), ..entry };
    assert_fails(store.append(long).await, ErrorKind::Refused);
    let entries = all(&store).await;
    assert_eq!((entries.len(), entries[1].before.as_ref()), (2, views.before.as_ref()));
    assert!(entries[1].after.as_ref().is_some_and(|view| view.contains("sha256")));
}

pub async fn an_unseen_secret_that_was_taken_is_an_entry(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (store, acme, stripe) = (&fixture.store, tenant_id("acme"), source_id("stripe-eu"));
    let until = Some(Some(Timestamp::from_secs(NOW.as_secs() + 60)));
    let wait =
        SourceUpdate { secret_expected_until: until, ..SourceUpdate::new(acme.clone(), stripe.clone()) };
    store.update_source(wait, &tester()).await.expect("updated");
    let handshake = Change::new(Actor::system("handshake"), &format!("r-{}", fresh()), NOW);
    let source_no = fixture.source.no;
    for _ in 0..2 {
        let outcome = store.write_handshake_secret(source_no, new_secret("one"), NOW, &handshake).await;
        outcome.expect("answered");
    }
    for _ in 0..2 {
        store.take_unseen(&acme, &stripe, &secret_id("one"), &tester()).await.expect("answered");
    }
    let entries = all(store).await;
    let name = "tenants/acme/sources/stripe-eu/secrets/one";
    assert_eq!(actions(&entries[3..]), [("CreateSecret", name), ("RevealSecret", name)]);
    assert_eq!(entries[3].actor, Actor::system("handshake"));
    assert_eq!((&entries[4].before, &entries[4].after), (&None, &None));
}
