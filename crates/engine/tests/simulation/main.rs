//! Several replicas, several consumers and a store on virtual time, with everything that goes wrong, from one seed.
//!
//! `PORTERO_SIM_SEEDS` says how many seeds are tried, `PORTERO_SIM_SEED` repeats a single one and shows its history.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "answers and natures that do not matter at a place are many"
)]

mod checker;
mod consumer;
mod ledger;
mod network;
mod planted;
mod profile;
mod replica;
mod seeds;
mod shared;
mod store;
mod time;
mod words;
mod world;

use checker::{Seen, Violation};
use planted::{Case, PLANTED};
use profile::Weather;
use world::World;

/// How many seeds may pass before a planted bug is found.
const SEEDS_PER_BUG: usize = 40;

fn run(seed: u64) -> Result<World, Violation> {
    let mut world = World::new(seed, Weather::of_seed(seed), None, false);
    world.run().map(|()| world)
}

/// The same run again, with its history.
fn tell(seed: u64, weather: Weather) -> String {
    let mut world = World::new(seed, weather, None, true);
    let _ = world.run();
    world.shared.checker.history()
}

#[test]
fn every_promise_is_kept_whatever_goes_wrong() {
    let mut seen: Vec<(&str, u64)> = Vec::new();
    let mut broken = Vec::new();
    for seed in seeds::seeds() {
        match run(seed) {
            Ok(world) => {
                seen.extend(world.shared.checker.seen.all());
            }
            Err(violation) => {
                let weather = Weather::of_seed(seed);
                let history = tell(seed, weather);
                println!("{history}\nPORTERO_SIM_SEED={seed} ({weather:?}): {violation:?}");
                broken.push(seed);
            }
        }
    }
    assert!(broken.is_empty(), "seeds {broken:?}");
    let sums = Seen::default().all().map(|(name, _)| {
        (name, seen.iter().filter(|(other, _)| *other == name).map(|(_, times)| times).sum::<u64>())
    });
    println!("{sums:?}");
    let many = seen.len() >= 40 * sums.len();
    assert!(!many || sums.iter().all(|(_, times)| *times > 0), "something never happened: {sums:?}");
}

#[test]
fn every_planted_bug_is_noticed_by_the_promise_that_it_breaks() {
    let mut missed = Vec::new();
    for case in PLANTED {
        match first_violation(case) {
            Some((seed, violation)) if case.breaks.contains(&violation.promise) => {
                let Violation { promise, text } = violation;
                println!("{:?} ({}): {promise:?} at seed {seed}: {text}", case.planted, case.of);
            }
            Some((seed, violation)) => missed.push(format!("{:?} at {seed}: {violation:?}", case.planted)),
            None => missed.push(format!("{:?}: nothing", case.planted)),
        }
    }
    assert!(missed.is_empty(), "not noticed, or by another promise: {missed:#?}");
}

fn first_violation(case: &Case) -> Option<(u64, Violation)> {
    // Seeds with which the system as it is keeps every promise.
    let mut seeds = (0..).filter(|seed| Weather::of_seed(*seed) == case.weather).take(SEEDS_PER_BUG);
    seeds.find_map(|seed| {
        let mut world = World::new(seed, case.weather, Some(case.planted), false);
        world.run().err().map(|violation| (seed, violation))
    })
}

#[test]
fn a_seed_repeats_itself() {
    let told = || {
        run(1).map(|world| (world.shared.checker.seen, world.shared.now)).map_err(|violation| violation.text)
    };
    assert_eq!(told(), told());
}

#[test]
fn each_promise_and_each_failure_has_a_planted_bug() {
    let names = [
        "S1", "S2", "S3", "S4", "S5", "S6", "S7", "F15", "F16", "F18", "F19", "F22", "F23", "F24", "F26",
        "F42",
    ];
    for name in names {
        assert!(PLANTED.iter().any(|case| case.of.split(", ").any(|of| of == name)), "{name}");
    }
}
