//! `latency`: from the moment at which an event is sent over HTTP to the beginning of its handler, at a fixed rate; with the
//! consumer at the gateway that accepted it, and with the consumer at another one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use comfy_table::Table;
use hdrhistogram::Histogram;
use portero_client::{Silent, v1};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::gateway::Gateway;
use super::open_loop::{OpenLoop, Schedule, events};
use super::order::number_of;
use super::setup::{Source, subscribe};
use super::site::Site;
use super::watch::{Watch, Watched};
use super::{Place, Quantiles, Window, histogram, print, verdict};
use crate::database::Settings;
use crate::progress::say;

/// The p99 should stay below this, milliseconds.
const P99_AIM_MS: f64 = 25.0;
/// How long the last events may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Events per second.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Measured seconds of each part.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Seconds before that which are not measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=60))]
    warm_up: u32,
    /// Entities that the events are about in turn.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    entities: u64,
    /// Length of each body, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    body_bytes: usize,
    #[command(flatten)]
    window: Window,
}

/// One part.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// Sent to handled.
    handled: Quantiles,
    /// Sent to answered, warm-up included.
    answered: Quantiles,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    cpus: usize,
    settings: Settings,
    rate: u32,
    seconds: u32,
    body_bytes: usize,
    parts: Vec<Part>,
}

/// Latencies of events of one schedule, by the handlers that saw them.
pub(super) struct Latencies {
    schedule: Schedule,
    /// The first event that counts.
    from: u64,
    to: u64,
    seen: Mutex<(Histogram<u64>, u64)>,
}

impl Latencies {
    /// Of events `from` to `to` of a schedule.
    pub(super) fn new(schedule: Schedule, from: u64, to: u64) -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self { schedule, from, to, seen: Mutex::new((histogram()?, 0)) }))
    }

    /// A handler began with an event of the schedule.
    pub(super) fn note(&self, n: u64) {
        if n >= self.to {
            return;
        }
        let micros = self.schedule.micros_since(n);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.1 += 1;
        if n >= self.from {
            seen.0.saturating_record(micros);
        }
    }

    /// Waits until all events were seen.
    pub(super) async fn complete(&self, within: Duration) -> anyhow::Result<Quantiles> {
        let deadline = Instant::now() + within;
        loop {
            {
                let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.1 >= self.to {
                    return Ok(Quantiles::of(&seen.0));
                }
                ensure!(Instant::now() < deadline, "{} of {} events arrived", seen.1, self.to);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let report = Site::with(&options.place, "latency", async |site| measure(&options, site).await).await?;
    print(&report, &options.place)?;
    ensure!(!options.place.check || report.meets_aim(), "the aim is missed");
    Ok(())
}

async fn measure(options: &Options, site: &Site) -> anyhow::Result<Report> {
    let mut edge = Gateway::start(site, "gateway-1").await?;
    let source = Source::create(&mut edge.admin(site).await?, "bench").await?;
    source.is_known_at(edge.edge()).await?;
    let mut parts = vec![part(options, site, &source, "one gateway", 1, &edge, &edge).await?];
    let mut other = Gateway::start(site, "gateway-2").await?;
    parts.push(part(options, site, &source, "consumer at another gateway", 2, &edge, &other).await?);
    other.stop().await?;
    edge.stop().await?;
    Ok(Report {
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        settings: site.settings.clone(),
        rate: options.rate,
        seconds: options.seconds,
        body_bytes: options.body_bytes,
        parts,
    })
}

async fn part(
    options: &Options,
    site: &Site,
    source: &Source,
    name: &'static str,
    number: u32,
    edge: &Gateway,
    stream: &Gateway,
) -> anyhow::Result<Part> {
    let id = format!("latency-{number}");
    subscribe(&mut edge.admin(site).await?, &id, v1::StartAt::Latest).await?;
    let token = site.consumer_token(std::slice::from_ref(&id)).await?;
    let [from, to] = [options.warm_up, options.warm_up + options.seconds]
        .map(|seconds| u64::from(seconds) * u64::from(options.rate));
    // Before there is a schedule the consumer must have its lanes.
    let latencies: Arc<std::sync::OnceLock<Arc<Latencies>>> = Arc::default();
    let noted = Arc::clone(&latencies);
    let watched = Watched {
        endpoint: &stream.grpc_url(),
        token: &token,
        instance: "bench-consumer",
        subscription: &id,
        window: options.window,
        work: Duration::ZERO,
        observer: Arc::new(Silent),
    };
    let watch = Watch::start(watched, move |delivery| {
        if let (Some(latencies), Some(n)) = (noted.get(), number_of(delivery.event_id())) {
            latencies.note(n);
        }
    })
    .await?;
    lanes_are_owned(site, &id).await?;
    let load = OpenLoop {
        address: edge.edge(),
        source: source.clone(),
        events: events(options.body_bytes, number, options.entities)?,
        first: 0,
    };
    let schedule = Schedule::new(options.rate);
    let expected = latencies.get_or_init(|| Latencies::new(schedule, from, to).expect("valid bounds"));
    let sent = load.run(schedule, to).await?;
    let handled = expected.complete(PATIENCE).await?;
    watch.stop().await?;
    say(&format!("{name}: {handled}"));
    Ok(Part { name, handled, answered: Quantiles::of(&sent.answers) })
}

/// Waits until all lanes of a subscription have an owner.
pub(super) async fn lanes_are_owned(site: &Site, subscription: &str) -> anyhow::Result<()> {
    let query = format!(
        "SELECT count(*) FROM lane_owners o JOIN subscriptions s USING (subscription_no)
         WHERE s.subscription_id = '{subscription}' AND o.session_id IS NOT NULL"
    );
    let deadline = Instant::now() + PATIENCE;
    while site.database.number(&query).await? < 16 {
        ensure!(Instant::now() < deadline, "the lanes of {subscription} find no owner");
        sleep(Duration::from_millis(50)).await;
    }
    // The claim is written before its owner has read the journal.
    sleep(Duration::from_millis(200)).await;
    Ok(())
}

impl Report {
    fn meets_aim(&self) -> bool {
        self.parts.iter().all(|part| part.handled.p99_ms < P99_AIM_MS)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        writeln!(
            f,
            "{} CPUs; {} events of {} bytes per second for {} s; from the moment a request is due",
            self.cpus, self.rate, self.body_bytes, self.seconds
        )?;
        let mut table = Table::new();
        table.set_header([
            "",
            "handler p50 ms",
            "p99 ms",
            "p99.9 ms",
            "longest ms",
            "answer p50 ms",
            "p99 ms",
        ]);
        for part in &self.parts {
            let (handled, answered) = (part.handled, part.answered);
            let figures = [
                handled.p50_ms,
                handled.p99_ms,
                handled.p999_ms,
                handled.max_ms,
                answered.p50_ms,
                answered.p99_ms,
            ];
            let figures = figures.iter().map(|figure| format!("{figure:.2}"));
            table.add_row(std::iter::once(part.name.to_owned()).chain(figures));
        }
        write!(f, "{table}\naim (p99 to the handler below {P99_AIM_MS:.0} ms): {}", verdict(self.meets_aim()))
    }
}
