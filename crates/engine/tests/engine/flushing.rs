//! Flushes that fail, stay unknown, or find another owner.

use portero_engine::{FlushResult, Outcome, Revoke, RevokeReason, Room, Status, StreamId};

use crate::support::{A, B, Bench, STREAM, secs, small};

#[test]
fn there_is_one_flush_at_a_time() {
    let mut bench = Bench::new(small(), &[A, B]);
    let both = bench.deliveries();
    bench.say(both[0].token, Outcome::Ack);
    let flush = bench.lane.poll_flush(bench.now).expect("an ack");
    bench.say(both[1].token, Outcome::Ack);
    assert_eq!(bench.lane.poll_flush(bench.now), None);
    bench.lane.handle_flushed(bench.now, flush.seq + 1, FlushResult::Written);
    assert_eq!(bench.statuses(), [], "another number is ignored");
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Written);
    assert_eq!(bench.statuses(), [Status::Durable]);
    assert_eq!(bench.flush(), [Status::Durable]);
}

#[test]
fn an_unknown_outcome_brings_the_same_flush_again_and_no_status_before() {
    let mut bench = Bench::new(small(), &[A, B]);
    let both = bench.deliveries();
    bench.say(both[0].token, Outcome::Ack);
    let flush = bench.lane.poll_flush(bench.now).expect("an ack");
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Unknown);
    bench.say(both[1].token, Outcome::Ack);
    assert_eq!(bench.statuses(), []);
    assert_eq!(bench.lane.poll_flush(bench.now), Some(flush.clone()));
    assert_eq!(bench.lane.poll_flush(bench.now), None);
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Written);
    assert_eq!(bench.statuses(), [Status::Durable]);
}

#[test]
fn what_failed_to_be_written_comes_again_with_newer_changes_under_a_new_number() {
    let mut bench = Bench::new(small(), &[A, B]);
    let both = bench.deliveries();
    bench.say(both[0].token, Outcome::Reject);
    let first = bench.lane.poll_flush(bench.now).expect("a dead letter");
    bench.lane.handle_flushed(bench.now, first.seq, FlushResult::Failed);
    bench.say(both[1].token, Outcome::Ack);
    let second = bench.lane.poll_flush(bench.now).expect("both");
    assert_eq!((second.seq, second.watermark), (2, 2));
    assert_eq!(second.dead, first.dead);
    bench.lane.handle_flushed(bench.now, second.seq, FlushResult::Written);
    assert_eq!(bench.statuses(), [Status::Durable, Status::Durable]);
}

#[test]
fn a_lost_lane_answers_everything_and_then_stays_silent() {
    let mut bench = Bench::new(small(), &[A, B, A]);
    let both = bench.deliveries();
    bench.say(both[0].token, Outcome::Ack);
    let flush = bench.lane.poll_flush(bench.now).expect("an ack");
    bench.say(both[0].token, Outcome::Ack);
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Lost);
    assert_eq!(bench.statuses(), [Status::TryAgain, Status::TryAgain]);
    let revoke = Revoke { stream: STREAM, token: both[1].token, reason: RevokeReason::LaneLost };
    assert_eq!(bench.revokes(), [revoke]);
    assert!(bench.lane.is_lost() && bench.lane.is_quiet());
    assert_eq!(bench.settle(both[1].token, Outcome::Ack), Status::TryAgain);
    bench.lane.set_stream(Some(StreamId(2)));
    bench.read();
    assert_eq!((bench.lane.capacity(), bench.lane.poll_timeout()), (0, None));
    assert_eq!(bench.lane.poll_delivery(bench.now, Room::UNLIMITED), None);
    assert_eq!(bench.lane.poll_flush(bench.now), None);
}

#[test]
fn an_idle_lane_writes_its_watermark_after_a_while() {
    let mut bench = Bench::new(small(), &[]);
    bench.lane.handle_page(bench.now, 0, &[], 500).expect("no gap");
    assert_eq!(bench.lane.poll_flush(bench.now), None);
    let at = bench.lane.poll_timeout().expect("an idle flush");
    assert_eq!(at, bench.now.plus(secs(10)));
    bench.pass(secs(10));
    bench.flush();
    assert_eq!(bench.store.watermark, 500);
    assert_eq!(bench.lane.poll_timeout(), None);
    bench.lane.handle_page(bench.now, 500, &[], 600).expect("no gap");
    bench.lane.hurry_flush();
    bench.flush();
    assert_eq!(bench.store.watermark, 600);
}

#[test]
fn an_idle_watermark_that_failed_to_be_written_is_tried_again() {
    let mut bench = Bench::new(small(), &[]);
    bench.lane.handle_page(bench.now, 0, &[], 500).expect("no gap");
    bench.lane.hurry_flush();
    let flush = bench.lane.poll_flush(bench.now).expect("hurried");
    bench.lane.handle_flushed(bench.now, flush.seq, FlushResult::Failed);
    assert_eq!(bench.lane.poll_flush(bench.now), None);
    bench.lane.hurry_flush();
    bench.flush();
    assert_eq!(bench.store.watermark, 500);
}
