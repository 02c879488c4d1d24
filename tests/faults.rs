//! Failure modes that need real processes, sockets and databases. `docs/failure-modes.md` says what each number means.

mod deferring;
mod ingest;
mod log;
mod ownership;
mod parking;
mod streams;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{Cluster, Gateway, Kind, Provider, Setup, Site, stripe_event};
use crate::soak::checker::{Known, violations};

const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway on Postgres.
async fn one_gateway() -> (Arc<Site>, Gateway, Setup) {
    let site = Site::new(Kind::Postgres);
    let gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    (site, gateway, setup)
}

/// Sends events by turns to so many entities, eight at a time; each must be accepted. Gives their receipts.
async fn send(provider: &Provider, events: std::ops::Range<usize>, entities: usize) -> HashSet<String> {
    use futures::stream::{self, StreamExt as _};
    // An entity's events keep their order when they are sent one after the other.
    let tasks = (0..entities).map(|entity| {
        let events: Vec<usize> = events.clone().filter(|event| event % entities == entity).collect();
        async move {
            let mut receipts = Vec::new();
            for event in events {
                let (id, entity) = (format!("evt_{event}"), format!("entity-{entity}"));
                let answer = provider.send(&stripe_event(&id, &entity, event / entities)).await;
                assert_eq!(answer.field("status"), "accepted", "{answer:?}");
                receipts.push(answer.field("receipt_id"));
            }
            receipts
        }
    });
    stream::iter(tasks).buffer_unordered(8).collect::<Vec<_>>().await.into_iter().flatten().collect()
}

/// Ends the consumers and fails when their histories break a promise.
async fn check(cluster: &mut Cluster, accepted: HashSet<String>, dead: HashSet<String>) {
    cluster.stop_consumers().await;
    let known = Known { accepted, dead, links: cluster.links(), ..Known::default() };
    let found = violations(&cluster.history(), &known);
    assert!(found.is_empty(), "{} broken promises, such as {:#?}", found.len(), &found[..found.len().min(5)]);
}
