//! `drain`: how fast a backlog reaches a consumer, beside a queue of rows in the same Postgres.
//!
//! Both have their bodies in a database of their own on the same server, and take turns. Portero's side: one gateway, one
//! consumer by the SDK, each a process, acks durable; each round is a new subscription from the log's beginning. The
//! queue's side: one worker process that asks the database itself (see `queue`); each round fills the queue anew.

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use comfy_table::Table;
use portero_client::{Admin, v1};
use serde::Serialize;

use super::consumer::Consumed;
use super::gateway::Gateway;
use super::queue::{self, Take, worker};
use super::setup::{Source, subscribe};
use super::site::Site;
use super::{Place, Size, Window, backlog, child, print, verdict};
use crate::database::{Database, Server, Settings};
use crate::figures::{median, per};
use crate::progress::say;

/// Events per second that a drain should reach on two cores.
const RATE_AIM: f64 = 20_000.0;
/// At least this many times the rate of the queue with leases.
const RATIO_AIM: f64 = 4.0;
const TENANT: &str = "bench";

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    size: Size,
    #[command(flatten)]
    window: Window,
    /// Rounds of each side.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// The queues to compare with. None: `--queue ''`.
    #[arg(long, value_name = "TAKE,…", value_delimiter = ',', default_value = "lease,held,one")]
    queue: Vec<String>,
    #[command(flatten)]
    tuning: worker::Tuning,
}

/// One drain.
#[derive(Clone, Debug, Serialize)]
struct Round {
    events_per_second: f64,
    seconds: f64,
    /// Processor time per event, microseconds.
    consumer_cpu_us: Option<f64>,
    gateway_cpu_us: Option<f64>,
    postgres_cpu_us: Option<f64>,
}

/// One side's rounds.
#[derive(Debug, Serialize)]
struct Side {
    name: String,
    rounds: Vec<Round>,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    cpus: usize,
    settings: Settings,
    size: Size,
    window: Window,
    queue_tuning: worker::Tuning,
    sides: Vec<Side>,
    /// Portero's median rate as a multiple of each queue's, by the queue's name.
    ratios: Vec<(String, f64)>,
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let report = Site::with(&options.place, "drain", async |site| measure(&options, site).await).await?;
    print(&report, &options.place)?;
    ensure!(!options.place.check || report.meets_aim(), "the aim is missed");
    Ok(())
}

async fn measure(options: &Options, site: &Site) -> anyhow::Result<Report> {
    let takes = takes(&options.queue)?;
    let gateway = Gateway::start(site, "gateway").await?;
    let mut admin = gateway.admin(site).await?;
    Source::create(&mut admin, TENANT).await?;
    backlog::fill(site, TENANT, options.size).await?;
    let server = Server::new(&options.place.postgres_url)?;
    let database = if takes.is_empty() { None } else { Some(server.create("queue").await?) };
    let outcome = rounds(options, site, &gateway, &mut admin, &takes, database.as_ref()).await;
    if let Some(database) = &database {
        server.drop(database).await?;
    }
    let sides = outcome?;
    let ratios = ratios(&sides);
    Ok(Report {
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        settings: site.settings.clone(),
        size: options.size,
        window: options.window,
        queue_tuning: options.tuning,
        sides,
        ratios,
    })
}

async fn rounds(
    options: &Options,
    site: &Site,
    gateway: &Gateway,
    admin: &mut Admin,
    takes: &[Take],
    queue: Option<&Database>,
) -> anyhow::Result<Vec<Side>> {
    if let Some(database) = queue {
        queue::fill(database, options.size).await?;
        database.execute("VACUUM ANALYZE payloads").await?;
    }
    site.database.execute("VACUUM ANALYZE").await?;
    let mut sides = vec![Side { name: "portero".to_owned(), rounds: Vec::new() }];
    sides.extend(takes.iter().map(|take| Side { name: take.name().to_owned(), rounds: Vec::new() }));
    for number in 1..=options.rounds {
        let round = portero(options, site, gateway, admin, number).await?;
        say(&format!("round {number}, portero: {round}"));
        sides[0].rounds.push(round);
        for (take, side) in takes.iter().zip(sides.iter_mut().skip(1)) {
            let Some(database) = queue else { continue };
            let round = queue_round(options, database, *take).await?;
            say(&format!("round {number}, queue ({}): {round}", take.name()));
            side.rounds.push(round);
        }
    }
    Ok(sides)
}

/// A new subscription, drained through the gateway.
async fn portero(
    options: &Options,
    site: &Site,
    gateway: &Gateway,
    admin: &mut Admin,
    number: u32,
) -> anyhow::Result<Round> {
    let id = format!("drain-{number}");
    subscribe(admin, &id, v1::StartAt::Earliest).await?;
    let token = site.consumer_token(std::slice::from_ref(&id)).await?;
    site.database.settle().await?;
    let before = [gateway.cpu(), site.database.server_cpu().await];
    let consumed: Consumed = child::run(
        &consumer_arguments(gateway, &id, options.size, options.window, None),
        &[("PORTERO_BENCH_TOKEN", &token)],
    )
    .await?;
    let after = [gateway.cpu(), site.database.server_cpu().await];
    Round::new(options.size, &consumed, before, after)
}

/// The command line of a consumer process.
pub(super) fn consumer_arguments(
    gateway: &Gateway,
    subscription: &str,
    size: Size,
    window: Window,
    seconds: Option<u64>,
) -> Vec<String> {
    let mut arguments = vec!["consume".to_owned()];
    for (name, value) in [
        ("--endpoint", gateway.grpc_url()),
        ("--subscription", subscription.to_owned()),
        ("--events", size.events.to_string()),
        ("--entities", size.entities.to_string()),
        ("--inflight", window.inflight.to_string()),
        ("--concurrency", window.concurrency.to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    if let Some(seconds) = seconds {
        arguments.extend(["--seconds".to_owned(), seconds.to_string()]);
    }
    arguments
}

async fn queue_round(options: &Options, database: &Database, take: Take) -> anyhow::Result<Round> {
    queue::enqueue(database).await?;
    let mut arguments = vec!["work-queue".to_owned()];
    for (name, value) in [
        ("--postgres-url", database.url.clone()),
        ("--take", take.name().to_owned()),
        ("--events", options.size.events.to_string()),
        ("--entities", options.size.entities.to_string()),
        ("--inflight", options.window.inflight.to_string()),
        ("--concurrency", options.window.concurrency.to_string()),
        ("--queue-batch", options.tuning.queue_batch.to_string()),
        ("--queue-takers", options.tuning.queue_takers.to_string()),
        ("--queue-singles", options.tuning.queue_singles.to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    let before = [None, database.server_cpu().await];
    let consumed: Consumed = child::run(&arguments, &[]).await?;
    let after = [None, database.server_cpu().await];
    let left = database.count("jobs").await?;
    ensure!(left == 0, "{left} jobs are left in the queue");
    Round::new(options.size, &consumed, before, after)
}

fn takes(names: &[String]) -> anyhow::Result<Vec<Take>> {
    let known = |name: &String| {
        <Take as clap::ValueEnum>::from_str(name, false)
            .map_err(|_| anyhow::anyhow!("--queue takes 'lease', 'held' and 'one', not {name:?}"))
    };
    names.iter().filter(|name| !name.is_empty()).map(known).collect()
}

fn ratios(sides: &[Side]) -> Vec<(String, f64)> {
    let Some((portero, queues)) = sides.split_first() else { return Vec::new() };
    queues.iter().map(|queue| (queue.name.clone(), portero.rate() / queue.rate())).collect()
}

impl Round {
    /// # Errors
    /// When an event was left out, or came twice or out of order: rates of a side that does so cannot be compared.
    fn new(
        size: Size,
        consumed: &Consumed,
        before: [Option<Duration>; 2],
        after: [Option<Duration>; 2],
    ) -> anyhow::Result<Self> {
        ensure!(consumed.events == size.events, "{} events were taken, not {}", consumed.events, size.events);
        ensure!(
            consumed.irregular == super::order::Irregular::default(),
            "events came again or out of order: {:?}",
            consumed.irregular
        );
        let each = |seconds: f64| seconds * 1e6 / per(size.events, 1.0);
        let used = |part: usize| Some(each(after[part]?.saturating_sub(before[part]?).as_secs_f64()));
        Ok(Self {
            events_per_second: per(consumed.events, consumed.seconds),
            seconds: consumed.seconds,
            consumer_cpu_us: consumed.cpu_seconds.map(each),
            gateway_cpu_us: used(0),
            postgres_cpu_us: used(1),
        })
    }
}

impl Side {
    fn rate(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.events_per_second))
    }

    fn cpu(&self, part: fn(&Round) -> Option<f64>) -> String {
        let known: Vec<f64> = self.rounds.iter().filter_map(part).collect();
        if known.is_empty() { String::new() } else { format!("{:.0}", median(known.into_iter())) }
    }
}

impl Report {
    fn meets_aim(&self) -> bool {
        let fast = self.sides.first().is_some_and(|portero| portero.rate() >= RATE_AIM);
        let lease = self.ratios.iter().find(|(name, _)| name == Take::Lease.name());
        fast && lease.is_none_or(|(_, ratio)| *ratio >= RATIO_AIM)
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} events/s, {:.1} s", self.events_per_second, self.seconds)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        writeln!(
            f,
            "{} CPUs; {} events of {} bytes about {} entities; {} unsettled and {} handled at a time; queue: batches of {} by {} \
             connections, or one by one by {}; medians; processor time is per event",
            self.cpus,
            self.size.events,
            self.size.body_bytes,
            self.size.entities,
            self.window.inflight,
            self.window.concurrency,
            self.queue_tuning.queue_batch,
            self.queue_tuning.queue_takers,
            self.queue_tuning.queue_singles,
        )?;
        let mut table = Table::new();
        table.set_header([
            "drained by",
            "rounds",
            "events/s",
            "lowest",
            "highest",
            "consumer µs",
            "gateway µs",
            "Postgres µs",
            "portero / this",
        ]);
        for side in &self.sides {
            let rates = || side.rounds.iter().map(|round| round.events_per_second);
            let ratio = self.ratios.iter().find(|(name, _)| *name == side.name);
            let name = if ratio.is_some() { format!("queue ({})", side.name) } else { side.name.clone() };
            table.add_row([
                name,
                side.rounds.len().to_string(),
                format!("{:.0}", side.rate()),
                format!("{:.0}", rates().fold(f64::INFINITY, f64::min)),
                format!("{:.0}", rates().fold(0.0, f64::max)),
                side.cpu(|round| round.consumer_cpu_us),
                side.cpu(|round| round.gateway_cpu_us),
                side.cpu(|round| round.postgres_cpu_us),
                ratio.map_or_else(String::new, |(_, ratio)| format!("{ratio:.2}")),
            ]);
        }
        write!(
            f,
            "{table}\naim (at least {RATE_AIM:.0} events/s and {RATIO_AIM:.0} times the queue with leases): {}",
            verdict(self.meets_aim())
        )
    }
}
