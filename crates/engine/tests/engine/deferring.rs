//! Valid, but too early.

use portero_engine::{Outcome, Status, reason};

use crate::support::{A, B, Bench, secs, small};

#[test]
fn a_deferred_event_steps_aside_and_comes_back_after_the_next_ack_of_its_entity() {
    let mut bench = Bench::new(small(), &[A, A, A, B]);
    let first = bench.deliveries();
    assert_eq!(bench.settle(first[0].token, Outcome::Defer), Status::Durable);
    assert_eq!(bench.store.watermark, 1, "it stands in a row of its own");
    bench.settle(first[1].token, Outcome::Ack);
    let second = bench.delivery();
    assert_eq!(second.token.position, 2, "B's ack wakes nobody of A");
    bench.settle(second.token, Outcome::Ack);
    let again = bench.delivery();
    assert_eq!((again.token.position, again.token.delivery), (1, 2), "before later ones");
    bench.settle(again.token, Outcome::Ack);
    assert!(bench.store.deferred.is_empty());
    assert_eq!(bench.positions(), [3]);
}

#[test]
fn several_deferred_events_come_back_oldest_first_one_at_a_time() {
    let mut bench = Bench::new(small(), &[A, A, A, A]);
    for _ in 0..2 {
        let token = bench.delivery().token;
        bench.settle(token, Outcome::Defer);
    }
    let ack = bench.delivery().token;
    assert_eq!(ack.position, 3);
    bench.settle(ack, Outcome::Ack);
    let one = bench.delivery().token;
    assert_eq!(one.position, 1);
    bench.settle(one, Outcome::Defer);
    let two = bench.delivery().token;
    assert_eq!(two.position, 2);
    bench.settle(two, Outcome::Ack);
    assert_eq!(bench.positions(), [1], "the ack of a deferred event wakes the others too");
}

#[test]
fn a_deferred_event_dies_at_its_deadline_with_the_last_reason() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.say_why(token, Outcome::Defer, "NO_PAYMENT_YET");
    bench.flush();
    let deferred_at = bench.now;
    let second = bench.delivery().token;
    assert!(bench.lane.handle_hold(bench.now, second, secs(3600)));
    bench.pass(secs(3599));
    bench.flush();
    assert!(bench.store.dead.is_empty());
    bench.pass(secs(1));
    bench.flush();
    let letter = &bench.store.dead[&1];
    assert_eq!(
        (letter.reason_code.as_str(), letter.reason_text.as_str()),
        (reason::DEFER_DEADLINE, "NO_PAYMENT_YET")
    );
    assert_eq!((letter.first_failed_at, letter.died_at), (deferred_at, bench.now));
    assert!(bench.store.deferred.is_empty());
}

#[test]
fn deferring_forgets_attempts_but_the_deadline_stays_through_a_retry_and_a_restart() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.retry(token);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let deadline = bench.store.deferred[&1].deadline;
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Ack);
    let token = bench.delivery().token;
    bench.retry(token);
    assert_eq!(bench.store.parked[&A].attempts, 1);
    assert_eq!(bench.store.deferred[&1].deadline, deadline);
    bench.restart(small());
    let token = bench.delivery().token;
    assert_eq!(token.position, 1);
    bench.settle(token, Outcome::Defer);
    assert_eq!(bench.store.deferred[&1].deadline, deadline);
    assert!(bench.store.parked.is_empty());
}

#[test]
fn a_deferred_event_that_fails_blocks_its_entity_like_any_other() {
    let mut bench = Bench::new(small(), &[A, A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Ack);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Retry { delay: Some(secs(10)) });
    assert_eq!(bench.store.parked[&A].positions, [1, 3]);
    assert_eq!(bench.positions(), [0; 0]);
    bench.pass(secs(10));
    assert_eq!(bench.positions(), [1]);
}

#[test]
fn an_ack_that_was_written_while_the_event_was_out_counts_when_it_is_deferred_again() {
    let mut bench = Bench::new(small(), &[A, A, A]);
    let one = bench.delivery().token;
    bench.settle(one, Outcome::Defer);
    let two = bench.delivery().token;
    bench.settle(two, Outcome::Defer);
    let three = bench.delivery().token;
    bench.settle(three, Outcome::Ack);
    let one_again = bench.delivery().token;
    assert_eq!(one_again.position, 1);
    assert_eq!(bench.settle(two, Outcome::Ack), Status::Durable, "late, while 1 is out");
    bench.settle(one_again, Outcome::Defer);
    assert_eq!(bench.positions(), [1]);
}

#[test]
fn a_deferred_event_that_is_released_on_its_second_chance_stays_before_later_ones() {
    let mut bench = Bench::new(small(), &[A, A, A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Ack);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Release);
    assert_eq!(bench.positions(), [1]);
}

#[test]
fn deferred_events_survive_a_restart_and_are_offered_once_then() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Defer);
    bench.restart(small());
    let token = bench.delivery().token;
    assert_eq!((token.position, token.delivery), (1, 1));
    bench.settle(token, Outcome::Defer);
    assert_eq!(bench.positions(), [0; 0]);
    bench.append(&[A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Ack);
    assert_eq!(bench.positions(), [1]);
}
