//! `snapshot`: how fast a backlog drains while somebody holds a snapshot open, so that nothing dead can be cleaned up, beside
//! before and after it.
//!
//! Each part drains for a fixed time; a subscription that is drained is followed by the next one, from the log's beginning.
//! The snapshot is a REPEATABLE READ transaction that has read something, opened as its part begins.

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use comfy_table::Table;
use portero_client::{Admin, v1};
use serde::Serialize;
use sqlx::Connection as _;
use tokio::time::Instant;

use super::consumer::Consumed;
use super::drain::consumer_arguments;
use super::gateway::Gateway;
use super::setup::{Source, subscribe};
use super::site::Site;
use super::{Place, Size, Window, backlog, child, print, verdict};
use crate::database::Settings;
use crate::figures::per;
use crate::progress::say;

/// At least this share of the rate without a snapshot.
const SHARE_AIM: f64 = 0.8;
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
    /// Seconds of each part.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
}

/// One part.
#[derive(Debug, Serialize)]
struct Part {
    name: &'static str,
    events: u64,
    events_per_second: f64,
    /// The same over the last quarter.
    late_events_per_second: f64,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    cpus: usize,
    settings: Settings,
    size: Size,
    window: Window,
    seconds: u64,
    parts: Vec<Part>,
    /// The rate with the snapshot as a share of the mean of the rates before and after.
    share: f64,
    /// The same of the last quarters.
    late_share: f64,
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let report = Site::with(&options.place, "snapshot", async |site| measure(&options, site).await).await?;
    print(&report, &options.place)?;
    ensure!(!options.place.check || report.meets_aim(), "the aim is missed");
    Ok(())
}

async fn measure(options: &Options, site: &Site) -> anyhow::Result<Report> {
    let mut gateway = Gateway::start(site, "gateway").await?;
    let mut admin = gateway.admin(site).await?;
    Source::create(&mut admin, TENANT).await?;
    backlog::fill(site, TENANT, options.size).await?;
    site.database.execute("VACUUM ANALYZE").await?;
    let mut drains = Drains { options, site, gateway: &gateway, admin, subscriptions: 0 };
    let before = drains.part("before").await?;
    let mut holder = site.database.connect().await?;
    let mut snapshot = holder.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    sqlx::query("SELECT count(*) FROM lane_journal").execute(&mut *snapshot).await?;
    let during = drains.part("snapshot held").await?;
    snapshot.rollback().await?;
    let after = drains.part("after").await?;
    gateway.stop().await?;
    let share = |of: fn(&Part) -> f64| of(&during) / f64::midpoint(of(&before), of(&after));
    Ok(Report {
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        settings: site.settings.clone(),
        size: options.size,
        window: options.window,
        seconds: options.seconds,
        share: share(|part| part.events_per_second),
        late_share: share(|part| part.late_events_per_second),
        parts: vec![before, during, after],
    })
}

struct Drains<'a> {
    options: &'a Options,
    site: &'a Site,
    gateway: &'a Gateway,
    admin: Admin,
    subscriptions: u32,
}

impl Drains<'_> {
    /// Drains one subscription after the other until the time is up.
    async fn part(&mut self, name: &'static str) -> anyhow::Result<Part> {
        let (began, length) = (Instant::now(), Duration::from_secs(self.options.seconds));
        let late_from = length.mul_f64(0.75);
        let (mut events, mut seconds) = (0, 0.0);
        let (mut late_events, mut late_seconds) = (0, 0.0);
        loop {
            let passed = began.elapsed();
            let left = length.saturating_sub(passed).as_secs();
            if left == 0 {
                break;
            }
            let drained = self.drain(left).await?;
            events += drained.events;
            seconds += drained.seconds;
            for (at, count, length) in pieces(&drained) {
                if passed.as_secs_f64() + at >= late_from.as_secs_f64() {
                    late_events += count;
                    late_seconds += length;
                }
            }
        }
        let part = Part {
            name,
            events,
            events_per_second: per(events, seconds),
            late_events_per_second: per(late_events, late_seconds),
        };
        say(&format!(
            "{name}: {:.0} events/s, {:.0} in the last quarter",
            part.events_per_second, part.late_events_per_second
        ));
        Ok(part)
    }

    async fn drain(&mut self, seconds: u64) -> anyhow::Result<Consumed> {
        self.subscriptions += 1;
        let id = format!("drain-{}", self.subscriptions);
        subscribe(&mut self.admin, &id, v1::StartAt::Earliest).await?;
        let token = self.site.consumer_token(std::slice::from_ref(&id)).await?;
        let arguments =
            consumer_arguments(self.gateway, &id, self.options.size, self.options.window, Some(seconds));
        child::run(&arguments, &[("PORTERO_BENCH_TOKEN", &token)]).await
    }
}

/// A drain by pieces of a second and a rest: when each began, its events, its length.
fn pieces(drained: &Consumed) -> Vec<(f64, u64, f64)> {
    let mut pieces = Vec::new();
    let (mut at, mut before) = (0.0, 0);
    for recorded in &drained.by_second {
        pieces.push((at, recorded - before, 1.0));
        (at, before) = (at + 1.0, *recorded);
    }
    if drained.seconds > at {
        pieces.push((at, drained.events - before, drained.seconds - at));
    }
    pieces
}

impl Report {
    fn meets_aim(&self) -> bool {
        self.share >= SHARE_AIM && self.late_share >= SHARE_AIM
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        writeln!(
            f,
            "{} CPUs; a backlog of {} events of {} bytes about {} entities, drained for {} s in each part",
            self.cpus, self.size.events, self.size.body_bytes, self.size.entities, self.seconds
        )?;
        let mut table = Table::new();
        table.set_header(["part", "events", "events/s", "events/s in the last quarter"]);
        for part in &self.parts {
            table.add_row([
                part.name.to_owned(),
                part.events.to_string(),
                format!("{:.0}", part.events_per_second),
                format!("{:.0}", part.late_events_per_second),
            ]);
        }
        write!(
            f,
            "{table}\nwith the snapshot {:.0} % of the rate, {:.0} % in the last quarter; aim (at least {:.0} %): {}",
            self.share * 100.0,
            self.late_share * 100.0,
            SHARE_AIM * 100.0,
            verdict(self.meets_aim())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::order::Irregular;

    #[test]
    fn the_pieces_of_a_drain_are_the_whole_of_it() {
        let drained = Consumed {
            events: 25,
            seconds: 2.5,
            by_second: vec![10, 21],
            irregular: Irregular::default(),
            cpu_seconds: None,
        };
        assert_eq!(pieces(&drained), [(0.0, 10, 1.0), (1.0, 11, 1.0), (2.0, 4, 0.5)]);
    }
}
