//! Order within an entity, independence between entities, and what a stream gets.

use portero_engine::{Ending, Error, ErrorKind, Outcome, Room, Status, StreamId};

use crate::support::{A, B, Bench, STREAM, entry, secs, small};

#[test]
fn the_next_event_of_an_entity_starts_after_the_ack_is_written_and_not_before() {
    let mut bench = Bench::new(small(), &[A, A, B]);
    let first = bench.deliveries();
    assert_eq!(first.iter().map(|d| d.token.position).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(bench.say(first[0].token, Outcome::Ack), []);
    assert_eq!(bench.positions(), [0; 0], "the ack is not written");
    assert_eq!(bench.flush(), [Status::Durable]);
    assert_eq!(bench.positions(), [2]);
}

#[test]
fn a_delivery_names_its_stream_entry_and_attempt() {
    let mut bench = Bench::new(small(), &[A]);
    let delivery = bench.delivery();
    assert_eq!((delivery.stream, delivery.entry, delivery.attempt), (STREAM, entry(1, A), 1));
    assert_eq!(bench.settle(delivery.token, Outcome::Release), Status::Durable);
    let again = bench.delivery();
    assert_eq!((again.token.delivery, again.attempt), (2, 2));
}

#[test]
fn without_a_stream_nothing_is_offered_and_nothing_ages() {
    let mut bench = Bench::new(small(), &[A, B]);
    bench.lane.set_stream(None);
    assert_eq!(bench.positions(), [0; 0]);
    bench.pass(secs(3600));
    assert_eq!(bench.lane.stats().parked_positions, 0);
    bench.lane.set_stream(Some(STREAM));
    assert_eq!(bench.positions(), [1, 2]);
}

#[test]
fn an_entity_in_flight_stays_on_its_old_stream_until_it_is_settled() {
    let mut bench = Bench::new(small(), &[A, A, B]);
    let old = bench.lane.poll_delivery(bench.now, Room::UNLIMITED).expect("one");
    bench.lane.set_stream(Some(StreamId(2)));
    let moved = bench.deliveries();
    assert_eq!(moved.iter().map(|d| (d.stream, d.token.position)).collect::<Vec<_>>(), [(StreamId(2), 3)]);
    bench.lane.set_stream(Some(STREAM));
    bench.lane.set_stream(Some(StreamId(2)));
    assert_eq!(bench.settle(old.token, Outcome::Ack), Status::Durable);
    let next = bench.delivery();
    assert_eq!((next.stream, next.token.position), (StreamId(2), 2));
}

#[test]
fn room_limits_events_and_bytes_but_an_idle_stream_always_gets_one() {
    let mut bench = Bench::new(small(), &[A, B]);
    let now = bench.now;
    let mut poll = |events, bytes, idle| bench.lane.poll_delivery(now, Room { events, bytes, idle });
    assert_eq!(poll(0, 1_000, true), None);
    assert_eq!(poll(1, 99, false), None);
    assert!(poll(1, 99, true).is_some());
    assert!(poll(1, 100, false).is_some());
}

#[test]
fn a_released_event_goes_to_the_back_of_the_queue() {
    let mut bench = Bench::new(small(), &[A, B]);
    let one = Room { events: 1, ..Room::UNLIMITED };
    let first = bench.lane.poll_delivery(bench.now, one).expect("one");
    bench.settle(first.token, Outcome::Release);
    assert_eq!(bench.positions(), [2, 1], "an event that is released again and again starves nobody");
}

#[test]
fn pages_may_overlap_but_not_leave_a_gap() {
    let mut bench = Bench::new(small(), &[A]);
    let gap = bench.lane.handle_page(bench.now, 5, &[entry(6, B)], 6);
    assert_eq!(gap, Err(Error::Gap { after: 5, cursor: 1 }));
    assert_eq!(gap.map_err(|error| error.kind()), Err(ErrorKind::Misuse));
    assert_eq!(bench.lane.handle_page(bench.now, 0, &[entry(1, A), entry(2, B)], 4), Ok(4));
    assert_eq!(bench.positions(), [1, 2]);
}

#[test]
fn a_graceful_end_offers_again_at_once_and_counts_nothing() {
    let mut bench = Bench::new(small(), &[A, A]);
    for _ in 0..10 {
        assert_eq!(bench.delivery().token.position, 1);
        bench.end_stream(Ending::Graceful);
        bench.lane.set_stream(Some(STREAM));
    }
    assert!(bench.store.parked.is_empty());
    assert_eq!(bench.lane.poll_flush(bench.now), None, "nothing to write");
}
