//! Weights, shares and the roll: who should have how many lanes, and who has them.

use std::collections::BTreeSet;
use std::time::Duration;

use portero_types::{Epoch, LaneNo, SessionId, SubscriptionNo};

use super::fixture::{Fixture, new_session, tester};
use super::lanes::flush;
use super::{Database, assert_fails, eventually};
use crate::{ClaimedLane, ErrorKind, Share, Subscription};

/// One subscription and a session.
struct Shared {
    fixture: Fixture,
    subscription: Subscription,
    session: SessionId,
}

impl Shared {
    async fn new(database: &dyn Database) -> Self {
        let fixture = Fixture::new(database).await;
        let subscription = fixture.subscription("billing").await;
        let session = fixture.session("a").await;
        Self { fixture, subscription, session }
    }

    async fn claim(&self, session: SessionId, weight: u32) -> Vec<ClaimedLane> {
        let (no, lanes) = (self.subscription.no, self.subscription.lanes);
        self.fixture.store.claim_lanes(session, no, lanes, weight).await.expect("claimed")
    }

    async fn attend(&self, session: SessionId, weight: u32) {
        self.fixture.store.attend(session, self.subscription.no, weight).await.expect("recorded");
    }

    async fn share(&self, session: SessionId) -> Option<Share> {
        let mut roll = self.fixture.store.roll(session).await.expect("a roll");
        assert!(roll.shares.len() <= 1, "{roll:?}");
        roll.shares.pop()
    }

    /// Lanes owned, free and due.
    async fn counts(&self, session: SessionId) -> (u16, u16, u16) {
        self.share(session).await.map_or((0, 0, 0), |share| (share.owned, share.free, share.target))
    }
}

fn numbers(lanes: &[ClaimedLane]) -> Vec<u8> {
    lanes.iter().map(|claimed| claimed.lane.lane.0).collect()
}

pub async fn a_session_alone_is_due_every_lane(database: &dyn Database) {
    let shared = Shared::new(database).await;
    assert_eq!(shared.share(shared.session).await, None, "nothing is attended yet");
    shared.attend(shared.session, 3).await;
    assert_eq!(shared.counts(shared.session).await, (0, 16, 16));
    assert_eq!(shared.claim(shared.session, 3).await.len(), 16);
    let share = Share {
        subscription: shared.subscription.no,
        owned: 16,
        free: 0,
        target: 16,
        replaced: vec![],
        has_requests: false,
    };
    assert_eq!(shared.share(shared.session).await, Some(share));
}

pub async fn a_weight_of_zero_claims_nothing(database: &dyn Database) {
    let shared = Shared::new(database).await;
    assert_eq!(shared.claim(shared.session, 0).await.len(), 0);
    assert_eq!(shared.share(shared.session).await, None);
    assert_eq!(shared.claim(shared.session, 1).await.len(), 16);
    shared.attend(shared.session, 0).await;
    assert_eq!(shared.counts(shared.session).await, (16, 0, 0), "lanes stay until they are released");
    shared.attend(shared.session, 0).await;
}

pub async fn lanes_are_released_one_by_one(database: &dyn Database) {
    let shared = Shared::new(database).await;
    let (store, no, session) = (&shared.fixture.store, shared.subscription.no, shared.session);
    let claimed = shared.claim(session, 1).await;
    let some = [LaneNo(3), LaneNo(9), LaneNo(200)];
    store.release_lanes(session, no, Some(&some)).await.expect("released");
    store.release_lanes(session, no, Some(&[])).await.expect("nothing to release");
    assert_eq!(shared.counts(session).await, (14, 2, 16));
    let late: Vec<_> =
        [2, 3].map(|lane: usize| flush(&claimed[lane], 1, claimed[lane].state.watermark, &[])).to_vec();
    assert_eq!(store.flush_lanes(session, &late).await.expect("answered"), [claimed[2].lane]);
    let again = shared.claim(session, 1).await;
    assert_eq!(numbers(&again), [3, 9]);
    assert!(again.iter().all(|claimed| claimed.epoch == Epoch(2)));
}

pub async fn releasing_every_lane_gives_the_weight_up(database: &dyn Database) {
    let shared = Shared::new(database).await;
    shared.claim(shared.session, 1).await;
    shared.fixture.store.release_lanes(shared.session, shared.subscription.no, None).await.expect("released");
    assert_eq!(shared.share(shared.session).await, None);
}

pub async fn sessions_divide_lanes_by_their_weights(database: &dyn Database) {
    let shared = Shared::new(database).await;
    let (store, no, first) = (&shared.fixture.store, shared.subscription.no, shared.session);
    shared.claim(first, 3).await;
    if database.is_exclusive() {
        return; // A second session would end the first.
    }
    let second = shared.fixture.session("b").await;
    shared.attend(second, 1).await;
    assert_eq!(shared.counts(first).await, (16, 0, 12));
    assert_eq!(shared.counts(second).await, (0, 0, 4));
    assert_eq!(shared.claim(second, 1).await.len(), 0, "nothing is free yet");
    let given: Vec<LaneNo> = (0..6).map(LaneNo).collect();
    store.release_lanes(first, no, Some(&given)).await.expect("released");
    assert_eq!(shared.counts(second).await, (0, 6, 4));
    assert_eq!(numbers(&shared.claim(second, 1).await), [0, 1, 2, 3], "its share and no more");
    assert_eq!(numbers(&shared.claim(first, 3).await), [4, 5]);
    shared.attend(second, 3).await;
    assert_eq!((shared.counts(first).await, shared.counts(second).await), ((12, 0, 8), (4, 0, 8)));
    assert_eq!(shared.claim(first, 3).await.len(), 0, "who has too many takes none");
}

pub async fn sessions_that_are_gone_count_for_nothing(database: &dyn Database) {
    let shared = Shared::new(database).await;
    shared.attend(shared.session, 1).await;
    if database.is_exclusive() {
        return;
    }
    let (closed, expiring) = (shared.fixture.session("b").await, new_session("c", 60_000));
    let store = &shared.fixture.store;
    store.open_session(&expiring).await.expect("a session");
    shared.attend(closed, 1).await;
    assert_eq!(shared.claim(expiring.id, 2).await.len(), 8);
    assert_eq!(shared.counts(shared.session).await, (0, 8, 4));
    store.close_session(closed).await.expect("closed");
    assert_eq!(shared.counts(shared.session).await, (0, 8, 5));
    store.renew_session(expiring.id, Duration::from_millis(1)).await.expect("renewed, for a moment");
    eventually("the lanes of an expired session are free before anybody fences it", async || {
        (shared.counts(shared.session).await == (0, 16, 16)).then_some(())
    })
    .await;
    assert_eq!(shared.claim(shared.session, 1).await.len(), 16);
    assert_fails(store.roll(expiring.id).await, ErrorKind::Fenced);
}

pub async fn many_sessions_come_to_one_division(database: &dyn Database) {
    let shared = Shared::new(database).await;
    if database.is_exclusive() {
        return;
    }
    let mut sessions = vec![shared.session];
    for n in 0..4 {
        sessions.push(shared.fixture.session(&format!("pod-{n}")).await);
    }
    for session in &sessions {
        shared.attend(*session, 10).await;
    }
    let mut lanes = BTreeSet::new();
    for session in &sessions {
        let claimed = shared.claim(*session, 10).await;
        let (owned, _, target) = shared.counts(*session).await;
        assert_eq!((claimed.len(), owned), (usize::from(target), target));
        lanes.extend(numbers(&claimed));
    }
    assert_eq!(lanes.len(), 16);
}

pub async fn a_roll_shows_each_subscription_of_a_session(database: &dyn Database) {
    let shared = Shared::new(database).await;
    let (store, session) = (&shared.fixture.store, shared.session);
    let owned = shared.fixture.subscription("owned").await;
    shared.fixture.subscription("not-attended").await;
    shared.attend(session, 1).await;
    store.claim_lanes(session, owned.no, owned.lanes, 1).await.expect("claimed");
    store.attend(session, owned.no, 0).await.expect("recorded");
    let roll = store.roll(session).await.expect("a roll");
    assert_eq!(roll.generation, store.generation().await.expect("a generation"));
    let shares: Vec<_> =
        roll.shares.iter().map(|share| (share.subscription, share.owned, share.target)).collect();
    assert_eq!(shares, [(shared.subscription.no, 0, 16), (owned.no, 16, 0)]);
    store.delete_subscription(&owned.id, &tester()).await.expect("deleted");
    assert_eq!(store.roll(session).await.expect("a roll").shares.len(), 1);
}

pub async fn only_the_living_attend_what_is_there(database: &dyn Database) {
    let shared = Shared::new(database).await;
    let (store, no) = (&shared.fixture.store, shared.subscription.no);
    let unknown = new_session("x", 1_000).id;
    store.close_session(shared.session).await.expect("closed");
    for session in [unknown, shared.session] {
        assert_fails(store.attend(session, no, 1).await, ErrorKind::Fenced);
        assert_fails(store.join(session, no, "i", "b").await, ErrorKind::Fenced);
        assert_fails(store.roll(session).await, ErrorKind::Fenced);
        store.release_lanes(session, no, None).await.expect("nothing to release");
        store.leave(session, no, "i", "b").await.expect("nobody to leave");
    }
    let session = shared.fixture.session("b").await;
    let nowhere = SubscriptionNo(no.0 + 1_000);
    assert_fails(store.attend(session, nowhere, 1).await, ErrorKind::NotFound);
    assert_fails(store.join(session, nowhere, "i", "b").await, ErrorKind::NotFound);
}

/// F32.
pub async fn the_newest_stream_of_an_instance_replaces_the_others(database: &dyn Database) {
    let shared = Shared::new(database).await;
    let (store, no, first) = (&shared.fixture.store, shared.subscription.no, shared.session);
    shared.attend(first, 1).await;
    let replaced = async |session| shared.share(session).await.expect("attended").replaced;
    store.join(first, no, "worker-1", "boot-1").await.expect("joined");
    store.join(first, no, "worker-2", "boot-1").await.expect("joined");
    store.join(first, no, "worker-1", "boot-2").await.expect("joined again");
    assert_eq!(replaced(first).await, [""; 0], "streams of one session are its own affair");
    if database.is_exclusive() {
        return;
    }
    let second = shared.fixture.session("b").await;
    shared.attend(second, 1).await;
    store.leave(first, no, "worker-1", "boot-1").await.expect("it was replaced by then");
    store.join(second, no, "worker-2", "boot-2").await.expect("joined");
    store.join(second, no, "worker-1", "boot-3").await.expect("joined");
    assert_eq!(replaced(first).await, ["worker-1", "worker-2"]);
    assert_eq!(replaced(second).await, [""; 0]);
    store.leave(second, no, "worker-1", "boot-3").await.expect("left");
    assert_eq!(replaced(first).await, ["worker-1", "worker-2"], "what was replaced stays replaced");
    store.leave(first, no, "worker-1", "boot-2").await.expect("left");
    assert_eq!(replaced(first).await, ["worker-2"]);
    store.join(first, no, "worker-2", "boot-3").await.expect("back again");
    assert_eq!((replaced(first).await, replaced(second).await), (vec![], vec!["worker-2".to_owned()]));
    store.close_session(first).await.expect("closed");
    store.join(second, no, "worker-2", "boot-4").await.expect("joined");
    assert_eq!(replaced(second).await, [""; 0]);
}
