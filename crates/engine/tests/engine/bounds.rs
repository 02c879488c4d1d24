//! Limits.

use portero_engine::{LaneConfig, Outcome, Room, Status};
use portero_types::EntityHash;

use crate::support::{A, B, Bench, entry, secs, small};

#[test]
fn the_lane_reads_no_more_than_its_window_takes() {
    let entities: Vec<EntityHash> = (0..20).map(EntityHash).collect();
    let mut bench = Bench::new(small(), &entities);
    assert_eq!((bench.lane.cursor(), bench.lane.capacity()), (8, 0));
    let first = bench.deliveries();
    bench.say(first[0].token, Outcome::Ack);
    assert_eq!(bench.lane.capacity(), 0, "an unwritten ack still takes its place");
    bench.flush();
    assert_eq!(bench.lane.capacity(), 1);
    bench.read();
    assert_eq!(bench.lane.cursor(), 9);
}

#[test]
fn at_the_cap_of_settled_positions_the_oldest_leaves_the_window() {
    let entities: Vec<EntityHash> = (0..8).map(EntityHash).collect();
    let mut bench = Bench::new(small(), &entities);
    let first = bench.deliveries();
    for delivery in &first[1..5] {
        bench.settle(delivery.token, Outcome::Ack);
    }
    assert_eq!((bench.store.watermark, bench.store.acked.len()), (0, 4));
    bench.settle(first[5].token, Outcome::Ack);
    assert_eq!((bench.store.watermark, bench.store.acked.len()), (6, 0));
    assert_eq!(bench.store.parked[&EntityHash(0)].positions, [1]);
    assert_eq!(bench.settle(first[0].token, Outcome::Ack), Status::Durable);
}

#[test]
fn a_slow_entity_that_leaves_the_window_with_many_followers_keeps_the_cap_too() {
    let mut bench = Bench::new(small(), &[A, B, B, B, B, B]);
    let first = bench.deliveries();
    bench.settle(first[0].token, Outcome::Release);
    bench.pass(secs(30));
    bench.flush();
    assert_eq!((bench.store.watermark, bench.store.acked.len()), (6, 0));
    assert_eq!(bench.store.parked[&A].positions, [1]);
    assert_eq!(bench.positions(), [1], "uncounted, at once");
}

#[test]
fn failing_entities_stop_the_reading_only_when_all_positions_are_taken() {
    let mut bench = Bench::new(small(), &[]);
    for entity in 0..30 {
        bench.append(&[EntityHash(entity)]);
        for delivery in bench.deliveries() {
            bench.settle(delivery.token, Outcome::Retry { delay: Some(secs(60)) });
        }
    }
    assert_eq!((bench.lane.cursor(), bench.lane.capacity()), (16, 0));
    assert_eq!(bench.lane.stats().parked_positions, 16);
    bench.pass(secs(60));
    for delivery in bench.deliveries() {
        bench.settle(delivery.token, Outcome::Ack);
    }
    bench.read();
    assert_eq!(bench.lane.cursor(), 24, "a window more");
}

#[test]
fn too_many_settlements_of_one_window_are_sent_away_unrecorded() {
    let config = LaneConfig { window_events_max: 1, ..small() };
    let mut bench = Bench::new(config, &[A, B]);
    let token = bench.delivery().token;
    for _ in 0..4 {
        assert_eq!(bench.say(token, Outcome::Ack), []);
    }
    assert_eq!(bench.say(token, Outcome::Ack), [Status::TryAgain]);
    assert_eq!(bench.flush(), [Status::Durable, Status::Already, Status::Already, Status::Already]);
}

#[test]
fn a_large_event_is_waited_for_and_not_overtaken() {
    let mut bench = Bench::new(small(), &[]);
    let mut large = entry(1, A);
    large.body_bytes = 5_000;
    let entries = [large, entry(2, B)];
    bench.lane.handle_page(bench.now, 0, &entries, 2).expect("no gap");
    let room = Room { events: 10, bytes: 1_000, idle: false };
    assert_eq!(bench.lane.poll_delivery(bench.now, room), None);
    let first = bench.lane.poll_delivery(bench.now, Room { idle: true, ..room }).expect("idle");
    assert_eq!(first.token.position, 1);
    assert!(bench.lane.poll_delivery(bench.now, room).is_some());
}

#[test]
fn reading_on_waits_for_a_good_part_of_the_window_while_there_is_something_to_offer() {
    let entities: Vec<EntityHash> = (0..16).map(EntityHash).collect();
    let mut bench = Bench::new(small(), &entities);
    let room = Room { events: 1, ..Room::UNLIMITED };
    assert!(!bench.lane.is_hungry(), "the window is full");
    let first = bench.lane.poll_delivery(bench.now, room).expect("one");
    bench.settle(first.token, Outcome::Ack);
    assert_eq!((bench.lane.capacity(), bench.lane.is_hungry()), (1, false), "seven wait to be offered");
    let second = bench.lane.poll_delivery(bench.now, room).expect("one");
    bench.settle(second.token, Outcome::Ack);
    assert_eq!((bench.lane.capacity(), bench.lane.is_hungry()), (2, true), "a quarter is free");
    bench.read();
    let held = bench.deliveries();
    bench.settle(held[0].token, Outcome::Ack);
    assert_eq!((bench.lane.capacity(), bench.lane.is_hungry()), (1, true), "nothing is left to offer");
}
