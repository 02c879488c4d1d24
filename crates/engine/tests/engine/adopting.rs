//! A consumer comes back with work in its hands.

use portero_engine::{Ending, Lane, Outcome, ParkedState, Status, StreamId, Token};
use portero_types::Epoch;

use crate::support::{A, Bench, STREAM, entry, secs, small};

const BACK: StreamId = StreamId(2);

#[test]
fn work_goes_on_under_its_token_after_a_reconnect_and_is_not_delivered_again() {
    for ending in [Ending::Graceful, Ending::Abnormal] {
        for is_written in [false, true] {
            let mut bench = Bench::new(small(), &[A, A]);
            let token = bench.delivery().token;
            bench.end_stream(ending);
            if is_written {
                bench.flush();
            }
            bench.lane.set_stream(Some(BACK));
            assert!(bench.lane.handle_adopt(bench.now, token, BACK));
            assert!(!bench.lane.handle_adopt(bench.now, token, BACK), "it has it already");
            bench.pass(secs(10));
            assert_eq!(bench.positions(), [0; 0]);
            assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable);
            let next = bench.delivery();
            assert_eq!((next.token.position, next.stream), (2, BACK));
            assert!(bench.store.dead.is_empty());
        }
    }
}

#[test]
fn the_interruption_that_the_end_of_the_stream_counted_is_taken_back() {
    let mut bench = Bench::new(small(), &[A, A]);
    let mut token = bench.delivery().token;
    bench.say_why(token, Outcome::Retry { delay: Some(secs(1)) }, "BUSY");
    bench.flush();
    bench.pass(secs(1));
    token = bench.delivery().token;
    for stream in 2..10 {
        bench.lane.handle_stream_ended(bench.now, &mut bench.rng, StreamId(stream - 1), Ending::Abnormal);
        bench.flush();
        assert_eq!(bench.store.parked[&A].interruptions, 1);
        bench.lane.set_stream(Some(StreamId(stream)));
        assert!(bench.lane.handle_adopt(bench.now, token, StreamId(stream)));
        bench.flush();
        let row = &bench.store.parked[&A];
        assert_eq!((row.attempts, row.interruptions, row.reason_code.as_str()), (1, 0, "BUSY"));
    }
    assert!(bench.store.dead.is_empty(), "eight broken connections are nobody's fault");
}

#[test]
fn an_event_that_had_not_failed_is_held_after_it_was_taken_up_again() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    bench.end_stream(Ending::Abnormal);
    bench.flush();
    assert!(bench.lane.handle_adopt(bench.now, token, BACK));
    bench.flush();
    let row = &bench.store.parked[&A];
    assert_eq!((row.state, row.attempts, row.interruptions), (ParkedState::Held, 0, 0));
    assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable);
    assert!(bench.store.parked.is_empty());
}

#[test]
fn work_whose_entity_was_offered_to_someone_else_since_is_refused() {
    let mut bench = Bench::new(small(), &[A, A]);
    let old = bench.delivery().token;
    bench.end_stream(Ending::Graceful);
    bench.lane.set_stream(Some(BACK));
    let new = bench.delivery().token;
    assert!(!bench.lane.handle_adopt(bench.now, old, StreamId(3)));
    bench.settle(new, Outcome::Release);
    assert!(!bench.lane.handle_adopt(bench.now, old, StreamId(3)), "there was another holder");
    assert!(!bench.lane.handle_adopt(bench.now, new, StreamId(3)), "it was given back, not cut short");
    assert_eq!(bench.settle(old, Outcome::Ack), Status::DurableLate, "its ack still counts");
    assert!(!bench.lane.handle_adopt(bench.now, old, StreamId(3)));
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn work_that_was_settled_or_whose_hold_expired_is_not_taken_up() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Retry { delay: Some(secs(60)) });
    assert!(!bench.lane.handle_adopt(bench.now, token, BACK));
    bench.pass(secs(60));
    let token = bench.delivery().token;
    bench.pass(secs(300));
    bench.end_stream(Ending::Abnormal);
    assert!(!bench.lane.handle_adopt(bench.now, token, BACK));
}

#[test]
fn work_of_an_earlier_epoch_goes_on_with_the_next_owner() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.restart(small());
    assert!(bench.lane.handle_adopt(bench.now, token, STREAM));
    assert_eq!(bench.positions(), [0; 0]);
    bench.end_stream(Ending::Abnormal);
    bench.lane.set_stream(Some(BACK));
    assert!(bench.lane.handle_adopt(bench.now, token, BACK), "and over a second break");
    assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable);
    let next = bench.delivery();
    assert_eq!((next.token.position, next.token.epoch, next.token.delivery), (2, Epoch(2), 1));
}

#[test]
fn two_consumers_with_work_on_one_entity_from_different_epochs_never_both_go_on() {
    let mut bench = Bench::new(small(), &[A, A]);
    let first = bench.delivery().token;
    bench.restart(small());
    let second = bench.delivery().token;
    bench.restart(small());
    assert!(!bench.lane.handle_adopt(bench.now, first, STREAM), "the owner in between had offered it again");
    assert!(bench.lane.handle_adopt(bench.now, second, BACK));
    bench.lane.handle_stream_ended(bench.now, &mut bench.rng, BACK, Ending::Abnormal);
    assert!(!bench.lane.handle_adopt(bench.now, first, STREAM), "something of the entity was out since");
    assert!(bench.lane.handle_adopt(bench.now, second, STREAM));
}

#[test]
fn what_the_owner_has_not_read_yet_is_decided_once_it_has() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    let mut lane = Lane::new(small(), Epoch(2), bench.store.claim(), bench.now).expect("valid");
    assert!(lane.has_to_read_for(token) && !lane.handle_adopt(bench.now, token, STREAM));
    lane.handle_page(bench.now, 0, &[entry(1, A)], 1).expect("no gap");
    assert!(!lane.has_to_read_for(token) && lane.handle_adopt(bench.now, token, STREAM));

    bench.settle(token, Outcome::Retry { delay: Some(secs(0)) });
    let token = bench.delivery().token;
    let mut lane = Lane::new(small(), Epoch(2), bench.store.claim(), bench.now).expect("valid");
    assert!(lane.has_to_read_for(token) && !lane.handle_adopt(bench.now, token, STREAM));
    lane.handle_entries(bench.now, &[entry(1, A)], &[]);
    assert!(!lane.has_to_read_for(token) && lane.handle_adopt(bench.now, token, STREAM));
    assert_eq!(lane.entry(1), Some(entry(1, A)));
}

#[test]
fn a_deferred_event_on_its_second_chance_goes_on_and_may_step_aside_again() {
    let mut bench = Bench::new(small(), &[A, A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let deadline = bench.store.deferred[&1].deadline;
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Ack);
    let again = bench.delivery().token;
    assert_eq!(again.position, 1);
    bench.end_stream(Ending::Graceful);
    assert!(bench.lane.handle_adopt(bench.now, again, BACK));
    bench.lane.handle_stream_ended(bench.now, &mut bench.rng, BACK, Ending::Abnormal);
    bench.flush();
    assert!(bench.lane.handle_adopt(bench.now, again, STREAM));
    bench.lane.set_stream(Some(STREAM));
    bench.pass(secs(3600));
    assert!(bench.store.dead.is_empty(), "its deadline does not end what a consumer works on");
    bench.flush();
    assert_eq!(bench.store.deferred.get(&1).map(|row| row.deadline), Some(deadline));
}

#[test]
fn a_deferred_event_that_is_taken_up_again_keeps_its_place_before_later_deferred_ones() {
    let mut bench = Bench::new(small(), &[A, A, A, A]);
    for _ in 0..2 {
        let token = bench.delivery().token;
        bench.settle(token, Outcome::Defer);
    }
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Ack);
    let first = bench.delivery().token;
    assert_eq!(first.position, 1, "both are due, oldest first");
    bench.end_stream(Ending::Abnormal);
    bench.flush();
    bench.lane.set_stream(Some(BACK));
    assert!(bench.lane.handle_adopt(bench.now, first, BACK));
    bench.settle(first, Outcome::Release);
    let again = bench.delivery().token;
    assert_eq!(again.position, 1);
    bench.retry(again);
    let again = bench.delivery().token;
    assert_eq!(again.position, 1, "it failed, and keeps the others back");
    bench.settle(again, Outcome::Ack);
    for position in [2, 4] {
        let token = bench.delivery().token;
        assert_eq!(token.position, position);
        bench.settle(token, Outcome::Ack);
    }
    assert_eq!((bench.store.parked.len(), bench.store.deferred.len()), (0, 0));
}

/// Whatever a client makes up: no token is too odd to be judged.
#[test]
fn a_made_up_token_is_not_adopted() {
    let mut bench = Bench::new(small(), &[A]);
    for epoch in [i64::MIN, -1, 0, i64::MAX] {
        for position in [0, 1, 2, u64::MAX] {
            for delivery in [0, 1, u32::MAX] {
                let token = Token { epoch: Epoch(epoch), position, delivery };
                let is_former = epoch == 0 && delivery > 0;
                assert_eq!(bench.lane.has_to_read_for(token), epoch == 0 && position > 1, "{token:?}");
                let adopts = is_former && position == 1;
                assert_eq!(bench.lane.handle_adopt(bench.now, token, BACK), adopts, "{token:?}");
                if adopts {
                    bench = Bench::new(small(), &[A]);
                }
            }
        }
    }
}
