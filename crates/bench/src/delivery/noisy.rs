//! `noisy`: what a quiet tenant notices while another one sends many times what it may, valid or forged.
//!
//! Phases without and with a flood take turns, so that what else the machine does meets all of them alike; the medians of the
//! rounds are compared. The quiet tenant's requests are sent at a fixed rate, whatever becomes of those before, and none may be
//! refused. `--limit 0` shows the same without limits.

mod flood;

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;
use portero_client::{Admin, v1};
use serde::Serialize;
use tokio::time::Instant;

use self::flood::{Answers, Flood};
use super::gateway::Gateway;
use super::open_loop::{OpenLoop, Schedule, events};
use super::setup::Source;
use super::site::Site;
use super::{Place, Quantiles, print, verdict};
use crate::database::Settings;
use crate::figures::median;
use crate::progress::say;

/// At most this many times the p99 without a flood.
const RATIO_AIM: f64 = 2.0;
const NOISY: &str = "noisy";
const QUIET: &str = "quiet";

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Events per second that the noisy tenant may send, and at once; 0 means no limits at all.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    limit: u32,
    /// Requests per second that it sends.
    #[arg(long, value_name = "N", default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    flood: u32,
    /// Over so many connections.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,
    /// Events per second of the quiet tenant.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Length of each body, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    body_bytes: usize,
    /// Seconds of each phase.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Rounds of three phases: quiet, a valid flood, a forged one.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Phases of one kind.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    /// The quiet tenant's answers in each phase.
    phases: Vec<Quantiles>,
    median_p50_ms: f64,
    median_p99_ms: f64,
    /// The p99 as a multiple of the one without a flood.
    ratio: f64,
    flood: Answers,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    cpus: usize,
    settings: Settings,
    limit: u32,
    flood: u32,
    connections: u32,
    rate: u32,
    body_bytes: usize,
    seconds: u32,
    parts: Vec<Part>,
    /// Most events of the noisy tenant that its limit allows for the time of the run.
    allowed: Option<u64>,
    accepted: u64,
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let report = Site::with(&options.place, "noisy", async |site| measure(&options, site).await).await?;
    print(&report, &options.place)?;
    ensure!(!options.place.check || report.meets_aim(), "the aim is missed");
    Ok(())
}

async fn measure(options: &Options, site: &Site) -> anyhow::Result<Report> {
    let mut settings = vec![("EDGE__TRUSTED_PROXIES", "127.0.0.0/8")];
    if options.limit == 0 {
        settings.push(("LIMITS__UNVERIFIED_SOURCE_PER_SECOND", "0"));
        settings.push(("LIMITS__UNVERIFIED_ADDRESS_PER_SECOND", "0"));
        settings.push(("LIMITS__IN_FLIGHT_PERCENT", "100"));
    }
    let mut gateway = Gateway::with_settings(site, "gateway", &settings).await?;
    let mut admin = gateway.admin(site).await?;
    let noisy = Source::create(&mut admin, NOISY).await?;
    let quiet = Source::create(&mut admin, QUIET).await?;
    quiet.is_known_at(gateway.edge()).await?;
    noisy.is_known_at(gateway.edge()).await?;
    let began = Instant::now();
    limit(&mut admin, options.limit).await?;
    let mut parts =
        ["quiet", "valid flood", "forged flood"].map(|name| (name, Vec::new(), Answers::default()));
    let mut batch = 1;
    phase(options, &gateway, &quiet, batch).await?; // connections, plans and caches
    for round in 0..options.rounds {
        for (kind, (name, phases, answers)) in parts.iter_mut().enumerate() {
            batch += 2;
            let flooding = Flood {
                address: gateway.edge(),
                source: noisy.clone(),
                events: events(options.body_bytes, batch + 1, 1_000)?,
                rate: if kind == 0 { 0 } else { options.flood },
                connections: options.connections,
                time: Duration::from_secs(options.seconds.into()),
                is_genuine: kind == 1,
            };
            let (seen, told) = tokio::join!(phase(options, &gateway, &quiet, batch), flooding.run());
            let (seen, told) = (seen?, told?);
            say(&format!("round {}, {name}: {seen}; the flood: {told}", round + 1));
            phases.push(seen);
            answers.add(&told);
        }
    }
    let elapsed = began.elapsed();
    gateway.stop().await?;
    Ok(Report::of(options, site.settings.clone(), parts, elapsed))
}

/// One phase of the quiet tenant, which is never refused.
async fn phase(
    options: &Options,
    gateway: &Gateway,
    source: &Source,
    batch: u32,
) -> anyhow::Result<Quantiles> {
    let load = OpenLoop {
        address: gateway.edge(),
        source: source.clone(),
        events: events(options.body_bytes, batch, 1_000)?,
        first: 0,
    };
    let count = u64::from(options.rate) * u64::from(options.seconds);
    let sent = load.run(Schedule::new(options.rate), count).await?;
    ensure!(sent.again == 0, "{} requests of the quiet tenant were refused", sent.again);
    Ok(Quantiles::of(&sent.answers))
}

/// Limits the noisy tenant; 0 means not.
async fn limit(admin: &mut Admin, events_per_second: u32) -> anyhow::Result<()> {
    let limits = v1::Limits {
        events_per_second: Some(events_per_second),
        burst: Some(events_per_second.max(1)),
        bytes_per_second: Some(0),
    };
    let tenant =
        v1::Tenant { name: format!("tenants/{NOISY}"), limits: Some(limits), ..v1::Tenant::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["limits".to_owned()] });
    let request = v1::UpdateTenantRequest { tenant: Some(tenant), update_mask };
    admin.update_tenant(request).await.context("limiting a tenant")?;
    Ok(())
}

impl Report {
    fn of(
        options: &Options,
        settings: Settings,
        parts: [(&'static str, Vec<Quantiles>, Answers); 3],
        elapsed: Duration,
    ) -> Self {
        let quiet = median(parts[0].1.iter().map(|phase| phase.p99_ms));
        let accepted = parts.iter().map(|(_, _, answers)| answers.accepted).sum();
        let parts = parts.map(|(name, phases, flood)| {
            let median_p99_ms = median(phases.iter().map(|phase| phase.p99_ms));
            Part {
                name,
                median_p50_ms: median(phases.iter().map(|phase| phase.p50_ms)),
                median_p99_ms,
                ratio: median_p99_ms / quiet,
                phases,
                flood,
            }
        });
        Self {
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            settings,
            limit: options.limit,
            flood: options.flood,
            connections: options.connections,
            rate: options.rate,
            body_bytes: options.body_bytes,
            seconds: options.seconds,
            parts: parts.into(),
            allowed: (options.limit > 0).then(|| u64::from(options.limit) * (elapsed.as_secs() + 2)),
            accepted,
        }
    }

    fn meets_aim(&self) -> bool {
        let is_within = self.allowed.is_none_or(|allowed| self.accepted <= allowed);
        is_within && self.parts.iter().all(|part| part.ratio <= RATIO_AIM)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        writeln!(
            f,
            "{} CPUs; {} quiet events per second; a flood of {} requests per second over {} connections, limited to {}; bodies \
             of {} bytes; phases of {} s",
            self.cpus, self.rate, self.flood, self.connections, self.limit, self.body_bytes, self.seconds
        )?;
        let mut table = Table::new();
        table.set_header([
            "phases",
            "median p50 ms",
            "median p99 ms",
            "times the quiet p99",
            "the flood's answers",
        ]);
        for part in &self.parts {
            table.add_row([
                part.name.to_owned(),
                format!("{:.2}", part.median_p50_ms),
                format!("{:.2}", part.median_p99_ms),
                format!("{:.2}", part.ratio),
                part.flood.to_string(),
            ]);
        }
        let allowed = self.allowed.map_or("any number".to_owned(), |allowed| allowed.to_string());
        write!(
            f,
            "{table}\nthe noisy tenant: {} accepted, {allowed} allowed; aim (within that, and at most {RATIO_AIM:.0} times the \
             p99): {}",
            self.accepted,
            verdict(self.meets_aim())
        )
    }
}
