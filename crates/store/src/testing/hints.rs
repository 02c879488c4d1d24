//! Hints: whoever listens is told, and may be told once for many.

use std::time::Duration;

use portero_types::LaneNo;

use super::fixture::{Fixture, new_tenant, tenant_id, tester};
use super::{Database, PATIENCE};
use crate::{DynStore, Hint, Hints, LaneAction, LaneRequest};

async fn next(hints: &mut Box<dyn Hints>) -> Hint {
    let hint = tokio::time::timeout(PATIENCE, hints.next()).await;
    hint.expect("a hint in time").expect("the connection holds")
}

/// Everything up to a mark that this sends itself.
async fn until_log(store: &DynStore, hints: &mut Box<dyn Hints>) -> Vec<Hint> {
    store.hint(Hint::Log).await.expect("told");
    let mut seen = Vec::new();
    loop {
        match next(hints).await {
            Hint::Log => return seen,
            other @ (Hint::Lanes | Hint::Config) => seen.push(other),
        }
    }
}

pub async fn everybody_who_listens_is_told(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (here, elsewhere) = (&fixture.store, database.open().await);
    here.hint(Hint::Lanes).await.expect("nobody listens yet");
    let (mut one, mut two) =
        (here.listen().await.expect("listening"), elsewhere.listen().await.expect("listening"));
    for hint in [Hint::Log, Hint::Config, Hint::Lanes, Hint::Log] {
        elsewhere.hint(hint).await.expect("told");
        assert_eq!((next(&mut one).await, next(&mut two).await), (hint, hint));
    }
    drop(one);
    here.hint(Hint::Lanes).await.expect("told");
    assert_eq!(next(&mut two).await, Hint::Lanes);
}

pub async fn a_thousand_hints_nobody_takes_lose_neither_kind(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut hints = fixture.store.listen().await.expect("listening");
    fixture.store.hint(Hint::Lanes).await.expect("told");
    for _ in 0..1_000 {
        fixture.store.hint(Hint::Log).await.expect("told");
    }
    let mut seen = Vec::new();
    while !(seen.contains(&Hint::Log) && seen.contains(&Hint::Lanes)) {
        seen.push(next(&mut hints).await);
    }
}

pub async fn a_wait_that_is_given_up_loses_no_hint(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let mut hints = fixture.store.listen().await.expect("listening");
    for _ in 0..20 {
        // Given up at its first await, and while the hint is under way.
        assert!(tokio::time::timeout(Duration::ZERO, hints.next()).await.is_err());
        let (told, seen) = tokio::join!(fixture.store.hint(Hint::Lanes), async {
            tokio::time::timeout(Duration::ZERO, hints.next()).await
        });
        told.expect("told");
        let seen = match seen {
            Ok(seen) => seen.expect("the connection holds"),
            Err(_) => next(&mut hints).await,
        };
        assert_eq!(seen, Hint::Lanes);
    }
}

pub async fn a_change_of_configuration_is_told(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let mut hints = store.listen().await.expect("listening");
    store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    assert_eq!(until_log(store, &mut hints).await, [Hint::Config]);
    store.create_tenant(new_tenant("globex"), &tester()).await.expect_err("it exists");
    assert_eq!(until_log(store, &mut hints).await, [], "a refused change is none");
    store.delete_tenant(&tenant_id("globex"), &tester()).await.expect("deleted");
    assert_eq!(until_log(store, &mut hints).await, [Hint::Config]);
}

pub async fn changes_of_lanes_are_told(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let session = fixture.session("a").await;
    let (store, no) = (&fixture.store, subscription.no);
    let mut hints = store.listen().await.expect("listening");
    store.attend(session, no, 2).await.expect("recorded");
    assert!(!until_log(store, &mut hints).await.is_empty(), "a new weight");
    store.attend(session, no, 2).await.expect("recorded");
    assert_eq!(until_log(store, &mut hints).await, [], "the same weight again is no news");
    store.join(session, no, "worker", "boot").await.expect("joined");
    assert!(!until_log(store, &mut hints).await.is_empty(), "a stream");
    store.claim_lanes(session, no, subscription.lanes, 2).await.expect("claimed");
    until_log(store, &mut hints).await;
    store.release_lanes(session, no, Some(&[LaneNo(1)])).await.expect("released");
    assert!(!until_log(store, &mut hints).await.is_empty(), "a lane is free");
    let request = LaneRequest {
        entity: portero_types::EntityHash(1),
        lane: LaneNo(0),
        position: None,
        action: LaneAction::Retry,
        by: "ops".to_owned(),
        at: super::fixture::NOW,
    };
    store.request(no, request).await.expect("asked");
    assert!(!until_log(store, &mut hints).await.is_empty(), "a request");
}
