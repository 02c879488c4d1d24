//! Failures that the delivery engine has to survive, by their marks.

use portero_engine::{Ending, FlushResult, Lane, LaneConfig, Outcome, ParkedState, Room, Status, StreamId};
use portero_types::{EntityHash, Epoch};

use crate::support::{A, B, Bench, STREAM, secs, small};

/// F20: the list of settled positions outgrows its cap behind a slow event.
#[test]
fn a_consumer_that_sleeps_over_one_event_makes_it_held_and_delays_nobody_else() {
    let config = LaneConfig { max_hold: secs(3600), ..small() };
    let mut bench = Bench::new(config, &[A]);
    let slow = bench.delivery().token;
    for second in 1..=600_u64 {
        bench.append(&[EntityHash(100 + second % 7), B]);
        bench.pass(secs(1));
        for quick in bench.deliveries() {
            assert_eq!(bench.settle(quick.token, Outcome::Ack), Status::Durable);
        }
        assert!(bench.store.acked.len() <= small().acked_max, "the list keeps its cap");
    }
    assert_eq!(bench.lane.stats().watermark, 1_201, "all others went on, and the watermark with them");
    let row = &bench.store.parked[&A];
    assert_eq!((row.state, row.attempts, &row.positions[..]), (ParkedState::Held, 0, &[1][..]));
    assert!(bench.revokes().is_empty());
    assert_eq!(bench.settle(slow, Outcome::Ack), Status::Durable);
    assert!(bench.store.parked.is_empty());
}

/// F22: the watermark passes an event that is not parked yet. Both are in one flush: none or all of it is found.
#[test]
fn an_owner_that_dies_before_or_after_the_write_leaves_no_event_passed_and_unparked() {
    for is_written in [false, true] {
        let mut bench = Bench::new(small(), &[A, A, B]);
        let both = bench.deliveries();
        bench.say(both[1].token, Outcome::Ack);
        bench.say(both[0].token, Outcome::Retry { delay: Some(secs(60)) });
        let flush = bench.lane.poll_flush(bench.now).expect("a parked entity and a watermark");
        assert_eq!((flush.watermark, &flush.park[0].positions[..]), (3, &[1, 2][..]));
        if is_written {
            bench.store.write(&flush);
        }
        bench.restart(small());
        bench.pass(secs(60));
        let again = bench.positions();
        assert!(again.contains(&1), "the failed event comes again: {again:?}");
        assert_eq!(again.contains(&3), !is_written);
    }
}

/// F24: an event arrives while its entity's parked positions are worked off, at each moment of that.
#[test]
fn whenever_an_event_arrives_while_its_entity_is_worked_off_it_comes_last_and_is_not_stranded() {
    for moment in 0..4 {
        let mut bench = Bench::new(small(), &[A, A]);
        let token = bench.delivery().token;
        bench.retry(token);
        let token = bench.delivery().token;
        bench.settle(token, Outcome::Ack);
        let arrive = |bench: &mut Bench, now: u32| {
            if now == moment {
                bench.append(&[A]);
            }
        };
        arrive(&mut bench, 0);
        let last_parked = bench.delivery().token;
        arrive(&mut bench, 1);
        bench.say(last_parked, Outcome::Ack);
        arrive(&mut bench, 2);
        let flush = bench.lane.poll_flush(bench.now).expect("an ack");
        arrive(&mut bench, 3);
        assert_eq!(bench.positions(), [0; 0], "not before that ack is written");
        bench.store.write(&flush);
        bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Written);
        let newcomer = bench.delivery().token;
        assert_eq!(newcomer.position, 3);
        bench.statuses();
        assert_eq!(bench.settle(newcomer, Outcome::Ack), Status::Durable);
        assert!(bench.store.parked.is_empty(), "no marker is left behind");
    }
}

/// F26: events that only wait collect attempts.
#[test]
fn after_fifty_retries_of_the_head_those_behind_it_have_no_attempt() {
    let config = LaneConfig { attempts_max: 51, ..small() };
    let mut bench = Bench::new(config.clone(), &[A, A, A]);
    for _ in 0..50 {
        let token = bench.delivery().token;
        assert_eq!(token.position, 1);
        bench.retry(token);
    }
    assert_eq!(
        (bench.store.parked[&A].attempts, &bench.store.parked[&A].positions[..]),
        (50, &[1, 2, 3][..])
    );
    bench.restart(config);
    let token = bench.delivery().token;
    bench.settle(token, Outcome::Ack);
    let row = &bench.store.parked[&A];
    assert_eq!((row.state, row.attempts, row.interruptions), (ParkedState::Draining, 0, 0));
    for position in [2, 3] {
        let next = bench.delivery();
        assert_eq!((next.token.position, next.attempt), (position, 1));
        bench.settle(next.token, Outcome::Ack);
    }
    assert!(bench.store.dead.is_empty());
}

/// F29: consumers restart in a row, with work in their hands.
#[test]
fn ten_consumers_that_restart_in_a_row_count_nothing_against_their_events() {
    let entities: Vec<EntityHash> = (0..8).map(EntityHash).collect();
    let mut bench = Bench::new(small(), &entities);
    for restart in 0..10 {
        let stream = StreamId(restart + 1);
        bench.lane.set_stream(Some(stream));
        let held = bench.deliveries();
        assert_eq!(held.len(), 8);
        for given_back in &held[..4] {
            assert_eq!(bench.say(given_back.token, Outcome::Release), [Status::Durable]);
        }
        bench.lane.handle_stream_ended(bench.now, &mut bench.rng, stream, Ending::Graceful);
        bench.flush();
    }
    assert!(bench.store.parked.is_empty() && bench.store.dead.is_empty(), "nothing failed");
    assert_eq!(bench.lane.poll_flush(bench.now), None, "and nothing has to be written");
}

/// F30: a failure while later events of the entity are in the client. With one event per entity in flight there are none.
#[test]
fn no_later_event_of_an_entity_is_in_a_client_when_one_fails() {
    let mut bench = Bench::new(small(), &[A, A, A, A]);
    let only = bench.delivery().token;
    assert_eq!(bench.positions(), [0; 0], "however much room there is");
    bench.say(only, Outcome::Retry { delay: Some(secs(1)) });
    assert_eq!(bench.positions(), [0; 0]);
    bench.flush();
    bench.pass(secs(1));
    assert_eq!(bench.positions(), [1]);
}

/// F41: a dead letter cannot be written. It stands in the same flush as what lets its entity go on.
#[test]
fn while_a_dead_letter_cannot_be_written_its_entity_waits_and_nothing_is_lost() {
    let mut bench = Bench::new(small(), &[A, A]);
    let token = bench.delivery().token;
    bench.say(token, Outcome::Reject);
    for _ in 0..3 {
        let flush = bench.lane.poll_flush(bench.now).expect("the dead letter");
        assert_eq!((flush.dead.len(), flush.watermark), (1, 1));
        bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Failed);
        assert_eq!((bench.statuses(), bench.positions()), (vec![], vec![]));
    }
    assert_eq!(bench.flush(), [Status::Durable]);
    assert!(bench.store.dead.contains_key(&1));
    assert_eq!(bench.positions(), [2]);
}

/// F42: settlements of deliveries that an earlier owner made land on what the present one does.
#[test]
fn outcomes_of_an_earlier_epochs_deliveries_are_stale_and_change_nothing_but_acks() {
    let mut bench = Bench::new(small(), &[A, B]);
    let old = bench.deliveries();
    bench.restart(small());
    let new = bench.deliveries();
    assert!(new.iter().all(|delivery| delivery.token.epoch == Epoch(2)));
    for outcome in [Outcome::Retry { delay: None }, Outcome::Release, Outcome::Reject, Outcome::Defer] {
        assert_eq!(bench.settle(old[0].token, outcome), Status::Stale);
    }
    assert_eq!(
        bench.settle(old[1].token, Outcome::Ack),
        Status::DurableLate,
        "it was processed, whoever held it"
    );
    assert_eq!(bench.settle(new[0].token, Outcome::Ack), Status::Durable);
    assert!(bench.store.parked.is_empty() && bench.store.dead.is_empty());
}

/// F23: a new owner delivers before it knows what is parked. A lane is only made with all of it.
#[test]
fn a_new_owner_never_lets_a_later_event_overtake_the_failed_one() {
    let mut bench = Bench::new(small(), &[A, A, B]);
    let token = bench.deliveries()[0].token;
    bench.settle(token, Outcome::Retry { delay: Some(secs(60)) });
    let mut lane = Lane::new(small(), Epoch(2), bench.store.claim(), bench.now).expect("valid");
    lane.set_stream(Some(STREAM));
    lane.handle_page(bench.now, 0, &bench.log, 3).expect("no gap");
    let offered = lane.poll_delivery(bench.now, Room::UNLIMITED).expect("B");
    assert_eq!(offered.token.position, 3);
    assert_eq!(lane.poll_delivery(bench.now, Room::UNLIMITED), None);
}
