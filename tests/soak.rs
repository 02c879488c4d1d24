//! Three gateways, four consumers that fail a fifth of their events, and a blow to one of them every few seconds: nothing is
//! lost, nothing is out of order, nothing comes again after its durable ack.
//!
//! The short form runs with the other tests. `PORTERO_SOAK_SECONDS` makes it longer, `PORTERO_SOAK_SEED` repeats its choices.

mod chaos;
pub(crate) mod checker;
mod planted;

use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{Behaviour, Cluster, Load};
use chaos::Chaos;
use checker::{Known, violations};

const SECONDS: u64 = 25;
const GATEWAYS: usize = 3;
const CONSUMERS: usize = 4;
const SENDERS: usize = 12;
/// Between two blows.
const BLOWS_EVERY: Duration = Duration::from_secs(3);
/// How long everything may take to come to an end after the last blow.
const PATIENCE: Duration = Duration::from_secs(120);
/// About how many events a long run has at most.
const EVENTS_MAX: u64 = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_reordered_or_repeated_while_gateways_and_consumers_are_killed() {
    let (seconds, seed) = (variable("PORTERO_SOAK_SECONDS", SECONDS), variable("PORTERO_SOAK_SEED", 7));
    println!("soak: {seconds} seconds with the seed {seed}");
    let mut cluster = Cluster::start(GATEWAYS, |shared| {
        shared.defer_deadline = Some(prost_types::Duration { seconds: 5, nanos: 0 });
    })
    .await;
    for _ in 0..CONSUMERS {
        cluster.add_consumer(Behaviour::Unreliable { seed }).await;
    }
    let pause = Duration::from_millis((seconds * 1_000 * SENDERS as u64 / EVENTS_MAX).max(40));
    let load = Load::start(&cluster.provider(), SENDERS, pause);
    let mut chaos = Chaos::new(seed);
    chaos.reign(&mut cluster, Instant::now() + Duration::from_secs(seconds), BLOWS_EVERY).await;
    let calm = Instant::now();
    let accepted = load.finish().await;
    let dead = cluster.all_concluded(&accepted, PATIENCE).await;
    println!("soak: everything came to its end {:?} after the last blow", calm.elapsed());
    cluster.stop_consumers().await;

    let history = cluster.history();
    println!(
        "soak: {} events, {} deliveries, {} dead letters, {} stops",
        accepted.len(),
        history.started().count(),
        dead.len(),
        chaos.pauses.len(),
    );
    let known = Known { pauses: chaos.pauses, links: cluster.links(), accepted, dead };
    let unexcused = Known { pauses: Vec::new(), ..known.clone() };
    println!("soak: {} things are excused by stops", violations(&history, &unexcused).len());
    let found = violations(&history, &known);
    if !found.is_empty() {
        let kept = cluster.site.keep(&cluster.history_files());
        let (count, first) = (found.len(), &found[..found.len().min(5)]);
        panic!("{count} broken promises, such as {first:#?}; the histories are in {kept}; seed {seed}");
    }
    assert!(history.started().count() > known.accepted.len(), "some events came more than once");
}

/// A number that a person who starts a long run may choose.
#[expect(clippy::disallowed_methods, reason = "the length of a run is chosen where it is started")]
fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}
