//! Measurements of deliveries: real gateway processes on a real Postgres, the SDK as consumer.
//!
//! Each command makes a database and a folder of its own, starts what it needs, and removes everything at the end. A
//! server that may forget what it committed is refused.

mod backlog;
mod balancer;
mod child;
pub(crate) mod consumer;
pub(crate) mod drain;
mod gateway;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod noisy;
mod open_loop;
mod order;
pub(crate) mod queue;
pub(crate) mod quiet;
pub(crate) mod rolling;
mod setup;
mod site;
pub(crate) mod snapshot;
mod watch;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::figures::to_ms;

/// Longest latency told apart, microseconds.
const LATENCY_MICROS_MAX: u64 = 600_000_000;

/// Where to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// A Postgres on which databases may be created and dropped. Its own data is not touched.
    #[arg(long, value_name = "URL", env = "PORTERO_TEST_POSTGRES_URL")]
    postgres_url: String,
    /// The gateway's program. Default: `portero` beside this program.
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail unless the aim is met.
    #[arg(long)]
    check: bool,
}

/// What a backlog consists of.
#[derive(Args, Clone, Copy, Debug, Serialize)]
pub(crate) struct Size {
    /// Events of the backlog.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    events: u64,
    /// Entities that they are about in turn; events of one entity are delivered one after the other.
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    entities: u64,
    /// Length of each body, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    body_bytes: usize,
}

/// What a consumer takes at a time.
#[derive(Args, Clone, Copy, Debug, Serialize)]
pub(crate) struct Window {
    /// Unsettled events at a time.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    inflight: u32,
    /// Handlers at a time.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
}

impl Window {
    fn concurrency(self) -> usize {
        usize::try_from(self.concurrency).unwrap_or(usize::MAX)
    }
}

/// A distribution of times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Quantiles {
    count: u64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

impl Quantiles {
    fn of(micros: &Histogram<u64>) -> Self {
        let at = |quantile| to_ms(micros.value_at_quantile(quantile));
        Self {
            count: micros.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: to_ms(micros.max()),
        }
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, longest {:.2} ms",
            self.p50_ms, self.p99_ms, self.p999_ms, self.max_ms
        )
    }
}

/// An empty distribution of microseconds.
fn histogram() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LATENCY_MICROS_MAX, 3)?)
}

/// The report, on standard output.
fn print<R: Serialize + fmt::Display>(report: &R, place: &Place) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if place.json {
        writeln!(out, "{}", serde_json::to_string_pretty(report)?)?;
    } else {
        writeln!(out, "{report}")?;
    }
    Ok(())
}

/// The word for an aim.
const fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}
