//! Which seeds are run.

use std::ops::Range;

/// So many that all tests here stay well below half a minute on two slow cores.
const SEEDS: u64 = 60;

/// From the environment, or the first ones. `PORTERO_SIM_SEEDS` is a number of them or a range, such as `100..200`.
pub(crate) fn seeds() -> Range<u64> {
    if let Some(seed) = variable("PORTERO_SIM_SEED") {
        let seed = number(&seed);
        return seed..seed + 1;
    }
    let Some(seeds) = variable("PORTERO_SIM_SEEDS") else { return 0..SEEDS };
    match seeds.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&seeds),
    }
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests chooses the seeds")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(value: &str) -> u64 {
    value.parse().expect("a number")
}
