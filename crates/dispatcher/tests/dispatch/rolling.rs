//! Three gateways under load that restart one after the other, and consumers that reconnect as they are asked to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portero_dispatcher::{Delivery, EndReason, Ending, Frame, Outcome, Status, StreamHandle};
use portero_store::testing::fixture::NOW;
use tokio::time::Instant;

use crate::support::{PATIENCE, Place, Run, accept, settle, settle_for_good};

const ENTITIES: usize = 20;

/// What all consumers saw.
#[derive(Default)]
struct Seen {
    /// By entity: when its last event came, and its position.
    last: HashMap<String, (Instant, u64)>,
    longest: Duration,
    durable: HashMap<String, usize>,
}

impl Seen {
    fn came(&mut self, delivery: &Delivery) {
        assert_eq!(delivery.attempt, 1, "{} was offered again", delivery.event.event_id);
        let (now, position) = (Instant::now(), delivery.position.n);
        let entity = delivery.event.ordering_key.clone();
        if let Some((then, before)) = self.last.insert(entity.clone(), (now, position)) {
            assert!(position > before, "{entity} went back from {before} to {position}");
            self.longest = self.longest.max(now.duration_since(then));
        }
    }
}

type Gateways = Arc<Mutex<Vec<Option<Arc<Run>>>>>;

/// Restarts each of three gateways while events of all entities keep coming; the longest pause of an entity.
pub async fn restart(place: &Place) -> Duration {
    let mut runs = Vec::new();
    for number in 0..3 {
        runs.push(Some(Arc::new(Run::start_as(place, &format!("gateway-{number}")).await)));
    }
    let gateways: Gateways = Arc::new(Mutex::new(runs));
    let (seen, stop, accepted) = (
        Arc::new(Mutex::new(Seen::default())),
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let consumers: Vec<_> = (0..3)
        .map(|number| {
            tokio::spawn(consume(number, Arc::clone(&gateways), Arc::clone(&seen), Arc::clone(&stop)))
        })
        .collect();
    let producer = tokio::spawn(produce(place.open().await, Arc::clone(&accepted), Arc::clone(&stop)));
    let acked = || seen.lock().expect("sound").durable.len();
    wait_for_progress(acked, 200).await;
    for number in 0..3 {
        let old = gateways.lock().expect("sound")[number].take().expect("it runs");
        old.dispatcher.drain(NOW.plus(Duration::from_secs(10))).await;
        old.dispatcher.stop(PATIENCE).await;
        let new = Run::start_as(place, &format!("gateway-{number}")).await;
        gateways.lock().expect("sound")[number] = Some(Arc::new(new));
        wait_for_progress(acked, 200).await;
    }
    stop.store(true, Ordering::SeqCst);
    producer.await.expect("produced");
    let total = accepted.load(Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while acked() < total {
        assert!(Instant::now() < deadline, "{} of {total} events were acked", acked());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for consumer in consumers {
        consumer.abort();
    }
    let seen = seen.lock().expect("sound");
    assert!(seen.durable.values().all(|times| *times == 1));
    seen.longest
}

async fn wait_for_progress(acked: impl Fn() -> usize, more: usize) {
    let (before, deadline) = (acked(), Instant::now() + PATIENCE);
    while acked() < before + more {
        assert!(Instant::now() < deadline, "only {} events went through", acked() - before);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn produce(store: portero_store::DynStore, accepted: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        for entity in 0..ENTITIES {
            accept(&store, &format!("e{entity}"), &[&format!("e{entity}-{round}")]).await;
            accepted.fetch_add(1, Ordering::SeqCst);
        }
        round += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Goes to its own gateway, or to the next one that takes it.
async fn consume(number: usize, gateways: Gateways, seen: Arc<Mutex<Seen>>, stop: Arc<AtomicBool>) {
    let mut attempt = 0;
    loop {
        let gateway = gateways.lock().expect("sound")[(number + attempt) % 3].clone();
        attempt += 1;
        let Some(run) = gateway else { continue };
        let Ok(mut stream) = run.attach_with(run.spec(&format!("consumer-{number}"))).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        attempt = 0;
        let _ = serve(&run, &mut stream, &seen).await;
        stream.end(Ending::Graceful).await;
        if stop.load(Ordering::SeqCst) && gateways.lock().expect("sound").iter().all(Option::is_none) {
            return;
        }
    }
}

/// Acks what comes until the stream ends or asks to leave.
async fn serve(run: &Run, stream: &mut StreamHandle, seen: &Mutex<Seen>) -> Result<(), EndReason> {
    loop {
        match stream.next().await? {
            Frame::Deliver(deliveries) => {
                for delivery in deliveries {
                    seen.lock().expect("sound").came(&delivery);
                    let mut status = settle(stream, &delivery, Outcome::Ack).await;
                    if status == Status::TryAgain {
                        status = settle_for_good(run, &delivery, Outcome::Ack).await;
                    }
                    assert_eq!(status, Status::Durable, "{}", delivery.event.event_id);
                    *seen
                        .lock()
                        .expect("sound")
                        .durable
                        .entry(delivery.event.event_id.clone())
                        .or_default() += 1;
                }
            }
            Frame::Revoke { tokens } => assert!(tokens.is_empty(), "nothing takes long here"),
            Frame::Drain { .. } => return Ok(()),
        }
    }
}
