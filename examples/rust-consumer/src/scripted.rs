//! Test mode: each event's body says what becomes of it, and what happens is printed as JSON lines.
//!
//! `{"then": ["retry:300", "defer", "ack"]}` retries the first delivery after 300 ms, defers the second one and acks all
//! later ones. `told` waits for a line on standard input, such as `evt_1 ack`: the event's id and the outcome. Codes follow
//! a colon: `reject:NO_ORDER`.

use std::collections::HashMap;
use std::future::Future;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portero_client::{Delivery, Disconnect, Observer, Outcome, SettlementStatus};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The handler. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Script {
    /// By receipt: how often its event came.
    deliveries: Arc<Mutex<HashMap<String, usize>>>,
    /// Orders from standard input that nobody has taken, by event id.
    orders: watch::Sender<HashMap<String, String>>,
}

impl Script {
    /// One that listens to standard input.
    pub(crate) fn new() -> Self {
        let script = Self { deliveries: Arc::default(), orders: watch::Sender::default() };
        let orders = script.orders.clone();
        // A thread that nobody waits for: a read from standard input cannot be called off.
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if let Some((event_id, step)) = line.split_once(' ') {
                    orders.send_modify(|orders| {
                        orders.insert(event_id.to_owned(), step.to_owned());
                    });
                }
            }
        });
        script
    }

    /// Answers one event.
    pub(crate) fn handle(&self, delivery: Delivery) -> impl Future<Output = Outcome> + Send + use<> {
        let script = self.clone();
        async move {
            let mut step = script.step(&delivery);
            if step == "told" {
                step = script.order(delivery.event_id()).await;
            }
            outcome(&step)
        }
    }

    fn step(&self, delivery: &Delivery) -> String {
        let body: Value = serde_json::from_slice(delivery.body()).unwrap_or_default();
        let steps: Vec<&str> =
            body["then"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut deliveries = self.deliveries.lock().expect("not poisoned");
        let count = deliveries.entry(delivery.receipt_id().to_owned()).or_default();
        *count += 1;
        steps.get(*count - 1).or(steps.last()).map_or_else(|| "ack".to_owned(), |step| (*step).to_owned())
    }

    async fn order(&self, event_id: &str) -> String {
        let mut orders = self.orders.subscribe();
        loop {
            let mut taken = None;
            self.orders.send_if_modified(|orders| {
                taken = orders.remove(event_id);
                false
            });
            match taken {
                Some(step) => return step,
                None => orders.changed().await.expect("the sender is here"),
            }
        }
    }
}

fn outcome(step: &str) -> Outcome {
    let (word, detail) = step.split_once(':').unwrap_or((step, ""));
    let code = if detail.is_empty() { "SCRIPTED" } else { detail };
    match (word, detail.parse().map(Duration::from_millis)) {
        ("ack", _) => Outcome::Ack,
        ("release", _) => Outcome::Release,
        ("retry", Ok(after)) => Outcome::retry_after(after, "SCRIPTED", "as told"),
        ("retry", Err(_)) => Outcome::retry("SCRIPTED", "as told"),
        ("defer", _) => Outcome::defer(code, "as told"),
        ("reject", _) => Outcome::reject(code, "as told"),
        _ => Outcome::reject("NO_SUCH_STEP", "the body asks for what this consumer cannot do"),
    }
}

/// Prints a line for each thing that happens.
pub(crate) struct Lines {
    began: Instant,
    /// Event ids by receipt.
    events: Mutex<HashMap<String, String>>,
}

impl Lines {
    /// Times count from now.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), events: Mutex::default() }
    }

    fn event(&self, receipt_id: &str) -> String {
        self.events.lock().expect("not poisoned").get(receipt_id).cloned().unwrap_or_default()
    }

    fn say(&self, mut line: Value) {
        line["ms"] = json!(self.began.elapsed().as_millis());
        let mut out = std::io::stdout().lock();
        // Whoever started the test mode and does not listen needs no lines.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

impl Observer for Lines {
    fn connected(&self, _stream_id: &str, generation: i64, _assigned_lanes: u32) {
        self.say(json!({ "what": "connected", "generation": generation }));
    }

    fn resumed(&self, kept: usize, stopped: usize) {
        self.say(json!({ "what": "resumed", "kept": kept, "stopped": stopped }));
    }

    fn disconnected(&self, why: &Disconnect<'_>, next_attempt_in: Option<Duration>) {
        let why = format!("{why:?}");
        self.say(json!({ "what": "disconnected", "why": why, "final": next_attempt_in.is_none() }));
    }

    fn delivered(&self, delivery: &Delivery) {
        let (receipt_id, event_id) = (delivery.receipt_id().to_owned(), delivery.event_id().to_owned());
        self.events.lock().expect("not poisoned").insert(receipt_id, event_id);
        self.say(json!({
            "what": "delivered",
            "event_id": delivery.event_id(),
            "ordering_key": delivery.ordering_key(),
            "attempt": delivery.attempt(),
            "place": (delivery.generation(), delivery.shard(), delivery.position()),
        }));
    }

    fn handled(&self, delivery: &Delivery, outcome: &Outcome, _took: Duration) {
        self.say(json!({ "what": "handled", "event_id": delivery.event_id(), "outcome": outcome.name() }));
    }

    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        let status = status.name().to_uppercase();
        let event_id = self.event(receipt_id);
        self.say(
            json!({ "what": "settled", "event_id": event_id, "outcome": outcome.name(), "status": status }),
        );
    }

    fn lost(&self, receipt_id: &str, outcome: &Outcome) {
        self.say(json!({ "what": "lost", "event_id": self.event(receipt_id), "outcome": outcome.name() }));
    }

    fn revoked(&self, count: usize, reason: &str) {
        self.say(json!({ "what": "revoked", "count": count, "reason": reason }));
    }

    fn draining(&self, reason: &str) {
        self.say(json!({ "what": "draining", "reason": reason }));
    }
}
