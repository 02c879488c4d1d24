//! Rounds, their medians, and what the comparison says.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use anyhow::ensure;
use comfy_table::Table;
use serde::Serialize;

use super::load::Measured;
use super::{Options, RATIO_AIM, Side};
use crate::database::Settings;
use crate::figures::{median as middle_of, per, to_ms};
use crate::serve::Tuning;

/// One round of one receiver.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Round {
    /// Accepted events per second.
    pub(super) events_per_second: f64,
    /// Half of the answers came within this time, milliseconds.
    p50_ms: f64,
    /// 99 of 100 did.
    pub(super) p99_ms: f64,
    /// 999 of 1,000 did.
    p999_ms: f64,
    /// Accepted events of the whole round, warm-up included.
    pub(super) answered: u64,
    /// Processor time per event, microseconds: of the receiver.
    receiver_cpu_us: Option<f64>,
    /// Of the database server, if it runs on this machine.
    postgres_cpu_us: Option<f64>,
    /// Of the load.
    load_cpu_us: Option<f64>,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    cpus: usize,
    connections: u32,
    body_bytes: usize,
    seconds_per_round: u64,
    warm_up_seconds: u64,
    load_threads: u32,
    baseline_pool: u32,
    /// What differs from the gateway's own bounds.
    tuning: Tuning,
    /// Of the databases, which are on one server.
    pub(super) settings: Option<Settings>,
    baseline: Vec<Round>,
    portero: Vec<Round>,
    baseline_median: Option<Round>,
    portero_median: Option<Round>,
    /// Portero's median rate as a multiple of the baseline's.
    rate_ratio: Option<f64>,
    /// Portero's median p99 as a multiple of the baseline's.
    p99_ratio: Option<f64>,
}

impl Round {
    /// # Errors
    /// When any request was not accepted: rates of a receiver that refuses cannot be compared.
    pub(super) fn new(
        measured: &Measured,
        receiver: Option<Duration>,
        postgres: Option<Duration>,
        load: Option<Duration>,
    ) -> anyhow::Result<Self> {
        ensure!(measured.refused == 0, "{} requests were not answered 200", measured.refused);
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / per(measured.answered, 1.0).max(1.0);
        let at = |quantile| to_ms(measured.latencies.value_at_quantile(quantile));
        Ok(Self {
            events_per_second: per(measured.latencies.len(), measured.length.as_secs_f64()),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            answered: measured.answered,
            receiver_cpu_us: receiver.map(each),
            postgres_cpu_us: postgres.map(each),
            load_cpu_us: load.map(each),
        })
    }
}

impl Report {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            connections: options.connections,
            body_bytes: options.body_bytes,
            seconds_per_round: options.seconds,
            warm_up_seconds: options.warm_up,
            load_threads: options.load_threads,
            baseline_pool: options.baseline_connections,
            tuning: options.tuning,
            settings: None,
            baseline: Vec::new(),
            portero: Vec::new(),
            baseline_median: None,
            portero_median: None,
            rate_ratio: None,
            p99_ratio: None,
        }
    }

    /// The latest rate of a receiver, 0 before its first round.
    pub(super) fn last_rate(&self, side: Side) -> f64 {
        self.rounds(side).last().map_or(0.0, |round| round.events_per_second)
    }

    pub(super) fn add(&mut self, side: Side, round: Round) {
        match side {
            Side::Baseline => self.baseline.push(round),
            Side::Portero => self.portero.push(round),
        }
        self.baseline_median = median(&self.baseline);
        self.portero_median = median(&self.portero);
        let both = self.portero_median.zip(self.baseline_median);
        self.rate_ratio = both.map(|(ours, theirs)| ours.events_per_second / theirs.events_per_second);
        self.p99_ratio = both.map(|(ours, theirs)| ours.p99_ms / theirs.p99_ms);
    }

    /// Whether Portero is as much faster as it wants to be.
    pub(super) fn meets_aim(&self) -> bool {
        self.rate_ratio.is_some_and(|ratio| ratio >= RATIO_AIM)
            && self.p99_ratio.is_some_and(|ratio| ratio < 1.0)
    }

    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            writeln!(out, "{}", serde_json::to_string_pretty(self)?)?;
        } else {
            writeln!(out, "{self}")?;
        }
        Ok(())
    }

    fn rounds(&self, side: Side) -> &[Round] {
        match side {
            Side::Baseline => &self.baseline,
            Side::Portero => &self.portero,
        }
    }
}

/// The median of each figure by itself.
pub(super) fn median(rounds: &[Round]) -> Option<Round> {
    rounds.first()?;
    let middle = |figure: fn(&Round) -> f64| middle_of(rounds.iter().map(figure));
    let known = |figure: fn(&Round) -> Option<f64>| {
        rounds
            .iter()
            .all(|round| figure(round).is_some())
            .then(|| middle_of(rounds.iter().filter_map(figure)))
    };
    Some(Round {
        events_per_second: middle(|round| round.events_per_second),
        p50_ms: middle(|round| round.p50_ms),
        p99_ms: middle(|round| round.p99_ms),
        p999_ms: middle(|round| round.p999_ms),
        answered: rounds.iter().map(|round| round.answered).sum(),
        receiver_cpu_us: known(|round| round.receiver_cpu_us),
        postgres_cpu_us: known(|round| round.postgres_cpu_us),
        load_cpu_us: known(|round| round.load_cpu_us),
    })
}

fn shown(micros: Option<f64>) -> String {
    micros.map_or_else(String::new, |micros| format!("{micros:.0}"))
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} events/s, p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms",
            self.events_per_second, self.p50_ms, self.p99_ms, self.p999_ms
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(settings) = &self.settings {
            writeln!(f, "{settings}")?;
        }
        writeln!(
            f,
            "{} CPUs; {} connections, {}-byte Stripe events, all distinct; medians of rounds of {} s after {} s of warm-up; \
             processor time is per event",
            self.cpus, self.connections, self.body_bytes, self.seconds_per_round, self.warm_up_seconds
        )?;
        let mut table = Table::new();
        table.set_header([
            "receiver",
            "rounds",
            "events/s",
            "lowest",
            "highest",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "CPU µs",
            "Postgres µs",
            "load µs",
        ]);
        for (name, rounds, middle) in [
            ("axum + sqlx", &self.baseline, self.baseline_median),
            ("portero", &self.portero, self.portero_median),
        ] {
            let Some(middle) = middle else { continue };
            let rates = || rounds.iter().map(|round| round.events_per_second);
            table.add_row([
                name.to_owned(),
                rounds.len().to_string(),
                format!("{:.0}", middle.events_per_second),
                format!("{:.0}", rates().fold(f64::INFINITY, f64::min)),
                format!("{:.0}", rates().fold(0.0, f64::max)),
                format!("{:.2}", middle.p50_ms),
                format!("{:.2}", middle.p99_ms),
                format!("{:.2}", middle.p999_ms),
                shown(middle.receiver_cpu_us),
                shown(middle.postgres_cpu_us),
                shown(middle.load_cpu_us),
            ]);
        }
        write!(f, "{table}")?;
        if let (Some(rate), Some(p99)) = (self.rate_ratio, self.p99_ratio) {
            let verdict = if self.meets_aim() { "met" } else { "missed" };
            write!(
                f,
                "\n{rate:.2} times the rate, {p99:.2} times the p99; aim (at least 3, below 1): {verdict}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(events_per_second: f64, p99_ms: f64) -> Round {
        Round {
            events_per_second,
            p50_ms: 1.0,
            p99_ms,
            p999_ms: 9.0,
            answered: 10,
            receiver_cpu_us: None,
            postgres_cpu_us: None,
            load_cpu_us: None,
        }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let rounds = [round(1.0, 4.0), round(9.0, 2.0), round(3.0, 8.0), round(5.0, 6.0)];
        let middle = median(&rounds).expect("rounds");
        assert!((middle.events_per_second - 4.0).abs() < 1e-9 && (middle.p99_ms - 5.0).abs() < 1e-9);
        assert_eq!(middle.answered, 40);
        assert!(median(&[]).is_none());
    }
}
