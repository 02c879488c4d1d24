//! Retries, interruptions, rejections, holds.

use portero_engine::{
    Ending, FlushResult, Outcome, ParkedState, RevokeReason, Room, Status, Token, Undeliverable, reason,
};

use crate::support::{A, B, Bench, STREAM, secs, small};

#[test]
fn a_failing_entity_delays_only_itself_and_keeps_its_order() {
    let mut bench = Bench::new(small(), &[A, A, B]);
    let first = bench.deliveries();
    bench.settle(first[1].token, Outcome::Ack);
    assert_eq!(bench.settle(first[0].token, Outcome::Retry { delay: Some(secs(60)) }), Status::Durable);
    bench.append(&[A, B]);
    assert_eq!(bench.positions(), [5], "B goes on");
    bench.pass(secs(59));
    assert_eq!(bench.positions(), [0; 0], "not before its time");
    bench.pass(secs(1));
    let again = bench.delivery();
    assert_eq!((again.token.position, again.token.delivery, again.attempt), (1, 2, 2));
    bench.settle(again.token, Outcome::Ack);
    for position in [2, 4] {
        let next = bench.delivery();
        assert_eq!(next.token.position, position);
        assert_eq!(bench.settle(next.token, Outcome::Ack), Status::Durable);
    }
    assert!(!bench.store.parked.contains_key(&A));
}

#[test]
fn the_attempt_is_written_before_the_next_delivery_begins() {
    let mut bench = Bench::new(small(), &[A, A]);
    let first = bench.delivery();
    bench.say_why(first.token, Outcome::Retry { delay: Some(secs(0)) }, "BUSY");
    assert_eq!(bench.positions(), [0; 0]);
    assert_eq!(bench.flush(), [Status::Durable]);
    let row = &bench.store.parked[&A];
    assert_eq!((row.state, row.attempts, row.reason_code.as_str()), (ParkedState::Retry, 1, "BUSY"));
    assert_eq!(row.positions, [1, 2], "what waits behind it stands in the same row");
    assert_eq!(bench.store.watermark, 2, "so the watermark passes them");
    assert_eq!(bench.positions(), [1]);
}

#[test]
fn the_last_attempt_makes_a_dead_letter_in_the_same_flush_and_the_entity_goes_on() {
    let mut bench = Bench::new(small(), &[A, A]);
    for _ in 0..2 {
        let delivery = bench.delivery();
        bench.retry(delivery.token);
    }
    let last = bench.delivery();
    bench.say_why(last.token, Outcome::Retry { delay: None }, "CARD_API_DOWN");
    assert_eq!(bench.flush(), [Status::Durable]);
    let letter = &bench.store.dead[&1];
    assert_eq!((letter.attempts, letter.interruptions), (3, 0));
    assert_eq!(letter.reason_code, "CARD_API_DOWN");
    assert_eq!(letter.first_failed_at, bench.now.minus(secs(2)));
    let next = bench.delivery();
    assert_eq!((next.token.position, next.attempt), (2, 1), "who only waited has no attempts");
}

#[test]
fn rejection_is_a_dead_letter_at_once() {
    let mut bench = Bench::new(small(), &[A, A]);
    let delivery = bench.delivery();
    assert_eq!(bench.settle(delivery.token, Outcome::Reject), Status::Durable);
    let letter = &bench.store.dead[&1];
    assert_eq!((letter.reason_code.as_str(), letter.attempts), (reason::REJECTED, 1));
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn an_abnormal_end_counts_an_interruption_and_no_attempt() {
    let mut bench = Bench::new(small(), &[A, B]);
    assert_eq!(bench.positions(), [1, 2]);
    bench.end_stream(Ending::Abnormal);
    bench.flush();
    assert_eq!((bench.store.parked[&A].attempts, bench.store.parked[&A].interruptions), (0, 1));
    bench.lane.set_stream(Some(STREAM));
    bench.pass(secs(1));
    let again = bench.deliveries();
    assert_eq!(again.len(), 2);
    let b = again.iter().find(|d| d.entry.entity == B).expect("offered again");
    bench.settle(b.token, Outcome::Ack);
    bench.end_stream(Ending::Abnormal);
    bench.flush();
    let letter = &bench.store.dead[&1];
    assert_eq!((letter.reason_code.as_str(), letter.interruptions), (reason::INTERRUPTED, 2));
    assert!(!bench.store.dead.contains_key(&2));
}

#[test]
fn a_slow_event_leaves_the_window_uncounted_and_its_delivery_goes_on() {
    let mut bench = Bench::new(small(), &[A, A, B]);
    let first = bench.deliveries();
    bench.settle(first[1].token, Outcome::Ack);
    assert_eq!((bench.store.watermark, &bench.store.acked[..]), (0, &[3][..]));
    bench.pass(secs(30));
    bench.flush();
    assert_eq!((bench.store.watermark, &bench.store.acked[..]), (3, &[][..]));
    let row = &bench.store.parked[&A];
    assert_eq!((row.state, row.attempts, &row.positions[..]), (ParkedState::Held, 0, &[1, 2][..]));
    assert!(bench.revokes().is_empty());
    assert_eq!(bench.settle(first[0].token, Outcome::Ack), Status::Durable);
    assert_eq!(bench.store.parked[&A].state, ParkedState::Draining);
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn a_hold_that_expires_is_revoked_and_counted() {
    let mut bench = Bench::new(small(), &[A]);
    let delivery = bench.delivery();
    bench.pass(secs(299));
    assert!(bench.revokes().is_empty());
    bench.pass(secs(1));
    let revokes = bench.revokes();
    assert_eq!((revokes[0].token, revokes[0].reason), (delivery.token, RevokeReason::HoldExpired));
    bench.flush();
    assert_eq!(bench.store.parked[&A].reason_code, reason::HOLD_EXPIRED);
    assert_eq!(bench.store.parked[&A].attempts, 1);
    assert_eq!(bench.settle(delivery.token, Outcome::Retry { delay: None }), Status::Stale);
    assert_eq!(bench.settle(delivery.token, Outcome::Ack), Status::Durable, "no other delivery had begun");
}

#[test]
fn a_hold_request_gives_more_time_but_never_less_and_only_to_a_live_delivery() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    assert!(bench.lane.handle_hold(bench.now, token, secs(600)));
    assert!(bench.lane.handle_hold(bench.now, token, secs(1)));
    bench.pass(secs(599));
    assert!(bench.revokes().is_empty());
    bench.pass(secs(1));
    assert_eq!(bench.revokes().len(), 1);
    assert!(!bench.lane.handle_hold(bench.now, token, secs(600)));
}

#[test]
fn an_asked_delay_is_cut_to_its_limit() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Retry { delay: Some(secs(10_000_000)) });
    assert_eq!(bench.store.parked[&A].due_at, bench.now.plus(small().retry_delay_max));
}

#[test]
fn what_cannot_be_sent_is_released_expired_or_dead() {
    let mut bench = Bench::new(small(), &[A, A, A]);
    let token = bench.delivery().token;
    bench.lane.handle_undeliverable(bench.now, token, Undeliverable::NotSent);
    let token = bench.delivery().token;
    assert_eq!(token.position, 1);
    bench.lane.handle_undeliverable(bench.now, token, Undeliverable::BodyGone);
    bench.flush();
    assert_eq!(bench.lane.stats().expired, 1);
    let token = bench.delivery().token;
    assert_eq!(token.position, 2);
    bench.lane.handle_undeliverable(bench.now, token, Undeliverable::TooLarge);
    bench.flush();
    assert_eq!(bench.store.dead[&2].reason_code, reason::TOO_LARGE_FOR_CLIENT);
    let token = bench.delivery().token;
    bench.lane.handle_undeliverable(bench.now, token_before(token), Undeliverable::TooLarge);
    assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable, "an old token changes nothing");
}

#[test]
fn what_cannot_be_read_waits_uncounted_with_its_entity_until_it_can_be() {
    let mut bench = Bench::new(small(), &[A, B, A]);
    let tokens: Vec<Token> = bench.deliveries().iter().map(|delivery| delivery.token).collect();
    let [first, other] = tokens[..] else { panic!("one of each entity: {tokens:?}") };
    bench.lane.handle_undeliverable(bench.now, first, Undeliverable::Unreadable);
    bench.flush();
    let parked = &bench.store.parked[&A];
    assert_eq!((parked.reason_code.as_str(), parked.attempts), (reason::BODY_UNREADABLE, 0));
    assert_eq!(parked.due_at, bench.now.plus(small().unreadable_pause));
    assert_eq!(bench.settle(other, Outcome::Ack), Status::Durable, "another entity goes on");
    for _ in 0..30 {
        bench.pass(small().unreadable_pause);
        let token = bench.delivery().token;
        assert_eq!(
            token.position, first.position,
            "nothing of the entity passes it, and it never dies of it"
        );
        bench.lane.handle_undeliverable(bench.now, token, Undeliverable::Unreadable);
        bench.flush();
    }
    bench.pass(small().unreadable_pause);
    let token = bench.delivery().token;
    assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable, "somebody mended it");
    assert_eq!(bench.delivery().token.position, 3);
}

fn token_before(token: Token) -> Token {
    Token { position: token.position - 1, ..token }
}

#[test]
fn an_event_that_arrives_while_its_entity_drains_waits_its_turn() {
    let mut bench = Bench::new(small(), &[A]);
    let token = bench.delivery().token;
    bench.retry(token);
    let token = bench.delivery().token;
    bench.say(token, Outcome::Ack);
    bench.append(&[A]);
    assert_eq!(bench.lane.poll_delivery(bench.now, Room::UNLIMITED), None);
    let flush = bench.lane.poll_flush(bench.now).expect("the ack");
    bench.append(&[A]);
    assert_eq!(flush.unpark, [A]);
    assert_eq!(flush.watermark, 1, "the newcomer is in the window again");
    bench.store.write(&flush);
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Written);
    assert_eq!(bench.positions(), [2]);
}
