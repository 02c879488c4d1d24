//! Secrets: overlap, rotation, and how many may verify at one moment.

use portero_types::Timestamp;
use portero_types::limits::{ACTIVE_SECRETS_MAX, SECRETS_PER_SOURCE_MAX};
use tokio::task::JoinSet;

use super::fixture::{DAY_SECS, Fixture, NOW, new_secret, secret_id, source_id, tenant_id, tester};
use super::{Database, assert_fails};
use crate::{ErrorKind, NewSecret, Page, Secret};

fn at(days: i64) -> Timestamp {
    Timestamp::from_secs(NOW.as_secs() + days * DAY_SECS)
}

async fn all(fixture: &Fixture) -> Vec<Secret> {
    let page = fixture.store.secrets(&tenant_id("acme"), &source_id("stripe-eu"), None, 100).await;
    page.expect("a page").items
}

pub async fn secrets_are_added_read_and_deleted(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    let new = new_secret("b");
    let secret = store.add_secret(new.clone(), &tester()).await.expect("added");
    assert_eq!(secret.source_no, fixture.source.no);
    assert_eq!((&secret.sealed, secret.not_before, secret.not_after), (&new.sealed, new.not_before, None));
    assert_eq!(store.secret(&acme, &stripe, &new.id).await.expect("read"), Some(secret.clone()));
    assert_fails(store.add_secret(new.clone(), &tester()).await, ErrorKind::AlreadyExists);
    assert_fails(
        store.add_secret(NewSecret { source: source_id("none"), ..new.clone() }, &tester()).await,
        ErrorKind::NotFound,
    );
    store.add_secret(new_secret("a"), &tester()).await.expect("added");
    let page = store.secrets(&acme, &stripe, Some(&secret_id("a")), 1).await.expect("a page");
    assert_eq!(page, Page { items: vec![secret.clone()], more: false });
    store.revoke_secret(&acme, &stripe, &new.id, &tester()).await.expect("revoked");
    store.delete_secret(&acme, &stripe, &new.id, &tester()).await.expect("deleted");
    assert_eq!(store.secret(&acme, &stripe, &new.id).await.expect("read"), None);
    assert_fails(store.delete_secret(&acme, &stripe, &new.id, &tester()).await, ErrorKind::NotFound);
    let again = store.add_secret(new, &tester()).await.expect("added");
    assert_ne!(again.no, secret.no, "receipts name secrets by number, so numbers are not used again");
}

pub async fn rotation_ends_the_others_that_have_no_end_yet(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let rotate = async |id: &str, retire_others_at| {
        let new = NewSecret { retire_others_at, ..new_secret(id) };
        fixture.store.add_secret(new, &tester()).await.expect("added");
    };
    rotate("s1", None).await;
    rotate("s2", Some(at(1))).await;
    rotate("s3", Some(at(2))).await;
    rotate("s4", None).await;
    let ends: Vec<_> = all(&fixture).await.into_iter().map(|secret| secret.not_after).collect();
    assert_eq!(ends, [Some(at(1)), Some(at(2)), None, None]);
}

pub async fn too_many_secrets_active_at_one_moment_are_refused(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    for n in 0..ACTIVE_SECRETS_MAX {
        fixture.store.add_secret(new_secret(&format!("s{n}")), &tester()).await.expect("added");
    }
    assert_fails(
        fixture.store.add_secret(new_secret("extra"), &tester()).await,
        ErrorKind::FailedPrecondition,
    );
    let rotation = NewSecret { retire_others_at: Some(at(1)), ..new_secret("extra") };
    assert_fails(fixture.store.add_secret(rotation, &tester()).await, ErrorKind::FailedPrecondition);
    let untouched = all(&fixture).await;
    assert_eq!(untouched.len(), ACTIVE_SECRETS_MAX);
    assert!(untouched.iter().all(|secret| secret.not_after.is_none()), "a refused rotation retires nothing");
    let at_once = NewSecret { retire_others_at: Some(NOW), ..new_secret("extra") };
    fixture.store.add_secret(at_once, &tester()).await.expect("added: the others end as it begins");
}

pub async fn secrets_that_never_overlap_are_not_counted_together(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    for n in 0..3 * i64::try_from(ACTIVE_SECRETS_MAX).expect("small") {
        let new = NewSecret {
            not_before: at(n),
            retire_others_at: Some(at(n + 1)),
            ..new_secret(&format!("s{n}"))
        };
        fixture.store.add_secret(new, &tester()).await.expect("at most two verify at one moment");
    }
}

pub async fn a_source_keeps_so_many_secrets_and_no_more(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let most = i64::try_from(SECRETS_PER_SOURCE_MAX).expect("small");
    let new = |n: i64| NewSecret {
        not_before: at(n - most),
        retire_others_at: Some(at(n - most + 1)),
        ..new_secret(&format!("s{n}"))
    };
    for n in 0..most {
        fixture.store.add_secret(new(n), &tester()).await.expect("one at a time, and none now");
    }
    assert_fails(fixture.store.add_secret(new(most), &tester()).await, ErrorKind::FailedPrecondition);
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    let ended = secret_id("s0");
    fixture.store.delete_secret(&acme, &stripe, &ended, &tester()).await.expect("it ended long ago");
    fixture.store.add_secret(new(most), &tester()).await.expect("there is room again");
}

pub async fn sixteen_secrets_added_at_once_stay_within_the_limit(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let handles = [database.open().await, database.open().await];
    let mut tasks = JoinSet::new();
    for n in 0..2 * ACTIVE_SECRETS_MAX {
        let store = handles[n % 2].clone();
        tasks.spawn(async move { store.add_secret(new_secret(&format!("s{n}")), &tester()).await });
    }
    let outcomes = tasks.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), ACTIVE_SECRETS_MAX);
    for outcome in outcomes.into_iter().filter(Result::is_err) {
        assert_fails(outcome, ErrorKind::FailedPrecondition);
    }
    assert_eq!(all(&fixture).await.len(), ACTIVE_SECRETS_MAX);
}

pub async fn the_snapshot_forgets_secrets_a_day_after_their_end(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    // NOW lies far in the past of the database's clock, by which the snapshot judges.
    fixture.store.add_secret(new_secret("ended"), &tester()).await.expect("added");
    let live = NewSecret { retire_others_at: Some(at(1)), ..new_secret("live") };
    let live = fixture.store.add_secret(live, &tester()).await.expect("added");
    assert_eq!(fixture.store.snapshot().await.expect("snapshot").secrets, [live]);
    assert_eq!(all(&fixture).await.len(), 2, "lists still show it");
}
