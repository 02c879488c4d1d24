//! `accept`: durable accepts per second and their latency, beside a plain receiver on the same machine and Postgres.
//!
//! Both receivers get a database of their own, and rounds alternate: the plain one, Portero, the plain one … Each round
//! starts its receiver as a process of its own, drives it from this process with a closed loop over keep-alive
//! connections, discards the warm-up, stops it, and counts the rows behind the answers.

mod child;
pub(crate) mod hints;
mod load;
mod report;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;

use self::child::Child;
use self::load::Load;
use self::report::{Report, Round};
use self::requests::Requests;
use crate::database::{Database, Server};
use crate::process::Process;
use crate::progress::say;
use crate::serve::Tuning;
use crate::stripe::{Events, Key};

/// At least this many times the baseline's rate.
const RATIO_AIM: f64 = 3.0;

/// What to measure, and for how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// A Postgres on which databases may be created and dropped. Its own data is not touched.
    #[arg(long, value_name = "URL", env = "PORTERO_TEST_POSTGRES_URL")]
    pub(crate) postgres_url: String,
    /// Rounds of each receiver.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Measured seconds of each round.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=240))]
    pub(crate) seconds: u64,
    /// Seconds before that which are not measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(0..=30))]
    pub(crate) warm_up: u64,
    /// Keep-alive connections, each with one request at a time.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) connections: u32,
    /// Length of each body, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    pub(crate) body_bytes: usize,
    /// How many charges the events are about in turn: what Portero orders by.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) entities: u64,
    /// Threads that drive the load.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) load_threads: u32,
    /// Connections of the plain receiver's pool.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) baseline_connections: u32,
    #[command(flatten)]
    pub(crate) tuning: Tuning,
    /// Measure one receiver only.
    #[arg(long, value_enum)]
    pub(crate) only: Option<Side>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail unless Portero reaches 3 times the baseline's rate with a lower p99.
    #[arg(long, conflicts_with = "only")]
    pub(crate) check: bool,
}

/// One of the two receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    /// The plain axum + sqlx receiver.
    Baseline,
    /// Portero's edge.
    Portero,
}

impl Side {
    /// Its subcommand.
    const fn command(self) -> &'static str {
        match self {
            Self::Baseline => "serve-baseline",
            Self::Portero => "serve-portero",
        }
    }

    /// Its tables with one row per accepted event.
    const fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Baseline => &["receipts", "payloads"],
            Self::Portero => &["receipts", "events", "log"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Portero => "portero",
        }
    }
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let server = Server::new(&options.postgres_url)?;
    let sides: &[Side] = match &options.only {
        Some(side) => std::slice::from_ref(side),
        None => &[Side::Baseline, Side::Portero],
    };
    let mut databases = Vec::new();
    let mut outcome = create(&server, sides, &mut databases).await;
    let mut report = None;
    if outcome.is_ok() {
        match measure(&options, &databases).await {
            Ok(measured) => report = Some(measured),
            Err(error) => outcome = Err(error),
        }
    }
    for (_, database) in &databases {
        if let Err(error) = server.drop(database).await {
            say(&format!("the database {} is still there: {error:#}", database.name));
        }
    }
    outcome?;
    let report = report.context("nothing was measured")?;
    report.print(options.json)?;
    ensure!(!options.check || report.meets_aim(), "the aim is missed");
    Ok(())
}

async fn create(
    server: &Server,
    sides: &[Side],
    databases: &mut Vec<(Side, Database)>,
) -> anyhow::Result<()> {
    for side in sides {
        databases.push((*side, server.create(side.name()).await?));
    }
    Ok(())
}

async fn measure(options: &Options, databases: &[(Side, Database)]) -> anyhow::Result<Report> {
    let mut report = Report::new(options);
    for (side, database) in databases {
        let settings = database.settings().await?;
        settings.ensure_durable()?;
        say(&format!("{}: {settings}", side.name()));
        report.settings = Some(settings);
    }
    let mut random = [0; 24];
    getrandom::fill(&mut random)?;
    let secret = format!("whsec_{}", hex::encode(random));
    let mut stored = vec![0; databases.len()];
    for number in 1..=options.rounds {
        for ((side, database), stored) in databases.iter().zip(&mut stored) {
            let rate = report.last_rate(*side);
            let round = round(options, *side, database, &secret, number, rate).await?;
            *stored += round.answered;
            expect_rows(*side, database, *stored).await?;
            say(&format!("round {number}, {}: {round}", side.name()));
            report.add(*side, round);
        }
    }
    Ok(report)
}

/// Whether each table holds one row per answer.
async fn expect_rows(side: Side, database: &Database, answered: u64) -> anyhow::Result<()> {
    for table in side.tables() {
        let found = database.count(table).await?;
        ensure!(
            found == answered,
            "{}: {answered} requests were answered as accepted, but {table} has {found} rows",
            side.name()
        );
    }
    Ok(())
}

/// One receiver, started, driven and stopped.
async fn round(
    options: &Options,
    side: Side,
    database: &Database,
    secret: &str,
    number: u32,
    rate: f64,
) -> anyhow::Result<Round> {
    database.settle().await?;
    let events = Events::new(options.body_bytes, number, options.entities)?;
    let child = Child::start(side, database, secret, options).await?;
    let length = Duration::from_secs(options.warm_up + options.seconds);
    let requests = Arc::new(Requests::prepare(events, &Key::new(secret), child.ready(), length, rate));
    let load = Load {
        connections: options.connections,
        threads: options.load_threads,
        warm_up: Duration::from_secs(options.warm_up),
        measured: Duration::from_secs(options.seconds),
    };
    let before =
        [child.cpu(), database.server_cpu().await, Process::read(std::process::id()).map(|load| load.own)];
    let measured = tokio::task::spawn_blocking(move || load.run(&requests)).await?;
    let load_after = Process::read(std::process::id()).map(|load| load.own);
    let receiver_after = child.cpu();
    child.stop().await?;
    let after = [receiver_after, database.server_cpu().await, load_after];
    let used = |part: usize| Some(after[part]?.saturating_sub(before[part]?));
    Round::new(&measured?, used(0), used(1), used(2))
}
