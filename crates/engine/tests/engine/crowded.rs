//! One tenant's crowd and one entity's crowd: detours, overflows, and turns by tenant.

use portero_engine::{
    Action, DeadLetterPolicy, Ending, Entry, Lane, LaneConfig, Outcome, ParkedState, Requested, Room,
    SideScope, Status,
};
use portero_types::{EntityHash, Epoch, TenantNo};

use crate::support::{A, Bench, STREAM, entry, secs, small};

mod generated;

/// An entry of an entity that only this tenant has.
fn of(n: u64, tenant: i64, entity: u64) -> Entry {
    let entity = EntityHash(u64::try_from(tenant).expect("positive") << 32 | entity);
    Entry { tenant: TenantNo(tenant), ..entry(n, entity) }
}

fn config() -> LaneConfig {
    LaneConfig { detours_max: 2, parked_max: 3, positions_max: 64, ..small() }
}

/// Reads what the lane asks for beside its own way, until it asks for nothing.
pub(crate) fn read_aside(lane: &mut Lane, now: portero_types::Timestamp, log: &[Entry]) {
    for _ in 0..1_000 {
        let Some(read) = lane.side_reads(1).pop() else { return };
        let (after, limit) = (read.after, read.limit);
        let mut found: Vec<Entry> = log
            .iter()
            .filter(|entry| entry.n > after && entry.n <= read.through)
            .filter(|entry| match read.scope {
                SideScope::Tenant(tenant) => entry.tenant == tenant,
                SideScope::Entity(entity) => entry.entity == entity,
            })
            .copied()
            .collect();
        let through = if found.len() > limit { found[limit - 1].n } else { read.through };
        found.truncate(limit);
        lane.handle_side_read(now, read, &found, through).expect("no gap");
    }
    panic!("the lane asks without end");
}

fn bench(log: Vec<Entry>) -> Bench {
    let mut bench = Bench::new(config(), &[]);
    bench.log = log;
    bench.read();
    read_aside(&mut bench.lane, bench.now, &bench.log);
    bench
}

/// Delivers, acks and writes until nothing is offered; the positions in the order of their starts.
fn drain(bench: &mut Bench) -> Vec<u64> {
    let mut started = Vec::new();
    loop {
        let deliveries = bench.deliveries();
        if deliveries.is_empty() {
            return started;
        }
        for delivery in deliveries {
            started.push(delivery.token.position);
            bench.say(delivery.token, Outcome::Ack);
        }
        bench.flush();
        bench.read();
        read_aside(&mut bench.lane, bench.now, &bench.log);
    }
}

#[test]
fn a_quiet_tenants_event_does_not_wait_behind_anothers_backlog() {
    let mut log: Vec<Entry> = (1..=500).map(|n| of(n, 1, n)).collect();
    log.push(of(501, 2, 1));
    let mut bench = bench(log);
    let first: Vec<u64> = bench.positions();
    assert!(first.contains(&501), "{first:?}");
    assert!(first.len() <= 12, "the crowd has no more than the window and its share: {first:?}");
    assert_eq!(bench.lane.stats().detours, 1);
}

/// None of them has half of the window, and together they have all of it.
#[test]
fn a_quiet_tenants_event_does_not_wait_behind_several_others_backlogs() {
    let noisy = 4;
    let log: Vec<Entry> = (1..=800).map(|n| of(n, n.cast_signed() % noisy + 1, n)).collect();
    let mut bench =
        Bench::new(LaneConfig { detours_max: 8, window_events_max: 32, positions_max: 256, ..config() }, &[]);
    bench.log = log;
    bench.log.push(of(801, 9, 1));
    bench.read();
    read_aside(&mut bench.lane, bench.now, &bench.log);
    let first: Vec<u64> = bench.positions();
    assert!(first.contains(&801), "{first:?}");
}

#[test]
fn a_detour_loses_nothing_repeats_nothing_and_ends_when_it_has_caught_up() {
    let log: Vec<Entry> =
        (1..=600).map(|n| if n % 50 == 0 { of(n, 2, n % 7) } else { of(n, 1, n % 11) }).collect();
    let mut bench = bench(log);
    assert!(bench.lane.stats().detours >= 1);
    let started = drain(&mut bench);
    let mut sorted = started.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=600).collect::<Vec<u64>>(), "each once");
    for entity in 0..11 {
        let of_entity: Vec<u64> =
            started.iter().copied().filter(|n| n % 50 != 0 && n % 11 == entity).collect();
        assert!(of_entity.is_sorted(), "in order: {of_entity:?}");
    }
    assert_eq!(bench.lane.stats().detours, 0);
    assert_eq!((bench.lane.stats().watermark, bench.lane.read_through()), (600, 600));
}

#[test]
fn a_detour_goes_on_at_the_next_owner() {
    let log: Vec<Entry> =
        (1..=300).map(|n| if n % 30 == 0 { of(n, 2, n) } else { of(n, 1, n % 9) }).collect();
    let mut bench = bench(log);
    let mut acked = Vec::new();
    for _ in 0..10 {
        for delivery in bench.deliveries() {
            acked.push(delivery.token.position);
            bench.say(delivery.token, Outcome::Ack);
        }
        bench.flush();
        bench.read();
        read_aside(&mut bench.lane, bench.now, &bench.log);
    }
    assert_eq!(bench.store.detours.len(), 1, "it is written");
    let epoch = Epoch(bench.lane.epoch().0 + 1);
    bench.lane = Lane::new(config(), epoch, bench.store.claim(), bench.now).expect("valid");
    bench.lane.set_stream(Some(STREAM));
    bench.read();
    read_aside(&mut bench.lane, bench.now, &bench.log);
    acked.extend(drain(&mut bench));
    let mut sorted = acked.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=300).collect::<Vec<u64>>(), "each once, across owners");
    for entity in 0..9 {
        let of_entity: Vec<u64> = acked.iter().copied().filter(|n| n % 30 != 0 && n % 9 == entity).collect();
        assert!(of_entity.is_sorted(), "in order: {of_entity:?}");
    }
}

#[test]
fn a_late_ack_of_an_event_that_a_detour_has_still_to_read_is_to_be_sent_again() {
    let log: Vec<Entry> = (1..=100).map(|n| of(n, 1, n)).collect();
    let mut bench = bench(log);
    for delivery in bench.deliveries() {
        bench.say(delivery.token, Outcome::Ack);
    }
    bench.flush();
    read_aside(&mut bench.lane, bench.now, &bench.log);
    let on_detour = bench.deliveries().pop().expect("one").token;
    let epoch = Epoch(bench.lane.epoch().0 + 1);
    bench.lane = Lane::new(config(), epoch, bench.store.claim(), bench.now).expect("valid");
    bench.read();
    assert_eq!(bench.say(on_detour, Outcome::Ack), [Status::TryAgain]);
    read_aside(&mut bench.lane, bench.now, &bench.log);
    assert_eq!(bench.settle(on_detour, Outcome::Ack), Status::DurableLate);
}

/// F25.
#[test]
fn what_waits_behind_a_failing_event_stays_in_the_log_beyond_a_bound_and_comes_in_order() {
    let mut bench = Bench::new(LaneConfig { parked_max: 3, ..small() }, &[A]);
    let head = bench.delivery().token;
    assert_eq!(bench.settle(head, Outcome::Retry { delay: Some(secs(600)) }), Status::Durable);
    for _ in 0..20 {
        bench.append(&[A; 50]);
        bench.flush();
        let row = &bench.store.parked[&A];
        assert!(row.positions.len() <= 3, "{:?}", row.positions);
        assert!(bench.lane.stats().parked_positions <= 3);
    }
    assert_eq!(bench.store.watermark, 1_001, "nothing holds the watermark");
    bench.pass(secs(600));
    let started = drain(&mut bench);
    assert_eq!(started, (1..=1_001).collect::<Vec<u64>>());
    bench.flush();
    assert!(bench.store.parked.is_empty(), "nothing is left of it");
    bench.append(&[A]);
    assert_eq!(bench.positions(), [1_002], "and it goes on as before");
}

/// F25, across owners: what is beyond the bound is found again.
#[test]
fn an_overflow_goes_on_at_the_next_owner() {
    let config = LaneConfig { parked_max: 3, ..small() };
    let mut bench = Bench::new(config.clone(), &[A]);
    let head = bench.delivery().token;
    bench.settle(head, Outcome::Retry { delay: Some(secs(600)) });
    bench.append(&[A; 30]);
    bench.flush();
    bench.append(&[A; 30]);
    bench.restart(config);
    assert_eq!(bench.lane.stats().overflows, 1);
    bench.pass(secs(600));
    assert_eq!(drain(&mut bench), (1..=61).collect::<Vec<u64>>());

    bench.append(&[A]);
    let token = bench.delivery().token;
    bench.end_stream(Ending::Graceful);
    bench.lane.set_stream(Some(STREAM));
    assert_eq!(bench.settle(token, Outcome::Ack), Status::Durable, "a former delivery may still be acked");
}

#[test]
fn a_window_entity_with_more_events_than_a_parked_one_may_list_is_cut_when_it_is_parked() {
    let mut bench = Bench::new(LaneConfig { parked_max: 2, ..small() }, &[A; 8]);
    let head = bench.delivery().token;
    bench.settle(head, Outcome::Retry { delay: Some(secs(1)) });
    let row = bench.store.parked[&A].clone();
    assert_eq!((row.positions, row.overflow.map(|o| (o.after, o.last))), (vec![1, 2], Some((2, 8))));
    bench.pass(secs(1));
    assert_eq!(drain(&mut bench), (1..=8).collect::<Vec<u64>>());
}

#[test]
fn an_overflow_whose_events_retention_dropped_ends() {
    let mut bench = Bench::new(LaneConfig { parked_max: 2, ..small() }, &[A; 8]);
    let head = bench.delivery().token;
    bench.settle(head, Outcome::Retry { delay: Some(secs(1)) });
    bench.log.retain(|entry| entry.n <= 2);
    bench.pass(secs(1));
    assert_eq!(drain(&mut bench), [1, 2]);
    bench.flush();
    assert!(bench.store.parked.is_empty());
    assert_eq!(bench.lane.stats().parked_entities, 0);
}

#[test]
fn tenants_take_turns_within_a_lane() {
    let log: Vec<Entry> = (1..=6).map(|n| of(n, 1, n)).chain((7..=8).map(|n| of(n, 2, n))).collect();
    let mut bench = Bench::new(small(), &[]);
    bench.log = log;
    bench.read();
    let room = Room { events: 1, ..Room::UNLIMITED };
    let order: Vec<u64> = std::iter::from_fn(|| bench.lane.poll_delivery(bench.now, room))
        .map(|delivery| delivery.token.position)
        .collect();
    assert_eq!(order, [1, 7, 2, 8, 3, 4, 5, 6]);
}

#[test]
fn blocked_entities_list_little_so_that_many_may_wait_for_an_operator() {
    let config = LaneConfig { dead_letter_policy: DeadLetterPolicy::ParkEntity, ..small() };
    let mut bench = Bench::new(config, &[A, A, A, A, A, A]);
    let head = bench.delivery().token;
    assert_eq!(bench.settle(head, Outcome::Reject), Status::Durable);
    bench.append(&[A; 20]);
    bench.flush();
    let row = bench.store.parked[&A].clone();
    assert_eq!((row.state, row.positions.len()), (ParkedState::Blocked, 2), "{row:?}");
    assert_eq!((bench.lane.cursor(), bench.lane.stats().parked_positions), (26, 2));
    assert_eq!(bench.lane.handle_request(bench.now, A, Action::Retry), Requested::Done);
    bench.flush();
    assert_eq!(drain(&mut bench), (2..=26).collect::<Vec<u64>>(), "all of them, in order");
}
