//! Which seeds are run.

/// So many that all tests here stay well below half a minute on two slow cores.
const SEEDS: u64 = 60;

/// From the environment, or the first ones.
pub(crate) fn seeds() -> Vec<u64> {
    if let Some(seed) = number("PORTERO_SIM_SEED") {
        return vec![seed];
    }
    (0..number("PORTERO_SIM_SEEDS").unwrap_or(SEEDS)).collect()
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests chooses the seeds")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}
