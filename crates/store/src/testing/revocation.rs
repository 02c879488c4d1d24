//! What a gateway that has not heard of a revocation tries to have accepted.

use std::time::Duration;

use portero_types::{NewEvent, SecretNo};
use tokio::task::JoinSet;

use super::Database;
use super::fixture::{Fixture, again, fresh, new_secret, position, secret_id, source_id, tenant_id, tester};
use crate::{Change, NewSecret, Verdict};

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
