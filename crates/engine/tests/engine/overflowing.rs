//! What an overflow may hold: nothing that was settled before, and what a former owner had begun to deliver from it.

use portero_engine::{LaneConfig, Outcome, Status};

use crate::crowded::read_aside;
use crate::support::{A, Bench, secs, small};

fn config() -> LaneConfig {
    LaneConfig { parked_max: 1, ..small() }
}

fn read_on(bench: &mut Bench) {
    bench.read();
    read_aside(&mut bench.lane, bench.now, &bench.log);
}

/// 1 was put off, 2 was acked, and 1 is in a consumer's hands again.
fn put_off_and_offered_again() -> (Bench, portero_engine::Token) {
    let mut bench = Bench::new(config(), &[A, A]);
    let first = bench.delivery().token;
    assert_eq!(bench.settle(first, Outcome::Defer), Status::Durable);
    let second = bench.delivery().token;
    assert_eq!(bench.settle(second, Outcome::Ack), Status::Durable);
    let again = bench.delivery().token;
    assert_eq!(again.position, 1);
    (bench, again)
}

#[test]
fn what_is_cut_off_behind_a_deferred_event_that_fails_brings_nothing_settled_back() {
    let (mut bench, again) = put_off_and_offered_again();
    bench.append(&[A, A]);
    bench.retry(again);
    let last = bench.delivery().token;
    assert_eq!(bench.settle(last, Outcome::Ack), Status::Durable);
    read_on(&mut bench);
    assert_eq!(bench.positions(), [3], "2 was acked long ago");
}

#[test]
fn what_comes_behind_a_deferred_event_that_has_failed_brings_nothing_settled_back() {
    let (mut bench, again) = put_off_and_offered_again();
    bench.retry(again);
    bench.append(&[A]);
    let last = bench.delivery().token;
    assert_eq!(bench.settle(last, Outcome::Ack), Status::Durable);
    read_on(&mut bench);
    assert_eq!(bench.positions(), [3], "2 was acked long ago");
}

#[test]
fn a_late_ack_of_an_event_that_is_in_an_overflow_again_is_to_be_sent_again() {
    let mut bench = Bench::new(config(), &[A]);
    let first = bench.delivery().token;
    bench.settle(first, Outcome::Retry { delay: Some(secs(1)) });
    bench.append(&[A, A]);
    bench.flush();
    bench.pass(secs(1));
    let first = bench.delivery().token;
    assert_eq!(bench.settle(first, Outcome::Ack), Status::Durable);
    read_on(&mut bench);
    let second = bench.delivery().token;
    assert_eq!(second.position, 2);

    bench.restart(config());
    assert_eq!(bench.settle(second, Outcome::Ack), Status::TryAgain, "nothing of it is written");
    read_on(&mut bench);
    assert_eq!(bench.settle(second, Outcome::Ack), Status::DurableLate);
    read_on(&mut bench);
    assert_eq!(bench.positions(), [3]);
}
