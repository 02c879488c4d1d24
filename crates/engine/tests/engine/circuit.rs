//! A consumer's dependency is down: nearly everything fails, and it is not the events.

use portero_engine::{Circuit, CircuitConfig, Gate, LaneConfig, Outcome, Room, Status};
use portero_types::EntityHash;

use crate::support::{Bench, secs, small};

/// A consumer behind a circuit that settles all it gets with `outcome`, for `seconds`. Returns how many events it got.
fn consume(bench: &mut Bench, circuit: &mut Circuit, outcome: Outcome, seconds: u64) -> usize {
    let mut got = 0;
    for _ in 0..seconds {
        let gate = circuit.gate(bench.now);
        bench.lane.set_frozen(circuit.is_tripped());
        let mut held = Vec::new();
        while gate.room(u32::try_from(held.len()).expect("few")) > 0 {
            let Some(delivery) = bench.lane.poll_delivery(bench.now, Room::UNLIMITED) else { break };
            held.push(delivery);
        }
        got += held.len();
        for delivery in held {
            circuit.handle_outcome(bench.now, delivery.entry.entity, outcome == Outcome::Ack);
            bench.lane.set_frozen(circuit.is_tripped());
            bench.say(delivery.token, outcome);
        }
        bench.flush();
        bench.pass(secs(1));
    }
    got
}

/// F27: everything fails for ten minutes.
#[test]
fn ten_minutes_of_failures_kill_no_event_and_the_subscription_recovers_by_itself() {
    let config = LaneConfig {
        attempts_max: 3,
        window_events_max: 500,
        positions_max: 1_000,
        acked_max: 500,
        ..small()
    };
    let entities: Vec<EntityHash> = (0..100).flat_map(|entity| [EntityHash(entity); 3]).collect();
    let mut bench = Bench::new(config, &entities);
    let mut circuit = Circuit::new(CircuitConfig::default());
    let failing = Outcome::Retry { delay: None };

    consume(&mut bench, &mut circuit, failing, 1);
    assert!(matches!(circuit.gate(bench.now), Gate::Probe { .. } | Gate::Closed { .. }));
    let attempts = |bench: &Bench| bench.store.parked.values().map(|row| row.attempts).sum::<u32>();
    let counted = attempts(&bench);
    assert!(counted <= 20, "{counted} before it tripped, none after");

    let probes = consume(&mut bench, &mut circuit, failing, 599);
    assert!((10..=100).contains(&probes), "it is probed, but gently: {probes}");
    assert_eq!(attempts(&bench), counted, "no attempt counts meanwhile");
    assert!(bench.store.dead.is_empty());
    assert_eq!(bench.store.parked.len(), 100, "what failed waits for its time");

    consume(&mut bench, &mut circuit, Outcome::Ack, 60);
    assert_eq!(circuit.gate(bench.now), Gate::Open);
    consume(&mut bench, &mut circuit, Outcome::Ack, 60);
    assert!(bench.store.parked.is_empty() && bench.store.dead.is_empty());
    assert_eq!(bench.store.watermark, 300, "all are processed");
}

#[test]
fn a_frozen_failure_parks_and_backs_off_and_counts_again_afterwards() {
    let mut bench = Bench::new(small(), &[EntityHash(1), EntityHash(1)]);
    bench.lane.set_frozen(true);
    for _ in 0..10 {
        let token = bench.delivery().token;
        bench.settle(token, Outcome::Retry { delay: Some(secs(5)) });
        bench.pass(secs(4));
        assert_eq!(bench.positions(), [0; 0], "not before its time");
        bench.pass(secs(1));
    }
    let first_failed_at = bench.store.parked[&EntityHash(1)].first_failed_at;
    assert_eq!(bench.store.parked[&EntityHash(1)].attempts, 0);
    assert_eq!(first_failed_at, bench.now.minus(secs(50)), "since when it fails is known all the same");
    bench.lane.set_frozen(false);
    for _ in 0..3 {
        let token = bench.delivery().token;
        assert_eq!(token.position, 1);
        bench.retry(token);
    }
    assert_eq!(bench.store.dead[&1].attempts, 3);
}

#[test]
fn a_frozen_hold_that_expires_counts_no_attempt_and_a_rejection_does() {
    let mut bench = Bench::new(small(), &[EntityHash(1), EntityHash(2)]);
    bench.lane.set_frozen(true);
    let both = bench.deliveries();
    assert_eq!(bench.settle(both[1].token, Outcome::Reject), Status::Durable);
    bench.pass(secs(300));
    bench.flush();
    assert_eq!(bench.store.parked[&EntityHash(1)].attempts, 0);
    assert_eq!(bench.store.dead[&2].attempts, 1);
}
