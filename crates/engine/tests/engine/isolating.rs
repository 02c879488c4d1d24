//! An event that ends its consumers is found, and its neighbours are not condemned.

use portero_engine::{Delivery, Ending, LaneConfig, Outcome, Room, Status, StreamId, Want, reason};
use portero_types::EntityHash;

use crate::support::{A, B, Bench, STREAM, secs, small};

const BUSY: Room = Room { idle: false, ..Room::UNLIMITED };

/// A consumer that takes all it gets, and ends without a word when that includes position `killer`. Returns what it had.
fn consume(bench: &mut Bench, stream: u64, killer: u64) -> Vec<Delivery> {
    let stream = StreamId(stream);
    bench.lane.set_stream(Some(stream));
    let mut had: Vec<Delivery> = Vec::new();
    while let Some(delivery) =
        bench.lane.poll_delivery(bench.now, Room { idle: had.is_empty(), ..Room::UNLIMITED })
    {
        let alone = delivery.alone;
        had.push(delivery);
        if alone {
            break;
        }
    }
    if had.iter().any(|delivery| delivery.token.position == killer) {
        bench.lane.handle_stream_ended(bench.now, &mut bench.rng, stream, Ending::Abnormal);
    } else {
        for delivery in &had {
            bench.say(delivery.token, Outcome::Ack);
        }
    }
    bench.flush();
    bench.pass(secs(1));
    had
}

/// F28: a consumer aborts on one event, again and again.
#[test]
fn the_event_that_ends_its_consumers_is_found_by_isolation_and_all_others_are_processed() {
    let config = LaneConfig { interruptions_max: 5, ..small() };
    let entities: Vec<EntityHash> = (0..8).map(EntityHash).collect();
    let mut bench = Bench::new(config, &entities);
    for stream in 1..=2 {
        assert_eq!(consume(&mut bench, stream, 4).len(), 8, "together, until they are suspects");
    }
    let mut rounds = 0;
    while bench.lane.stats().window + bench.lane.stats().parked_positions > 0 {
        let had = consume(&mut bench, 3 + rounds, 4);
        assert!(had.len() <= 1 && had.iter().all(|delivery| delivery.alone), "suspects come alone");
        rounds += 1;
        assert!(rounds < 20, "it ends");
    }
    assert_eq!(bench.store.dead.len(), 1, "only the one that did it");
    let letter = &bench.store.dead[&4];
    assert_eq!(
        (letter.reason_code.as_str(), letter.attempts, letter.interruptions),
        (reason::INTERRUPTED, 0, 5)
    );
}

#[test]
fn a_suspect_waits_for_an_idle_stream_while_others_of_its_lane_go_on() {
    let config = LaneConfig { interruptions_max: 5, isolate_after: 1, ..small() };
    let mut bench = Bench::new(config, &[A]);
    bench.delivery();
    bench.end_stream(Ending::Abnormal);
    bench.flush();
    bench.lane.set_stream(Some(STREAM));
    bench.pass(secs(1));
    bench.append(&[B, B]);
    assert_eq!(bench.lane.waits_for(Room::UNLIMITED), None);
    assert_eq!(bench.lane.waits_for(BUSY), Some(Want::Alone));
    let other = bench.lane.poll_delivery(bench.now, BUSY).expect("B");
    assert_eq!((other.token.position, other.alone), (2, false));
    assert_eq!(bench.lane.poll_delivery(bench.now, BUSY), None);
    assert_eq!(bench.settle(other.token, Outcome::Ack), Status::Durable);
    let suspect = bench.lane.poll_delivery(bench.now, Room::UNLIMITED).expect("A");
    assert_eq!((suspect.token.position, suspect.alone), (1, true));
    assert_eq!(bench.settle(suspect.token, Outcome::Release), Status::Durable);
    let next = bench.lane.poll_delivery(bench.now, Room::UNLIMITED).expect("B's turn");
    assert_eq!(next.token.position, 3, "suspects and others take turns");
}

#[test]
fn a_suspicion_survives_a_restart_and_ends_with_the_event() {
    let config = LaneConfig { interruptions_max: 5, isolate_after: 1, ..small() };
    let mut bench = Bench::new(config.clone(), &[A, A]);
    bench.delivery();
    bench.end_stream(Ending::Abnormal);
    bench.flush();
    bench.restart(config);
    bench.pass(secs(1));
    let suspect = bench.delivery();
    assert!(suspect.alone);
    bench.settle(suspect.token, Outcome::Ack);
    assert!(!bench.delivery().alone);
}

#[test]
fn a_first_in_line_that_is_too_large_for_the_room_says_so() {
    let mut bench = Bench::new(small(), &[A]);
    let room = Room { events: 10, bytes: 99, idle: false };
    assert_eq!(bench.lane.poll_delivery(bench.now, room), None);
    assert_eq!(bench.lane.waits_for(room), Some(Want::Bytes));
    bench.lane.set_stream(None);
    assert_eq!(bench.lane.waits_for(room), None, "nobody asked");
    bench.lane.set_stream(Some(STREAM));
    let token = bench.delivery().token;
    assert_eq!(bench.lane.waits_for(room), None, "nothing is ready");
    bench.settle(token, Outcome::Ack);
}
