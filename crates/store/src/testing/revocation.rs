//! What a gateway that has not heard of a revocation tries to have accepted.

use std::time::Duration;

use portero_types::{NewEvent, SecretNo};
use tokio::task::JoinSet;

use super::Database;
use super::fixture::{
    Fixture, again, fresh, new_secret, new_source, position, secret_id, source_id, tenant_id, tester,
};
use crate::{Change, Day, NewSecret, Verdict};

async fn secret(fixture: &Fixture, id: &str) -> SecretNo {
    fixture.store.add_secret(new_secret(id), &tester()).await.expect("added").no
}

async fn revoke(fixture: &Fixture, id: &str) {
    let (acme, stripe, id) = (tenant_id("acme"), source_id("stripe-eu"), secret_id(id));
    fixture.store.revoke_secret(&acme, &stripe, &id, &tester()).await.expect("revoked");
}

fn signed(event: &NewEvent, secret: SecretNo) -> NewEvent {
    NewEvent { secret_no: Some(secret), ..again(event) }
}

async fn is_stored(fixture: &Fixture, event: &NewEvent) -> bool {
    let found = fixture.store.receipt_by_event_id(event.tenant_no, &event.provider, &event.event_id).await;
    found.expect("read").is_some()
}

pub async fn what_a_revoked_secret_verified_is_refused_and_its_neighbours_are_not(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (good, leaked) = (secret(&fixture, "good").await, secret(&fixture, "leaked").await);
    revoke(&fixture, "leaked").await;
    let batch = [
        signed(&fixture.event("evt_1"), leaked),
        signed(&fixture.event("evt_2"), good),
        fixture.event("evt_3"),
        signed(&fixture.event("evt_4"), leaked),
    ];
    let verdicts = fixture.store.accept(&batch).await.expect("accepted");
    assert_eq!((verdicts[0], verdicts[3]), (Verdict::Revoked, Verdict::Revoked));
    position(verdicts[1]);
    position(verdicts[2]);
    let stored = [is_stored(&fixture, &batch[0]).await, is_stored(&fixture, &batch[1]).await];
    assert_eq!(stored, [false, true], "nothing of a refused event is written");
    let alone = fixture.store.accept(&batch[3..]).await.expect("answered");
    assert_eq!(alone, [Verdict::Revoked]);
}

pub async fn an_accepted_event_that_comes_again_under_a_revoked_secret_is_refused(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (good, leaked) = (secret(&fixture, "good").await, secret(&fixture, "leaked").await);
    let first = signed(&fixture.event("evt_1"), leaked);
    fixture.accepted(&first).await;
    revoke(&fixture, "leaked").await;
    let verdicts =
        fixture.store.accept(&[signed(&first, leaked), signed(&first, good)]).await.expect("answered");
    assert_eq!(verdicts, [Verdict::Revoked, Verdict::Duplicate { first: first.receipt_id }]);
    assert!(is_stored(&fixture, &first).await, "what was accepted before stays");
}

pub async fn a_key_of_one_batch_is_accepted_under_the_secret_that_is_good(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (good, leaked) = (secret(&fixture, "good").await, secret(&fixture, "leaked").await);
    revoke(&fixture, "leaked").await;
    for order in [[leaked, good, leaked, good], [good, leaked, good, leaked]] {
        let event = fixture.event(&format!("evt_{}", fresh()));
        let batch = order.map(|no| signed(&event, no));
        let verdicts = fixture.store.accept(&batch).await.expect("answered");
        let of = |wanted: SecretNo| {
            let pairs = order.iter().zip(&verdicts);
            pairs.filter(move |(no, _)| **no == wanted).map(|(_, verdict)| *verdict).collect::<Vec<_>>()
        };
        assert_eq!(of(leaked), [Verdict::Revoked; 2], "{verdicts:?}");
        position(of(good)[0]);
        assert!(matches!(of(good)[1], Verdict::Duplicate { .. }), "{verdicts:?}");
    }
}

pub async fn a_deleted_secret_accepts_no_more_than_a_revoked_one(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let planned = NewSecret {
        not_before: portero_types::Timestamp::from_secs(super::fixture::NOW.as_secs() + 60),
        ..new_secret("planned")
    };
    let planned = fixture.store.add_secret(planned, &tester()).await.expect("added").no;
    let change: Change = tester();
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    fixture.store.delete_secret(&acme, &stripe, &secret_id("planned"), &change).await.expect("deleted");
    let verdicts = fixture.store.accept(&[signed(&fixture.event("evt_1"), planned)]).await.expect("answered");
    assert_eq!(verdicts, [Verdict::Revoked]);
}

/// Also where no secret is part of it, as with providers that sign with keys of their own.
pub async fn a_deleted_source_accepts_nothing_and_its_neighbours_go_on(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    let secret = secret(&fixture, "good").await;
    let known = fixture.event("evt_known");
    fixture.accepted(&known).await;
    let other = store.create_source(new_source("acme", "stripe-us"), &tester()).await.expect("created");
    let to_other = |event: &NewEvent| NewEvent { source_no: other.no, ..again(event) };
    store.delete_source(&acme, &stripe, &tester()).await.expect("deleted");
    let (plain, shared) = (fixture.event("evt_1"), fixture.event("evt_shared"));
    let batch = [
        plain.clone(),
        signed(&fixture.event("evt_2"), secret),
        again(&known),
        to_other(&known),
        shared.clone(),
        to_other(&shared),
        to_other(&fixture.event("evt_3")),
    ];
    let verdicts = store.accept(&batch).await.expect("answered");
    let gone = Verdict::SourceDeleted;
    assert_eq!([verdicts[0], verdicts[1], verdicts[2], verdicts[4]], [gone; 4], "{verdicts:?}");
    assert_eq!(verdicts[3], Verdict::Duplicate { first: known.receipt_id }, "what was accepted stays");
    position(verdicts[5]);
    position(verdicts[6]);
    assert!(!is_stored(&fixture, &plain).await, "nothing of a refused event is written");
    let again = store.create_source(new_source("acme", "stripe-eu"), &tester()).await.expect("created again");
    fixture.accepted(&NewEvent { source_no: again.no, ..plain.clone() }).await;
    assert_eq!(store.accept(&[signed(&plain, secret)]).await.expect("answered"), [gone]);
}

pub async fn an_erased_tenants_sources_accept_nothing(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    fixture.store.erase_tenant(&tenant_id("acme"), &tester()).await.expect("erased");
    let verdicts = fixture.store.accept(&[fixture.event("evt_1")]).await.expect("answered");
    assert_eq!(verdicts, [Verdict::SourceDeleted]);
}

/// What would grow for ever is forgotten, but nothing that could still count.
pub async fn that_a_secret_was_revoked_is_remembered_longer_than_anything_can_be_under_way(
    database: &dyn Database,
) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    let (kept, gone) = (secret(&fixture, "kept").await, secret(&fixture, "gone").await);
    revoke(&fixture, "kept").await;
    revoke(&fixture, "gone").await;
    store.delete_secret(&acme, &stripe, &secret_id("gone"), &tester()).await.expect("deleted");
    let verdict_of = async |no: SecretNo| {
        let event = signed(&fixture.event(&format!("evt_{}", fresh())), no);
        store.accept(&[event]).await.expect("answered")[0]
    };
    let today = Day::of(super::fixture::NOW);
    store.sweep_secret_uses(today).await.expect("swept");
    assert_eq!((verdict_of(kept).await, verdict_of(gone).await), (Verdict::Revoked, Verdict::Revoked));
    store.sweep_secret_uses(Day(today.0 + 1)).await.expect("swept");
    assert_eq!(verdict_of(kept).await, Verdict::Revoked, "it is still there to be seen");
    position(verdict_of(gone).await);
}

/// Sixteen at once on two handles: once the revocation has returned and older accepts have settled, none gets through.
pub async fn nothing_is_accepted_after_a_revocation_has_settled(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let leaked = secret(&fixture, "leaked").await;
    let handles = [database.open().await, database.open().await];
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut senders = JoinSet::new();
    for n in 0..16 {
        let (store, stopped) = (handles[n % 2].clone(), stopped.clone());
        let event = signed(&fixture.event("evt"), leaked);
        senders.spawn(async move {
            let mut accepted = Vec::new();
            while !*stopped.borrow() {
                let event = NewEvent { event_id: format!("evt_{}", fresh()), ..again(&event) };
                match store.accept(std::slice::from_ref(&event)).await.as_deref() {
                    Ok([Verdict::Accepted { .. }]) => accepted.push(event),
                    Ok([Verdict::Revoked]) => {}
                    other => panic!("{other:?}"),
                }
            }
            accepted
        });
    }
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    revoke(&fixture, "leaked").await;
    fixture.store.settle_accepts(Duration::from_secs(5)).await.expect("settled");
    let at_once = fixture.store.heads().await.expect("heads");
    for _ in 0..20 {
        fixture.store.secrets(&acme, &stripe, None, 9).await.expect("time passes");
    }
    stop.send(true).expect("senders listen");
    let accepted = senders.join_all().await.into_iter().flatten().count();
    assert_eq!(fixture.store.heads().await.expect("heads"), at_once, "after {accepted} accepted before it");
    let last = fixture.store.accept(&[signed(&fixture.event("evt_last"), leaked)]).await;
    assert_eq!(last.expect("answered"), [Verdict::Revoked]);
}
