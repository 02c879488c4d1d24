//! Signed events over HTTP at a fixed rate, whatever becomes of those before: what waits because the edge is slow counts as
//! slow. Like a provider, it sends an event again until it is accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use portero_types::Clock as _;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::histogram;
use super::setup::Source;
use crate::clock::SystemClock;
use crate::connection::Connection;
use crate::stripe::Events;

/// Connections: more than are ever busy unless the edge stands still.
const CONNECTIONS: usize = 64;
/// Pause before an event is sent again.
const AGAIN: Duration = Duration::from_millis(20);
/// How long one event may be tried.
const PATIENCE: Duration = Duration::from_secs(60);

/// When each event is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    began: Instant,
    period: Duration,
}

impl Schedule {
    /// Events 0, 1, … at so many per second, the first one in a moment.
    pub(super) fn new(rate: u32) -> Self {
        Self {
            began: Instant::now() + Duration::from_millis(50),
            period: Duration::from_secs(1) / rate.max(1),
        }
    }

    fn due(&self, n: u64) -> Instant {
        self.began + self.period.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// Microseconds since an event was due.
    pub(super) fn micros_since(&self, n: u64) -> u64 {
        u64::try_from(self.due(n).elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Where the load goes, and what it consists of.
#[derive(Clone)]
pub(super) struct OpenLoop {
    pub(super) address: SocketAddr,
    pub(super) source: Source,
    pub(super) events: Events,
    /// The number of the first event.
    pub(super) first: u64,
}

/// What was sent.
pub(super) struct Sent {
    /// From the moment an event was due to its answer, microseconds.
    pub(super) answers: Histogram<u64>,
    /// Requests that were sent again.
    pub(super) again: u64,
}

impl OpenLoop {
    /// Sends `count` events and waits for their answers.
    pub(super) async fn run(self, schedule: Schedule, count: u64) -> anyhow::Result<Sent> {
        let (sender, due) = mpsc::unbounded_channel();
        // A thread that sleeps to the microsecond: the runtime's timers have steps of a millisecond.
        let ticking = std::thread::spawn(move || {
            for n in 0..count {
                std::thread::sleep(schedule.due(n).saturating_duration_since(Instant::now()));
                if sender.send(n).is_err() {
                    return;
                }
            }
        });
        let (due, load) = (Arc::new(Mutex::new(due)), Arc::new(self));
        let mut workers = JoinSet::new();
        for _ in 0..CONNECTIONS {
            workers.spawn(Arc::clone(&load).work(Arc::clone(&due), schedule));
        }
        let mut total = Sent { answers: histogram()?, again: 0 };
        while let Some(part) = workers.join_next().await {
            let part = part??;
            total.answers.add(&part.answers)?;
            total.again += part.again;
        }
        ticking.join().map_err(|_| anyhow::anyhow!("the load's clock panicked"))?;
        ensure!(total.answers.len() == count, "{} of {count} events were accepted", total.answers.len());
        Ok(total)
    }

    async fn work(
        self: Arc<Self>,
        due: Arc<Mutex<mpsc::UnboundedReceiver<u64>>>,
        schedule: Schedule,
    ) -> anyhow::Result<Sent> {
        let mut sent = Sent { answers: histogram()?, again: 0 };
        let mut connection = None;
        let mut request = Vec::new();
        loop {
            let Some(n) = due.lock().await.recv().await else { return Ok(sent) };
            let deadline = Instant::now() + PATIENCE;
            loop {
                self.write(n, &mut request);
                if self.send(&mut connection, &request).await == Some(200) {
                    break;
                }
                ensure!(Instant::now() < deadline, "an event was not accepted for {PATIENCE:?}");
                sent.again += 1;
                sleep(AGAIN).await;
            }
            sent.answers.saturating_record(schedule.micros_since(n));
        }
    }

    /// The status; `None` when no answer came.
    async fn send(&self, connection: &mut Option<Connection>, request: &[u8]) -> Option<u16> {
        if connection.is_none() {
            *connection = Connection::open(self.address).await.ok();
        }
        let answer = connection.as_mut()?.exchange(request).await;
        match answer {
            Ok(status) => Some(status),
            Err(_) => {
                *connection = None;
                None
            }
        }
    }

    fn write(&self, n: u64, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(self.events.bytes());
        self.events.write(self.first + n, &mut body);
        let time = SystemClock.now().as_secs();
        let signature = hex::encode(self.source.key.sign(time, &body));
        out.clear();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nuser-agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n\
             content-type: application/json; charset=utf-8\r\ncontent-length: {}\r\n\
             stripe-signature: t={time},v1={signature}\r\n\r\n",
            self.source.path,
            self.address,
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&body);
    }
}

/// Bodies of a load whose numbers begin anew.
pub(super) fn events(bytes: usize, batch: u32, entities: u64) -> anyhow::Result<Events> {
    Events::new(bytes, batch, entities).context("making the load's events")
}
