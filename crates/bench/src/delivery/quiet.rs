//! `quiet`: how long a quiet tenant's event waits for its handler while another tenant has a backlog in the same subscription,
//! beside the same without a backlog.
//!
//! The quiet tenant's events come over HTTP at a fixed rate; a backlog that ends before they do fails the run, so that all
//! that counts was measured while there was one. Handlers take a fixed time and the consumer's window is as large as it has
//! handlers: what waits, waits in the gateway.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use comfy_table::Table;
use portero_client::{Silent, v1};
use serde::Serialize;
use tokio::time::Instant;

use super::gateway::Gateway;
use super::latency::{Latencies, lanes_are_owned};
use super::open_loop::{OpenLoop, Schedule, events};
use super::order::number_of;
use super::setup::{Source, subscribe};
use super::site::Site;
use super::watch::{Watch, Watched};
use super::{Place, Quantiles, Size, Window, backlog, print, verdict};
use crate::database::Settings;
use crate::progress::say;

/// At most this many times the p99 without a backlog.
const RATIO_AIM: f64 = 3.0;
const NOISY: &str = "noisy";
const QUIET: &str = "quiet";
/// How long what is left may take to arrive after the load.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    size: Size,
    /// Events per second of the quiet tenant.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Entities of the quiet tenant.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    quiet_entities: u64,
    /// Seconds of each part; with a backlog no longer than it lasts.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Seconds before that which are not measured: a new subscription first finds out who is noisy.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=60))]
    warm_up: u32,
    /// How long a handler takes, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    work_ms: u64,
    /// Handlers at a time, and as many unsettled events.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
}

/// One part.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// Sent to handled, of the quiet tenant.
    handled: Quantiles,
    /// The noisy tenant's events that were handled meanwhile, per second.
    noisy_per_second: f64,
    /// Its events that were still there at the end.
    noisy_left: u64,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    cpus: usize,
    settings: Settings,
    size: Size,
    rate: u32,
    work_ms: u64,
    concurrency: u32,
    without: Part,
    with: Part,
    /// The p99 with the backlog as a multiple of the one without.
    ratio: f64,
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let report = Site::with(&options.place, "quiet", async |site| measure(&options, site).await).await?;
    print(&report, &options.place)?;
    ensure!(!options.place.check || report.meets_aim(), "the aim is missed");
    Ok(())
}

async fn measure(options: &Options, site: &Site) -> anyhow::Result<Report> {
    let mut gateway = Gateway::start(site, "gateway").await?;
    let mut admin = gateway.admin(site).await?;
    Source::create(&mut admin, NOISY).await?;
    let quiet = Source::create(&mut admin, QUIET).await?;
    quiet.is_known_at(gateway.edge()).await?;
    subscribe(&mut admin, "without", v1::StartAt::Latest).await?;
    let without = part(options, site, &gateway, &quiet, ("without", 1), 0).await?;
    backlog::fill(site, NOISY, options.size).await?;
    site.database.execute("VACUUM ANALYZE").await?;
    subscribe(&mut admin, "with", v1::StartAt::Earliest).await?;
    let with = part(options, site, &gateway, &quiet, ("with", 2), options.size.events).await?;
    gateway.stop().await?;
    ensure!(
        with.noisy_left > 0,
        "the backlog ended before the measurement: choose more --events or less --seconds"
    );
    Ok(Report {
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        settings: site.settings.clone(),
        size: options.size,
        rate: options.rate,
        work_ms: options.work_ms,
        concurrency: options.concurrency,
        ratio: with.handled.p99_ms / without.handled.p99_ms,
        without,
        with,
    })
}

async fn part(
    options: &Options,
    site: &Site,
    gateway: &Gateway,
    source: &Source,
    (id, batch): (&'static str, u32),
    noisy: u64,
) -> anyhow::Result<Part> {
    let token = site.consumer_token(&[id.to_owned()]).await?;
    let [from, count] = [options.warm_up, options.warm_up + options.seconds]
        .map(|seconds| u64::from(options.rate) * u64::from(seconds));
    let latencies: Arc<std::sync::OnceLock<Arc<Latencies>>> = Arc::default();
    let others = Arc::new(AtomicU64::new(0));
    let (noted, counted) = (Arc::clone(&latencies), Arc::clone(&others));
    let mine = format!("evt_{batch:08x}");
    let watched = Watched {
        endpoint: &gateway.grpc_url(),
        token: &token,
        instance: "bench-consumer",
        subscription: id,
        window: Window { inflight: options.concurrency, concurrency: options.concurrency },
        work: Duration::from_millis(options.work_ms),
        observer: Arc::new(Silent),
    };
    let watch = Watch::start(watched, move |delivery| {
        if delivery.tenant() == NOISY {
            counted.fetch_add(1, Ordering::Relaxed);
        } else if delivery.event_id().contains(&mine)
            && let (Some(latencies), Some(n)) = (noted.get(), number_of(delivery.event_id()))
        {
            latencies.note(n);
        }
    })
    .await?;
    lanes_are_owned(site, id).await?;
    let load = OpenLoop {
        address: gateway.edge(),
        source: source.clone(),
        events: events(options.size.body_bytes, batch, options.quiet_entities)?,
        first: 0,
    };
    let schedule = Schedule::new(options.rate);
    let expected = latencies.get_or_init(|| Latencies::new(schedule, from, count).expect("valid bounds"));
    let (began, before) = (Instant::now(), others.load(Ordering::Relaxed));
    load.run(schedule, count).await?;
    let handled = others.load(Ordering::Relaxed);
    let noisy_per_second = crate::figures::per(handled - before, began.elapsed().as_secs_f64());
    let quantiles = expected.complete(PATIENCE).await?;
    watch.stop().await?;
    say(&format!("{id} a backlog: {quantiles}"));
    Ok(Part { name: id, handled: quantiles, noisy_per_second, noisy_left: noisy.saturating_sub(handled) })
}

impl Report {
    fn meets_aim(&self) -> bool {
        self.ratio <= RATIO_AIM
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        writeln!(
            f,
            "{} CPUs; {} quiet events per second; handlers of {} ms, {} at a time; the noisy tenant's backlog: {} events of {} \
             bytes about {} entities",
            self.cpus,
            self.rate,
            self.work_ms,
            self.concurrency,
            self.size.events,
            self.size.body_bytes,
            self.size.entities
        )?;
        let mut table = Table::new();
        table.set_header([
            "backlog",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "longest ms",
            "noisy events/s",
            "left at the end",
        ]);
        for part in [&self.without, &self.with] {
            let handled = part.handled;
            table.add_row([
                part.name.to_owned(),
                format!("{:.2}", handled.p50_ms),
                format!("{:.2}", handled.p99_ms),
                format!("{:.2}", handled.p999_ms),
                format!("{:.2}", handled.max_ms),
                format!("{:.0}", part.noisy_per_second),
                part.noisy_left.to_string(),
            ]);
        }
        write!(
            f,
            "{table}\n{:.2} times the p99; aim (at most {RATIO_AIM:.0}): {}",
            self.ratio,
            verdict(self.meets_aim())
        )
    }
}
