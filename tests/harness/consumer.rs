//! A consumer that keeps books: what it handled, what was durably settled, and whether a promise was broken.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use portero_client::{
    CancellationToken, Delivery, Disconnect, Error, Observer, Outcome, SettlementStatus, SubscribeOptions,
};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Client, Gateway, Proxy, Site, eventually};

/// One delivery as the handler saw it.
#[derive(Clone, Debug)]
pub(crate) struct Handled {
    pub(crate) receipt_id: String,
    pub(crate) event_id: String,
    pub(crate) ordering_key: String,
    pub(crate) attempt: u32,
    /// Generation, shard and position.
    pub(crate) place: (i64, u32, u64),
    /// Where the provider said that the event stands among its entity's.
    pub(crate) sequence: Option<u64>,
    pub(crate) body: bytes::Bytes,
}

/// The books.
#[derive(Debug, Default)]
struct Books {
    handled: Vec<Handled>,
    /// Receipts whose ack is on record.
    acked: HashMap<String, Ack>,
    /// Deliveries that came after their event's ack was on record.
    came_again: Vec<String>,
    connections: usize,
    disconnections: Vec<String>,
}

/// An ack on record.
#[derive(Clone, Copy, Debug)]
struct Ack {
    status: SettlementStatus,
    at: Instant,
    /// The status said that another delivery had begun, and that one has not arrived yet.
    owes_one: bool,
}

/// A running consumer of one subscription.
pub(crate) struct Consumer {
    books: Arc<Mutex<Books>>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

struct Bookkeeper(Arc<Mutex<Books>>);

impl Bookkeeper {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().expect("not poisoned")
    }
}

impl Observer for Bookkeeper {
    fn connected(&self, _stream_id: &str, _generation: i64, _assigned_lanes: u32) {
        self.books().connections += 1;
    }

    fn disconnected(&self, why: &Disconnect<'_>, _next_attempt_in: Option<Duration>) {
        self.books().disconnections.push(format!("{why:?}"));
    }

    fn delivered(&self, delivery: &Delivery) {
        let mut books = self.books();
        let Some(ack) = books.acked.get_mut(delivery.receipt_id()) else { return };
        if std::mem::take(&mut ack.owes_one) {
            return;
        }
        let (status, since) = (ack.status, ack.at.elapsed());
        books.came_again.push(format!("{since:?} after {status:?}: {delivery:?}"));
    }

    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        if *outcome == Outcome::Ack && status.is_durable() {
            let owes_one = status == SettlementStatus::DurableLate;
            let ack = Ack { status, at: Instant::now(), owes_one };
            self.books().acked.entry(receipt_id.to_owned()).or_insert(ack);
        }
    }
}

impl Consumer {
    /// Acks everything from `billing`.
    pub(crate) async fn start(gateway: &Gateway) -> Self {
        Self::with(gateway, "billing", |_| async { Outcome::Ack }).await
    }

    /// Answers each delivery of a subscription by `handler`.
    pub(crate) async fn with<H, F>(gateway: &Gateway, subscription: &str, handler: H) -> Self
    where
        H: Fn(Handled) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self::of(gateway.client(&gateway.site.consumer_token(subscription)).await, subscription, handler)
    }

    /// Acks everything from a subscription, by way of a proxy.
    pub(crate) async fn through(proxy: &Proxy, site: &Site, subscription: &str) -> Self {
        let client = Client::connect(proxy.url(), &site.consumer_token(subscription)).await;
        Self::of(client, subscription, |_| async { Outcome::Ack })
    }

    /// Answers each delivery of a subscription by `handler`.
    pub(crate) fn of<H, F>(client: Client, subscription: &str, handler: H) -> Self
    where
        H: Fn(Handled) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let (books, stop) = (Arc::<Mutex<Books>>::default(), CancellationToken::new());
        let options = SubscribeOptions {
            max_inflight_events: 1_000,
            concurrency: 256,
            shutdown: stop.clone(),
            observer: Arc::new(Bookkeeper(Arc::clone(&books))),
            ..SubscribeOptions::default()
        };
        let recorder = Arc::clone(&books);
        let run = client.subscribe(subscription, options).run(move |delivery| {
            let handled = Handled::new(&delivery);
            recorder.lock().expect("not poisoned").handled.push(handled.clone());
            handler(handled)
        });
        Self { books, stop, task: tokio::spawn(run) }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("not poisoned")
    }

    /// Everything handled so far, in order.
    pub(crate) fn handled(&self) -> Vec<Handled> {
        self.books().handled.clone()
    }

    /// How many events' acks are on record.
    pub(crate) fn acked(&self) -> usize {
        self.books().acked.len()
    }

    /// How often a stream was opened.
    pub(crate) fn connections(&self) -> usize {
        self.books().connections
    }

    /// Why its streams ended, or could not be opened.
    pub(crate) fn disconnections(&self) -> Vec<String> {
        self.books().disconnections.clone()
    }

    /// Waits until a stream is open.
    pub(crate) async fn is_connected(&self) {
        eventually("the consumer connects", Duration::from_secs(20), async || {
            (self.connections() > 0).then_some(())
        })
        .await;
    }

    /// Waits until so many events' acks are on record.
    pub(crate) async fn has_acked(&self, count: usize, within: Duration) {
        eventually(&format!("{count} events are acked"), within, async || {
            assert!(!self.task.is_finished(), "the consumer ended: {:?}", self.books().disconnections);
            (self.acked() >= count).then_some(())
        })
        .await;
    }

    /// The different events that were handled.
    pub(crate) fn receipts(&self) -> HashSet<String> {
        self.books().handled.iter().map(|handled| handled.receipt_id.clone()).collect()
    }

    /// Fails when a promise was broken: as [`Self::check_order`] says, or one of an entity's events was left out.
    pub(crate) fn check_promises(&self) {
        self.check_order();
        let books = self.books();
        let mut sequences: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for handled in &books.handled {
            if let Some(sequence) = handled.sequence {
                let seen = sequences.entry(&handled.ordering_key).or_default();
                if seen.last() != Some(&sequence) {
                    seen.push(sequence);
                }
            }
        }
        for (entity, seen) in sequences {
            let whole = seen.iter().zip(0..).all(|(seen, expected)| *seen == expected);
            assert!(whole, "the events of {entity} came as {seen:?}");
        }
    }

    /// Fails when an event came after its ack was on record, or an entity's events were handled out of order. That this
    /// consumer got all of them is not asked.
    pub(crate) fn check_order(&self) {
        let books = self.books();
        let again = &books.came_again;
        assert!(
            again.is_empty(),
            "{} came again after a durable ack, such as {:?}",
            again.len(),
            again.first()
        );
        let mut last: HashMap<&str, &Handled> = HashMap::new();
        for handled in &books.handled {
            if let Some(previous) = last.insert(&handled.ordering_key, handled) {
                assert!(previous.place <= handled.place, "out of order: {previous:?}, then {handled:?}");
            }
        }
    }

    /// Shuts down gently.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(20), self.task).await;
        ended.expect("the consumer stops in time").expect("no panic").expect("no error");
    }
}

impl Handled {
    fn new(delivery: &Delivery) -> Self {
        let body: Value = serde_json::from_slice(delivery.body()).unwrap_or_default();
        Self {
            receipt_id: delivery.receipt_id().to_owned(),
            event_id: delivery.event_id().to_owned(),
            ordering_key: delivery.ordering_key().to_owned(),
            attempt: delivery.attempt(),
            place: (delivery.generation(), delivery.shard(), delivery.position()),
            sequence: body["data"]["object"]["sequence"].as_u64(),
            body: delivery.body().clone(),
        }
    }
}
