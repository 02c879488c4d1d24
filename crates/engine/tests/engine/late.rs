//! Settlements of deliveries that are over, and of deliveries that never were.

use portero_engine::{Ending, FlushResult, Outcome, RevokeReason, Status, Token};
use portero_types::Epoch;

use crate::support::{A, Bench, STREAM, secs, small};

#[test]
fn a_late_ack_is_recorded_and_the_present_holder_is_revoked() {
    let mut bench = Bench::new(small(), &[A, A]);
    let old = bench.delivery().token;
    bench.end_stream(Ending::Graceful);
    bench.lane.set_stream(Some(STREAM));
    let new = bench.delivery().token;
    assert_eq!(bench.settle(old, Outcome::Ack), Status::DurableLate);
    let revokes = bench.revokes();
    assert_eq!((revokes[0].token, revokes[0].reason), (new, RevokeReason::SettledElsewhere));
    assert_eq!(bench.settle(new, Outcome::Ack), Status::Already);
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn any_other_late_outcome_is_stale_and_changes_nothing() {
    let mut bench = Bench::new(small(), &[A]);
    let old = bench.delivery().token;
    bench.end_stream(Ending::Graceful);
    bench.lane.set_stream(Some(STREAM));
    let new = bench.delivery().token;
    for outcome in [Outcome::Retry { delay: None }, Outcome::Release, Outcome::Reject, Outcome::Defer] {
        assert_eq!(bench.settle(old, outcome), Status::Stale);
    }
    assert_eq!(bench.settle(new, Outcome::Ack), Status::Durable);
}

#[test]
fn an_ack_of_a_former_owners_delivery_is_late() {
    let mut bench = Bench::new(small(), &[A, A]);
    let old = bench.delivery().token;
    bench.restart(small());
    assert_eq!(bench.settle(old, Outcome::Ack), Status::DurableLate);
    assert_eq!(bench.positions(), [2]);
    bench.restart(small());
    assert_eq!(bench.settle(old, Outcome::Ack), Status::Already);
}

#[test]
fn a_late_ack_ends_a_backoff() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Retry { delay: Some(secs(3600)) });
    assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable, "no other delivery had begun");
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn an_ack_right_behind_an_unwritten_retry_holds_the_entity_until_it_is_written_itself() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.say(token, Outcome::Retry { delay: Some(secs(0)) });
    let flush = bench.lane.poll_flush(bench.now).expect("the retry");
    assert_eq!(bench.say(token, Outcome::Ack), []);
    bench.store.write(&flush);
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Written);
    assert_eq!(bench.statuses(), [Status::Durable]);
    assert_eq!(bench.positions(), [0; 0], "the ack is not written");
    assert_eq!(bench.flush(), [Status::Durable]);
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn a_repeated_settlement_is_already_settled_but_only_once_that_is_written() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    assert_eq!(bench.say(token, Outcome::Ack), []);
    assert_eq!(bench.say(token, Outcome::Ack), []);
    assert_eq!(bench.flush(), [Status::Durable, Status::Already]);
    assert_eq!(bench.settle(token, Outcome::Reject), Status::Already);
}

#[test]
fn tokens_that_were_never_given_are_unknown_and_unread_positions_of_former_owners_try_again() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    let forged =
        [Token { delivery: 2, ..token }, Token { delivery: 0, ..token }, Token { position: 99, ..token }];
    for forged in forged {
        assert_eq!(bench.settle(forged, Outcome::Ack), Status::UnknownToken);
    }
    let unread = Token { epoch: Epoch(0), position: 99, delivery: 1 };
    assert_eq!(bench.settle(unread, Outcome::Ack), Status::TryAgain);
    let newer = Token { epoch: Epoch(2), ..token };
    assert_eq!(bench.settle(newer, Outcome::Ack), Status::TryAgain, "somebody else may own the lane");
    assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable);
}
