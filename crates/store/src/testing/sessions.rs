//! Who owns which lane: claims, fences, expiry, takeover.

use std::collections::BTreeSet;
use std::time::Duration;

use portero_types::{Epoch, LaneNo, Shard};
use tokio::task::JoinSet;

use super::fixture::{Fixture, new_session};
use super::lanes::flush;
use super::{Database, assert_fails, eventually};
use crate::{ClaimedLane, ErrorKind, LaneKey, Subscription};

const HOUR: Duration = Duration::from_secs(3_600);

async fn claim(
    fixture: &Fixture,
    session: portero_types::SessionId,
    subscription: &Subscription,
) -> Vec<ClaimedLane> {
    fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed")
}

pub async fn a_claim_takes_every_free_lane_once(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (one, two) = (fixture.subscription("one").await, fixture.subscription("two").await);
    let session = fixture.session("a").await;
    let claimed = claim(&fixture, session, &one).await;
    let lanes: BTreeSet<_> = claimed.iter().map(|claimed| claimed.lane).collect();
    let expected = one.lanes.lanes().map(|lane| LaneKey { subscription: one.no, lane }).collect();
    assert_eq!(lanes, expected);
    assert!(claimed.iter().all(|claimed| claimed.epoch == Epoch(1)));
    assert_eq!(claim(&fixture, session, &one).await.len(), 0, "lanes of its own are not in the answer");
    assert_eq!(claim(&fixture, session, &two).await.len(), 16);
}

pub async fn lanes_of_a_live_session_are_not_claimable(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let first = fixture.session("a").await;
    assert_eq!(claim(&fixture, first, &subscription).await.len(), 16);
    if database.is_exclusive() {
        return; // A second session would end the first.
    }
    let second = fixture.session("b").await;
    assert_eq!(claim(&fixture, second, &subscription).await.len(), 0);
    fixture.store.renew_session(first, HOUR).await.expect("still alive");
    assert_eq!(claim(&fixture, second, &subscription).await.len(), 0);
}

pub async fn closing_a_session_frees_its_lanes(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let first = fixture.session("a").await;
    claim(&fixture, first, &subscription).await;
    fixture.store.close_session(first).await.expect("closed");
    fixture.store.close_session(first).await.expect("closing twice is closing once");
    let second = fixture.session("b").await;
    let claimed = claim(&fixture, second, &subscription).await;
    assert_eq!(claimed.len(), 16);
    assert!(claimed.iter().all(|claimed| claimed.epoch == Epoch(2)));
    assert_fails(fixture.store.renew_session(first, HOUR).await, ErrorKind::Fenced);
}

pub async fn releasing_lanes_frees_those_of_one_subscription(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let (one, two) = (fixture.subscription("one").await, fixture.subscription("two").await);
    let session = fixture.session("a").await;
    let before = claim(&fixture, session, &one).await;
    claim(&fixture, session, &two).await;
    fixture.store.release_lanes(session, one.no, None).await.expect("released");
    let late = flush(&before[0], 1, before[0].state.watermark, &[]);
    assert_eq!(fixture.store.flush_lanes(session, &[late]).await.expect("answered"), []);
    let after = claim(&fixture, session, &one).await;
    assert_eq!(after.len(), 16);
    assert!(after.iter().all(|claimed| claimed.epoch == Epoch(2)));
    assert_eq!(claim(&fixture, session, &two).await.len(), 0);
    fixture.store.release_lanes(session, two.no, None).await.expect("released");
    fixture.store.release_lanes(session, two.no, None).await.expect("releasing nothing is nothing");
}

pub async fn a_new_session_of_an_instance_fences_the_older(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let older = fixture.session("pod-1").await;
    claim(&fixture, older, &subscription).await;
    let newer = fixture.session("pod-1").await;
    assert_fails(fixture.store.renew_session(older, HOUR).await, ErrorKind::Fenced);
    let claimed = claim(&fixture, newer, &subscription).await;
    assert_eq!(claimed.len(), 16);
    assert!(claimed.iter().all(|claimed| claimed.epoch == Epoch(2)));
    fixture.store.renew_session(newer, HOUR).await.expect("alive");
}

pub async fn an_exclusive_store_fences_every_older_session(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let first = fixture.session("a").await;
    let second = fixture.session("b").await;
    let outcome = fixture.store.renew_session(first, HOUR).await;
    if database.is_exclusive() {
        assert_fails(outcome, ErrorKind::Fenced);
    } else {
        outcome.expect("another instance does not end it");
    }
    fixture.store.renew_session(second, HOUR).await.expect("alive");
}

pub async fn an_expired_session_loses_its_lanes_to_the_next(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let first = new_session("a", 60_000);
    fixture.store.open_session(&first).await.expect("a session");
    claim(&fixture, first.id, &subscription).await;
    fixture.store.renew_session(first.id, Duration::from_millis(1)).await.expect("renewed, for a moment");
    let second = fixture.session("b").await;
    let claimed = eventually("the lanes of an expired session are claimed", async || {
        let claimed = claim(&fixture, second, &subscription).await;
        (!claimed.is_empty()).then_some(claimed)
    })
    .await;
    assert_eq!(claimed.len(), 16);
    assert_fails(fixture.store.renew_session(first.id, HOUR).await, ErrorKind::Fenced);
    let outcome = fixture.store.claim_lanes(first.id, subscription.no, subscription.lanes, 1).await;
    assert_fails(outcome, ErrorKind::Fenced);
}

pub async fn an_expired_session_that_lost_nothing_may_be_renewed(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let session = new_session("a", 60_000);
    fixture.store.open_session(&session).await.expect("a session");
    let lane = claim(&fixture, session.id, &subscription).await.remove(0);
    fixture.store.renew_session(session.id, Duration::from_millis(1)).await.expect("renewed, for a moment");
    let late = flush(&lane, 1, lane.state.watermark, &[]);
    eventually("an expired session writes nothing", async || {
        let outcome = fixture.store.flush_lanes(session.id, std::slice::from_ref(&late)).await;
        outcome.is_err_and(|error| error.kind() == ErrorKind::Fenced).then_some(())
    })
    .await;
    fixture.store.renew_session(session.id, HOUR).await.expect("nobody took its lanes");
    assert_eq!(fixture.store.flush_lanes(session.id, &[late]).await.expect("written"), [lane.lane]);
}

pub async fn a_fenced_session_writes_nothing(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let head = fixture.fill(Shard(0), 10).await;
    let older = fixture.session("a").await;
    let lost = claim(&fixture, older, &subscription).await.remove(0);
    let newer = fixture.session("a").await;
    let outcome = fixture.store.flush_lanes(older, &[flush(&lost, 1, head, &[])]).await;
    assert_fails(outcome, ErrorKind::Fenced);
    let claimed = claim(&fixture, newer, &subscription).await;
    let same = claimed.iter().find(|claimed| claimed.lane == lost.lane).expect("claimed");
    assert_eq!(same.state, lost.state);
}

pub async fn an_unknown_session_is_fenced(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let unknown = new_session("a", 1_000).id;
    assert_fails(fixture.store.renew_session(unknown, HOUR).await, ErrorKind::Fenced);
    assert_fails(
        fixture.store.claim_lanes(unknown, subscription.no, subscription.lanes, 1).await,
        ErrorKind::Fenced,
    );
    assert_fails(fixture.store.flush_lanes(unknown, &[]).await, ErrorKind::Fenced);
    fixture.store.close_session(unknown).await.expect("nothing to close");
}

pub async fn a_takeover_finds_the_last_progress_under_a_higher_epoch(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let head = fixture.fill(Shard(0), 9).await;
    let first = fixture.session("a").await;
    let claimed = claim(&fixture, first, &subscription).await;
    let lane = claimed.iter().find(|claimed| claimed.lane.lane == LaneNo(0)).expect("lane 0");
    let written = flush(lane, 1, head - 5, &[head - 3, head]);
    fixture.store.flush_lanes(first, std::slice::from_ref(&written)).await.expect("written");
    for epoch in 2..5 {
        let session = fixture.session("a").await;
        let claimed = claim(&fixture, session, &subscription).await;
        assert!(claimed.iter().all(|claimed| claimed.epoch == Epoch(epoch)));
        let lane = claimed.iter().find(|claimed| claimed.lane.lane == LaneNo(0)).expect("lane 0");
        assert_eq!((lane.state.watermark, &lane.state.acked), (head - 5, &written.state.acked));
        assert_eq!(lane.state.seq, 0);
    }
}

pub async fn claims_at_once_never_share_a_lane(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let subscription = fixture.subscription("billing").await;
    let mut tasks = JoinSet::new();
    let sessions = if database.is_exclusive() { 1 } else { 6 };
    for n in 0..sessions {
        let session = fixture.session(&format!("pod-{n}")).await;
        for _ in 0..3 {
            let (store, lanes, no) = (database.open().await, subscription.lanes, subscription.no);
            tasks.spawn(async move { store.claim_lanes(session, no, lanes, 1).await.expect("claimed") });
        }
    }
    let claimed: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let lanes: BTreeSet<_> = claimed.iter().map(|claimed| claimed.lane).collect();
    assert_eq!((claimed.len(), lanes.len()), (16, 16));
}
