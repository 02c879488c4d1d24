//! Handlers that keep books on what they do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use portero_client::{
    CancellationToken, Client, ClientConfig, Delivery, Error, Observer, Outcome, SettlementStatus,
    SubscribeOptions, Token,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::gateway::{Gateway, patient};

/// What happened, in the order in which it did.
#[derive(Clone, Default)]
pub(crate) struct Books(Arc<Shared>);

#[derive(Default)]
struct Shared {
    entries: Mutex<Entries>,
    changed: Notify,
}

#[derive(Default)]
pub(crate) struct Entries {
    /// Event ids whose handlers began.
    pub(crate) began: Vec<String>,
    /// Event ids whose handlers returned.
    pub(crate) done: Vec<String>,
    /// Event ids whose handlers were told to stop.
    pub(crate) told: Vec<String>,
    /// Entities with a running handler.
    running: HashMap<String, u32>,
    /// Whether two handlers ever ran for one entity.
    pub(crate) overlapped: bool,
    /// Statuses by receipt.
    pub(crate) settled: Vec<(String, SettlementStatus)>,
    pub(crate) connections: usize,
    /// Deliveries that went on after a reconnect, and those that did not.
    pub(crate) resumed: (usize, usize),
}

impl Books {
    pub(crate) fn read(&self) -> MutexGuard<'_, Entries> {
        self.0.entries.lock().expect("not poisoned")
    }

    fn write(&self, entry: impl FnOnce(&mut Entries)) {
        entry(&mut self.read());
        self.0.changed.notify_waiters();
    }

    /// A handler begins.
    pub(crate) fn begin(&self, delivery: &Delivery) {
        self.write(|entries| {
            entries.began.push(delivery.event_id().to_owned());
            let running = entries.running.entry(delivery.ordering_key().to_owned()).or_default();
            *running += 1;
            entries.overlapped |= *running > 1;
        });
    }

    /// A handler is told to stop.
    pub(crate) fn tell(&self, delivery: &Delivery) {
        self.write(|entries| entries.told.push(delivery.event_id().to_owned()));
    }

    /// A handler returns.
    pub(crate) fn end(&self, delivery: &Delivery) {
        self.write(|entries| {
            entries.done.push(delivery.event_id().to_owned());
            *entries.running.entry(delivery.ordering_key().to_owned()).or_default() -= 1;
        });
    }

    /// Waits until it is so.
    pub(crate) async fn until(&self, what: &str, mut is_so: impl FnMut(&Entries) -> bool) {
        let waiting = async {
            loop {
                let changed = self.0.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if is_so(&self.read()) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(crate::gateway::PATIENCE, waiting).await.is_err() {
            let entries = self.read();
            panic!("not in time: {what}; began {:?}, settled {:?}", entries.began, entries.settled);
        }
    }
}

impl Observer for Books {
    fn connected(&self, _stream_id: &str, _generation: i64, _assigned_lanes: u32) {
        self.write(|entries| entries.connections += 1);
    }

    fn resumed(&self, kept: usize, stopped: usize) {
        self.write(|entries| entries.resumed = (entries.resumed.0 + kept, entries.resumed.1 + stopped));
    }

    fn settled(&self, receipt_id: &str, _outcome: &Outcome, status: SettlementStatus) {
        self.write(|entries| entries.settled.push((receipt_id.to_owned(), status)));
    }
}

/// A running consumer of `billing`.
pub(crate) struct Consumer {
    shutdown: CancellationToken,
    running: JoinHandle<Result<(), Error>>,
}

impl Consumer {
    pub(crate) async fn start<H, F>(gateway: &Gateway, endpoint: &str, books: &Books, handler: H) -> Self
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut config = ClientConfig::new(endpoint);
        config.token = Token::fixed(gateway.consumer_token());
        config.instance_id = Some("pod-1".to_owned());
        let client = Client::connect(config).await.expect("a good configuration");
        let shutdown = CancellationToken::new();
        let options = SubscribeOptions {
            shutdown: shutdown.clone(),
            shutdown_deadline: Duration::from_secs(5),
            observer: Arc::new(books.clone()),
            ..SubscribeOptions::default()
        };
        let running = tokio::spawn(client.subscribe("billing", options).run(handler));
        Self { shutdown, running }
    }

    /// Shuts down in order.
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        patient(self.running).await.expect("no panic").expect("a clean end");
    }
}
