//! A new owner goes on from what was written.

use portero_engine::{
    Deferred, Error, ErrorKind, FlushResult, Lane, Outcome, ParkedEntity, ParkedState, Restored, Room, Status,
};
use portero_types::{Epoch, Timestamp};

use crate::support::{A, B, Bench, STREAM, entry, secs, small};

fn row(positions: &[u64]) -> ParkedEntity {
    ParkedEntity {
        entity: A,
        state: ParkedState::Retry,
        positions: positions.to_vec(),
        overflow: None,
        attempts: 2,
        interruptions: 1,
        due_at: Timestamp::from_secs(50),
        first_failed_at: Timestamp::from_secs(40),
        reason_code: "BUSY".to_owned(),
        reason_text: "later".to_owned(),
    }
}

#[test]
fn only_what_was_not_durably_acked_comes_again() {
    let mut bench = Bench::new(small(), &[A, B, A, B]);
    let first = bench.deliveries();
    assert_eq!(bench.settle(first[1].token, Outcome::Ack), Status::Durable);
    bench.say(first[0].token, Outcome::Ack);
    bench.restart(small());
    let again = bench.deliveries();
    assert_eq!(again.iter().map(|d| d.token.position).collect::<Vec<_>>(), [1, 4]);
    assert!(again.iter().all(|d| d.token.epoch == Epoch(2) && d.token.delivery == 1));
}

#[test]
fn a_blocked_entity_is_still_blocked_for_the_next_owner() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Retry { delay: Some(secs(60)) });
    bench.restart(small());
    bench.append(&[A, B]);
    assert_eq!(bench.positions(), [4]);
    bench.pass(secs(60));
    let again = bench.delivery();
    assert_eq!((again.token.position, again.attempt), (1, 2), "the recorded attempt counts");
}

#[test]
fn parked_positions_wait_for_their_entries_while_others_go_on() {
    let now = Timestamp::from_secs(1_000);
    let restored = Restored {
        watermark: 5,
        acked: vec![7],
        parked: vec![row(&[3, 7])],
        deferred: Vec::new(),
        ..Restored::default()
    };
    let mut lane = Lane::new(small(), Epoch(4), restored, now).expect("valid");
    lane.set_stream(Some(STREAM));
    assert_eq!(lane.handle_page(now, 5, &[entry(6, B), entry(7, A), entry(8, A)], 9), Ok(9));
    let other = lane.poll_delivery(now, Room::UNLIMITED).expect("B");
    assert_eq!(other.token.position, 6);
    assert_eq!(lane.poll_delivery(now, Room::UNLIMITED), None);
    assert_eq!(lane.needs_entries(1), [3]);
    assert_eq!(lane.needs_entries(9), [3, 7]);
    lane.handle_entries(now, &[entry(3, A)], &[]);
    let head = lane.poll_delivery(now, Room::UNLIMITED).expect("the head is known");
    assert_eq!((head.token.position, head.attempt), (3, 4));
}

#[test]
fn parked_positions_that_retention_has_dropped_are_counted_as_expired() {
    let now = Timestamp::from_secs(1_000);
    let restored = Restored {
        watermark: 9,
        acked: vec![],
        parked: vec![row(&[3, 7])],
        deferred: vec![],
        ..Restored::default()
    };
    let mut lane = Lane::new(small(), Epoch(4), restored, now).expect("valid");
    lane.set_stream(Some(STREAM));
    lane.handle_entries(now, &[entry(7, A)], &[3]);
    assert_eq!(lane.poll_delivery(now, Room::UNLIMITED), None, "not before that is written");
    let flush = lane.poll_flush(now).expect("a shorter row");
    assert_eq!(flush.park[0].positions, [7]);
    assert_eq!((flush.park[0].state, flush.park[0].attempts), (ParkedState::Draining, 0));
    lane.handle_flushed(now, flush.seq, FlushResult::Written);
    assert_eq!(lane.stats().expired, 1);
    let next = lane.poll_delivery(now, Room::UNLIMITED).expect("the follower");
    assert_eq!((next.token.position, next.attempt), (7, 1));
}

#[test]
fn stored_state_that_breaks_an_invariant_is_refused() {
    let refused = |parked: Vec<ParkedEntity>, deferred: Vec<Deferred>| {
        let restored = Restored { watermark: 9, acked: vec![], parked, deferred, ..Restored::default() };
        Lane::new(small(), Epoch(1), restored, Timestamp::EPOCH).expect_err("corrupt")
    };
    assert_eq!(refused(vec![row(&[])], vec![]), Error::ParkedOrder { entity: A });
    assert_eq!(refused(vec![row(&[3, 3])], vec![]), Error::ParkedOrder { entity: A });
    assert_eq!(refused(vec![row(&[3]), row(&[4])], vec![]), Error::TwoPlaces { position: 4 });
    let deferred = Deferred {
        entity: B,
        position: 3,
        deadline: Timestamp::EPOCH,
        reason_code: String::new(),
        reason_text: String::new(),
    };
    let error = refused(vec![row(&[3])], vec![deferred]);
    assert_eq!((error, error.kind()), (Error::TwoPlaces { position: 3 }, ErrorKind::Corrupt));
}
