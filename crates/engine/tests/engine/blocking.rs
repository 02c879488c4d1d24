//! The policy that keeps an entity back behind a dead letter, and what operators ask for.

use portero_engine::{
    Action, DeadLetterPolicy, Ending, FlushResult, LaneConfig, Outcome, ParkedState, Requested, Status,
    Undeliverable, reason,
};

use crate::support::{A, B, Bench, STREAM, secs, small};

fn blocking() -> LaneConfig {
    LaneConfig { dead_letter_policy: DeadLetterPolicy::ParkEntity, ..small() }
}

fn ask(bench: &mut Bench, action: Action) -> Requested {
    bench.lane.handle_request(bench.now, A, action)
}

#[test]
fn a_dead_letter_blocks_its_entity_in_the_same_flush_until_an_operator_lets_it_go_on() {
    let mut bench = Bench::new(blocking(), &[A, A, B]);
    let both = bench.deliveries();
    bench.settle(both[1].token, Outcome::Ack);
    bench.say_why(both[0].token, Outcome::Reject, "BROKEN");
    let flush = bench.lane.poll_flush(bench.now).expect("both");
    assert_eq!((flush.dead[0].position, flush.park[0].state), (1, ParkedState::Blocked));
    assert_eq!((&flush.park[0].positions[..], flush.park[0].reason_code.as_str()), (&[2][..], "BROKEN"));
    bench.store.write(&flush);
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Written);
    bench.append(&[A, B]);
    bench.pass(secs(3600));
    assert_eq!(bench.positions(), [5], "B goes on, A waits");
    assert_eq!(bench.lane.stats().blocked_entities, 1);
    assert_eq!(ask(&mut bench, Action::DeadLetter), Requested::NotParked, "what waits was never tried");
    assert_eq!(ask(&mut bench, Action::Retry), Requested::Done);
    assert_eq!(bench.positions(), [0; 0], "not before that is written");
    bench.flush();
    for position in [2, 4] {
        let next = bench.delivery();
        assert_eq!((next.token.position, next.attempt), (position, 1));
        bench.settle(next.token, Outcome::Ack);
    }
    assert!(bench.store.parked.is_empty());
    assert_eq!(bench.lane.stats().blocked_entities, 0);
}

#[test]
fn a_block_without_followers_survives_a_restart_and_keeps_what_comes_later() {
    let mut bench = Bench::new(blocking(), &[A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Reject);
    assert_eq!(bench.store.parked[&A].positions, [0; 0]);
    bench.restart(blocking());
    bench.append(&[A]);
    bench.flush();
    assert_eq!(bench.store.parked[&A].positions, [2]);
    bench.restart(blocking());
    bench.pass(secs(3600));
    assert_eq!((bench.positions(), bench.lane.stats().blocked_entities), (vec![], 1));
    assert_eq!(ask(&mut bench, Action::Retry), Requested::Done);
    bench.flush();
    let next = bench.delivery();
    assert_eq!((next.token.position, next.attempt), (2, 1), "what the row counted was the dead event's");
    bench.settle(next.token, Outcome::Ack);
    assert!(bench.store.parked.is_empty());
}

#[test]
fn a_retry_of_a_blocked_entity_that_nobody_waits_behind_leaves_no_trace() {
    let mut bench = Bench::new(blocking(), &[A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Reject);
    assert_eq!(ask(&mut bench, Action::Retry), Requested::Done);
    bench.flush();
    assert!(bench.store.parked.is_empty());
    assert_eq!(ask(&mut bench, Action::Retry), Requested::NotParked);
    bench.append(&[A]);
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn attempts_interruptions_holds_and_frames_that_are_too_large_block_too() {
    let kinds: [fn(&mut Bench); 4] = [
        |bench| {
            let token = bench.delivery().token;
            bench.settle(token, Outcome::Retry { delay: Some(secs(1)) });
        },
        |bench| {
            bench.delivery();
            bench.end_stream(Ending::Abnormal);
        },
        |bench| {
            bench.delivery();
            bench.pass(secs(300));
        },
        |bench| {
            let token = bench.delivery().token;
            bench.lane.handle_undeliverable(bench.now, token, Undeliverable::TooLarge);
        },
    ];
    for (number, fail) in kinds.iter().enumerate() {
        let config = LaneConfig { attempts_max: 1, interruptions_max: 1, ..blocking() };
        let mut bench = Bench::new(config, &[A, A]);
        fail(&mut bench);
        bench.flush();
        bench.lane.set_stream(Some(STREAM));
        assert!(bench.store.dead.contains_key(&1), "{number}");
        assert_eq!(
            (bench.store.parked[&A].state, bench.positions()),
            (ParkedState::Blocked, vec![]),
            "{number}"
        );
    }
}

#[test]
fn an_event_that_expires_or_is_deferred_for_too_long_blocks_nothing() {
    let mut bench = Bench::new(blocking(), &[A, A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let token = bench.delivery().token;
    bench.lane.handle_undeliverable(bench.now, token, Undeliverable::BodyGone);
    bench.flush();
    let token = bench.delivery().token;
    assert_eq!(token.position, 3);
    bench.settle(token, Outcome::Release);
    bench.pass(secs(3600));
    bench.flush();
    assert_eq!(bench.store.dead[&1].reason_code, reason::DEFER_DEADLINE);
    assert_eq!(bench.positions(), [3]);
}

#[test]
fn deferred_events_of_a_blocked_entity_wait_too_and_keep_their_deadline() {
    let mut bench = Bench::new(blocking(), &[A, A, A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let token = bench.delivery().token;
    assert_eq!(token.position, 3);
    bench.settle(token, Outcome::Ack);
    let token = bench.delivery().token;
    assert_eq!(token.position, 1, "deferred ones come back first");
    bench.settle(token, Outcome::Reject);
    assert_eq!(bench.positions(), [0; 0], "neither 2, which is due, nor 4");
    bench.restart(blocking());
    assert_eq!(bench.positions(), [0; 0]);
    assert_eq!(ask(&mut bench, Action::Retry), Requested::Done);
    bench.flush();
    assert_eq!(bench.positions(), [2]);
    bench.end_stream(Ending::Graceful);
    bench.pass(secs(3600));
    bench.flush();
    assert_eq!(bench.store.dead[&2].reason_code, reason::DEFER_DEADLINE);
    bench.lane.set_stream(Some(STREAM));
    assert_eq!(bench.positions(), [4]);
}

#[test]
fn a_deferred_event_of_a_blocked_entity_dies_at_its_deadline_and_the_block_stays() {
    let mut bench = Bench::new(blocking(), &[A, A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Reject);
    bench.pass(secs(3600));
    bench.flush();
    assert_eq!(bench.store.dead[&1].reason_code, reason::DEFER_DEADLINE);
    assert_eq!(bench.store.parked[&A].state, ParkedState::Blocked);
    assert_eq!(bench.positions(), [0; 0]);
}

#[test]
fn an_operators_retry_makes_a_failed_head_due_at_once_with_its_attempts() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Retry { delay: Some(secs(3600)) });
    assert_eq!(bench.positions(), [0; 0]);
    assert_eq!(ask(&mut bench, Action::Retry), Requested::Done);
    let again = bench.delivery();
    assert_eq!((again.token.position, again.attempt), (1, 2));
    assert_eq!(ask(&mut bench, Action::Retry), Requested::InFlight);
    assert_eq!(ask(&mut bench, Action::DeadLetter), Requested::InFlight);
    bench.settle(again.token, Outcome::Ack);
    let next = bench.delivery().token;
    bench.settle(next, Outcome::Release);
    assert_eq!(ask(&mut bench, Action::DeadLetter), Requested::NotParked, "it did not fail");
}

#[test]
fn an_operators_dead_letter_ends_the_failed_head_and_its_entity_goes_on_whatever_the_policy() {
    let mut bench = Bench::new(blocking(), &[A, A]);
    let token = bench.delivery().token;
    bench.say_why(token, Outcome::Retry { delay: Some(secs(60)) }, "BUSY");
    bench.flush();
    bench.restart(blocking());
    assert_eq!(ask(&mut bench, Action::DeadLetter), Requested::Done);
    bench.flush();
    let letter = &bench.store.dead[&1];
    assert_eq!((letter.reason_code.as_str(), letter.reason_text.as_str()), (reason::OPERATOR, "BUSY"));
    assert_eq!(letter.attempts, 1);
    let next = bench.delivery().token;
    assert_eq!(next.position, 2);
    assert_eq!(bench.settle(next, Outcome::Ack), Status::Durable);
    assert!(bench.store.parked.is_empty());
}
