//! A consumer by the SDK, as a process of its own: takes events until it has acked so many durably, its time is up, or its
//! standard input ends.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use portero_client::{CancellationToken, Observer, Outcome, SettlementStatus, SubscribeOptions};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Window;
use super::order::{Irregular, Order, number_of};
use super::site::client;
use crate::process::Process;
use crate::progress::say;
use crate::serve::until_parent_ends;

/// How often progress is told, and how often it is noted in the result.
const TELL_EVERY: u64 = 5;

/// What to consume.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// The gateway's gRPC endpoint.
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// The access token.
    #[arg(long, value_name = "TOKEN", env = "PORTERO_BENCH_TOKEN", hide_env_values = true)]
    token: String,
    /// The subscription.
    #[arg(long, value_name = "ID")]
    subscription: String,
    /// Stop when so many events are acked durably.
    #[arg(long, value_name = "N")]
    events: u64,
    /// Stop after so many seconds at the latest.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Entities that the events are about.
    #[arg(long, value_name = "N")]
    entities: u64,
    #[command(flatten)]
    window: Window,
}

/// What a consumer did, whichever kind it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Consumed {
    /// Events whose end is on record.
    pub(crate) events: u64,
    /// From before the first connection to the last record.
    pub(crate) seconds: f64,
    /// Events on record at the end of each second.
    pub(crate) by_second: Vec<u64>,
    pub(crate) irregular: Irregular,
    /// Processor time of the consumer's process.
    pub(crate) cpu_seconds: Option<f64>,
}

/// Counts what is on record, and says when it is enough.
pub(super) struct Progress {
    wanted: u64,
    recorded: AtomicU64,
    began: Instant,
    /// Microseconds from the beginning to the latest record.
    latest: AtomicU64,
    enough: CancellationToken,
    /// Nobody waits for the result any more.
    orphaned: CancellationToken,
}

impl Progress {
    pub(super) fn new(wanted: u64) -> Arc<Self> {
        Arc::new(Self {
            wanted,
            recorded: AtomicU64::new(0),
            began: Instant::now(),
            latest: AtomicU64::new(0),
            enough: CancellationToken::new(),
            orphaned: until_parent_ends(),
        })
    }

    /// So many more are on record.
    pub(super) fn record(&self, count: u64) {
        let recorded = self.recorded.fetch_add(count, Ordering::Relaxed) + count;
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.latest.fetch_max(micros, Ordering::Relaxed);
        if recorded >= self.wanted {
            self.enough.cancel();
        }
    }

    pub(super) const fn enough(&self) -> &CancellationToken {
        &self.enough
    }

    /// Tells how far it is until it is enough or the time is up; gives the counts by second.
    pub(super) async fn follow(&self, seconds: Option<u64>) -> Vec<u64> {
        let mut by_second = Vec::new();
        loop {
            let passed = by_second.len() as u64;
            if seconds.is_some_and(|seconds| passed >= seconds) {
                self.enough.cancel();
                return by_second;
            }
            let next = self.began + Duration::from_secs(passed + 1);
            tokio::select! {
                () = self.enough.cancelled() => return by_second,
                () = self.orphaned.cancelled() => self.enough.cancel(),
                () = tokio::time::sleep_until(next) => {}
            }
            let recorded = self.recorded.load(Ordering::Relaxed);
            by_second.push(recorded);
            if (by_second.len() as u64).is_multiple_of(TELL_EVERY) {
                say(&format!("{recorded} of {} events", self.wanted));
            }
        }
    }

    /// The result, told to the parent process.
    pub(super) fn tell(&self, by_second: Vec<u64>, irregular: Irregular) -> anyhow::Result<()> {
        let consumed = Consumed {
            events: self.recorded.load(Ordering::Relaxed),
            seconds: Duration::from_micros(self.latest.load(Ordering::Relaxed)).as_secs_f64(),
            by_second,
            irregular,
            cpu_seconds: Process::read(std::process::id()).map(|process| process.own.as_secs_f64()),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&consumed)?)?;
        out.flush().context("telling the result")
    }
}

struct Recorder(Arc<Progress>);

impl Observer for Recorder {
    fn settled(&self, _receipt_id: &str, _outcome: &Outcome, status: SettlementStatus) {
        if status.is_durable() {
            self.0.record(1);
        }
    }
}

/// Consumes and tells the result.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let order = Arc::new(Order::new(options.entities)?);
    let progress = Progress::new(options.events);
    let client = client(&options.endpoint, &options.token, "bench-consumer").await?;
    let subscribe = SubscribeOptions {
        max_inflight_events: options.window.inflight,
        max_inflight_bytes: 256 << 20,
        concurrency: options.window.concurrency(),
        shutdown: progress.enough().clone(),
        observer: Arc::new(Recorder(Arc::clone(&progress))),
        ..SubscribeOptions::default()
    };
    let noted = Arc::clone(&order);
    let consuming = client.subscribe(&options.subscription, subscribe).run(move |delivery| {
        if let Some(number) = number_of(delivery.event_id()) {
            noted.note(number);
        }
        std::future::ready(Outcome::Ack)
    });
    let (by_second, consumed) = tokio::join!(progress.follow(options.seconds), consuming);
    consumed?;
    progress.tell(by_second, order.irregular())
}
