//! Secrets from their planning to their end: retired, revoked, deleted.

use portero_types::Timestamp;

use super::fixture::{Fixture, NOW, new_secret, new_source, secret_id, source_id, tenant_id, tester};
use super::{Database, assert_fails};
use crate::{Change, ErrorKind, NewSecret, Secret};

fn secs(seconds: i64) -> Timestamp {
    Timestamp::from_secs(NOW.as_secs() + seconds)
}

fn change_at(seconds: i64) -> Change {
    Change { at: secs(seconds), ..tester() }
}

async fn add(fixture: &Fixture, secret: NewSecret) -> Secret {
    fixture.store.add_secret(secret, &tester()).await.expect("added")
}

async fn retire(fixture: &Fixture, id: &str, at: Timestamp, change: &Change) -> crate::Result<Secret> {
    fixture.store.retire_secret(&tenant_id("acme"), &source_id("stripe-eu"), &secret_id(id), at, change).await
}

async fn revoke(fixture: &Fixture, id: &str, change: &Change) -> crate::Result<Secret> {
    fixture.store.revoke_secret(&tenant_id("acme"), &source_id("stripe-eu"), &secret_id(id), change).await
}

async fn delete(fixture: &Fixture, id: &str, change: &Change) -> crate::Result<()> {
    fixture.store.delete_secret(&tenant_id("acme"), &source_id("stripe-eu"), &secret_id(id), change).await
}

pub async fn a_secrets_end_is_set_moved_and_never_undone(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let added = add(&fixture, new_secret("old")).await;
    let retired = retire(&fixture, "old", secs(60), &tester()).await.expect("retired");
    assert_eq!(retired, Secret { not_after: Some(secs(60)), ..added.clone() });
    let later = retire(&fixture, "old", secs(90), &change_at(59)).await.expect("it has not ended yet");
    assert_eq!(later.not_after, Some(secs(90)));
    let before = fixture.store.revision().await.expect("revision");
    assert_fails(retire(&fixture, "old", secs(99), &change_at(90)).await, ErrorKind::FailedPrecondition);
    assert_fails(retire(&fixture, "none", secs(99), &tester()).await, ErrorKind::NotFound);
    assert_eq!(fixture.store.revision().await.expect("revision"), before, "nothing changed");
}

pub async fn an_end_that_would_let_too_many_verify_is_refused(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    add(&fixture, new_secret("s0")).await;
    retire(&fixture, "s0", secs(10), &tester()).await.expect("retired");
    for n in 1..=portero_types::limits::ACTIVE_SECRETS_MAX {
        add(&fixture, NewSecret { not_before: secs(10), ..new_secret(&format!("s{n}")) }).await;
    }
    assert_fails(retire(&fixture, "s0", secs(11), &tester()).await, ErrorKind::FailedPrecondition);
    retire(&fixture, "s0", secs(9), &tester()).await.expect("sooner is fine");
}

pub async fn a_rotation_leaves_planned_ended_and_revoked_secrets_alone(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    for id in ["active", "gone"] {
        add(&fixture, new_secret(id)).await;
    }
    add(&fixture, NewSecret { not_before: secs(3_600), ..new_secret("planned") }).await;
    revoke(&fixture, "gone", &tester()).await.expect("revoked");
    let rotation = NewSecret { retire_others_at: Some(secs(60)), ..new_secret("next") };
    add(&fixture, rotation).await;
    let page = fixture.store.secrets(&tenant_id("acme"), &source_id("stripe-eu"), None, 9).await;
    let ends: Vec<_> = page
        .expect("a page")
        .items
        .into_iter()
        .map(|secret| (secret.id.to_string(), secret.not_after))
        .collect();
    let wanted = [("active", Some(secs(60))), ("gone", None), ("next", None), ("planned", None)];
    assert_eq!(ends, wanted.map(|(id, end)| (id.to_owned(), end)));
}

pub async fn a_rotation_that_begins_in_the_past_ends_what_verifies_now(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    add(&fixture, new_secret("active")).await;
    add(&fixture, NewSecret { not_before: secs(1), ..new_secret("planned") }).await;
    let begins = NewSecret { not_before: secs(-86_400), ..new_secret("next") };
    add(&fixture, NewSecret { retire_others_at: Some(secs(60)), ..begins }).await;
    let end = async |id: &str| {
        let found = fixture.store.secret(&tenant_id("acme"), &source_id("stripe-eu"), &secret_id(id)).await;
        found.expect("read").expect("there").not_after
    };
    assert_eq!(end("active").await, Some(secs(60)), "it began after the new one, and before now");
    assert_eq!((end("planned").await, end("next").await), (None, None));
}

pub async fn a_revocation_is_seen_and_final(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let added = add(&fixture, new_secret("leaked")).await;
    assert_eq!(added.revoked_at, None);
    let before = fixture.store.revision().await.expect("revision");
    let revoked = revoke(&fixture, "leaked", &change_at(5)).await.expect("revoked");
    assert_eq!(revoked, Secret { revoked_at: Some(secs(5)), ..added });
    let after = fixture.store.revision().await.expect("revision");
    assert!(after > before, "every gateway is to see it");
    assert_eq!(
        revoke(&fixture, "leaked", &change_at(9)).await.expect("again"),
        revoked,
        "the first time stays"
    );
    assert_fails(revoke(&fixture, "none", &tester()).await, ErrorKind::NotFound);
    assert_fails(retire(&fixture, "leaked", secs(60), &change_at(6)).await, ErrorKind::FailedPrecondition);
    let page = fixture.store.secrets(&tenant_id("acme"), &source_id("stripe-eu"), None, 9).await;
    assert_eq!(page.expect("a page").items, [revoked]);
    let other = NewSecret { not_before: secs(0), ..new_secret("leaked") };
    assert_fails(fixture.store.add_secret(other, &tester()).await, ErrorKind::AlreadyExists);
}

pub async fn a_revoked_secret_makes_room_for_another(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    for n in 0..portero_types::limits::ACTIVE_SECRETS_MAX {
        add(&fixture, new_secret(&format!("s{n}"))).await;
    }
    let extra = fixture.store.add_secret(new_secret("extra"), &tester()).await;
    assert_fails(extra, ErrorKind::FailedPrecondition);
    revoke(&fixture, "s3", &tester()).await.expect("revoked");
    add(&fixture, new_secret("extra")).await;
}

pub async fn only_a_secret_that_does_not_verify_is_deleted(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    add(&fixture, new_secret("active")).await;
    add(&fixture, NewSecret { not_before: secs(60), ..new_secret("planned") }).await;
    for id in ["revoked", "retired"] {
        add(&fixture, new_secret(id)).await;
    }
    revoke(&fixture, "revoked", &tester()).await.expect("revoked");
    retire(&fixture, "retired", secs(60), &tester()).await.expect("retired");
    let before = fixture.store.revision().await.expect("revision");
    for id in ["active", "retired"] {
        assert_fails(delete(&fixture, id, &change_at(59)).await, ErrorKind::FailedPrecondition);
    }
    assert_eq!(fixture.store.revision().await.expect("revision"), before);
    for (id, now) in [("planned", 59), ("revoked", 0), ("retired", 60)] {
        delete(&fixture, id, &change_at(now)).await.expect("deleted");
        assert_fails(delete(&fixture, id, &change_at(now)).await, ErrorKind::NotFound);
    }
}

pub async fn secrets_are_revoked_by_their_full_name_only(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    add(&fixture, new_secret("one")).await;
    fixture.store.create_source(new_source("acme", "other"), &tester()).await.expect("created");
    for (tenant, source) in [("acme", "other"), ("acme", "none"), ("none", "stripe-eu")] {
        let (tenant, source) = (tenant_id(tenant), source_id(source));
        let (store, one) = (&fixture.store, secret_id("one"));
        assert_fails(store.revoke_secret(&tenant, &source, &one, &tester()).await, ErrorKind::NotFound);
        let retired = store.retire_secret(&tenant, &source, &one, NOW, &tester()).await;
        assert_fails(retired, ErrorKind::NotFound);
    }
    let untouched =
        fixture.store.secret(&tenant_id("acme"), &source_id("stripe-eu"), &secret_id("one")).await;
    let untouched = untouched.expect("read").expect("there");
    assert_eq!((untouched.revoked_at, untouched.not_after), (None, None));
}
