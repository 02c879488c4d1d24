//! `hints`: whether telling other gateways of commits slows accepting down. Portero's edge on one database, by turns without
//! and with hints, while somebody listens.

use std::fmt;
use std::io::Write as _;

use anyhow::{Context as _, ensure};
use comfy_table::Table;
use portero_store::HintStore as _;
use portero_store_postgres::{PostgresConfig, PostgresStore};
use serde::Serialize;

use super::report::{Round, median};
use super::{Side, expect_rows, round};
use crate::database::{Database, Server, Settings};
use crate::progress::say;

/// At least this share of the rate without hints.
const SHARE_AIM: f64 = 0.95;

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    settings: Settings,
    without: Vec<Round>,
    with: Vec<Round>,
    without_median: Round,
    with_median: Round,
    /// The median rate with hints as a share of the one without.
    share: f64,
    /// Hints that were heard.
    heard: u64,
}

/// Measures and reports. What of the options is about the plain receiver means nothing here.
pub(crate) async fn run(options: super::Options) -> anyhow::Result<()> {
    let server = Server::new(&options.postgres_url)?;
    let database = server.create("hints").await?;
    let outcome = measure(&options, &database).await;
    if let Err(error) = server.drop(&database).await {
        say(&format!("the database {} is still there: {error:#}", database.name));
    }
    let report = outcome?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        writeln!(out, "{report}")?;
    }
    ensure!(!options.check || report.share >= SHARE_AIM, "the aim is missed");
    Ok(())
}

async fn measure(options: &super::Options, database: &Database) -> anyhow::Result<Report> {
    let settings = database.settings().await?;
    settings.ensure_durable()?;
    say(&settings.to_string());
    let mut random = [0; 24];
    getrandom::fill(&mut random)?;
    let secret = format!("whsec_{}", hex::encode(random));
    let listener = PostgresStore::connect(PostgresConfig::new(database.url.as_str())).await?;
    let (mut rounds, mut stored, mut heard) = ([Vec::new(), Vec::new()], 0, 0);
    for number in 1..=options.rounds {
        for (hints, rounds) in [false, true].into_iter().zip(&mut rounds) {
            let mut options = options.clone();
            options.tuning.hints = hints;
            let rate = rounds.last().map_or(0.0, |last: &Round| last.events_per_second);
            let batch = number * 2 + u32::from(hints);
            let mut hints_heard = listener.listen().await?;
            let measured = tokio::select! {
                measured = round(&options, Side::Portero, database, &secret, batch, rate) => measured?,
                error = async {
                    loop {
                        match hints_heard.next().await {
                            Ok(_) => heard += 1,
                            Err(error) => break error,
                        }
                    }
                } => return Err(error.into()),
            };
            stored += measured.answered;
            expect_rows(Side::Portero, database, stored).await?;
            say(&format!("round {number}, {}: {measured}", if hints { "with hints" } else { "without" }));
            rounds.push(measured);
        }
    }
    listener.close().await;
    let [without, with] = rounds;
    let (without_median, with_median) =
        median(&without).zip(median(&with)).context("nothing was measured")?;
    let share = with_median.events_per_second / without_median.events_per_second;
    Ok(Report { settings, without, with, without_median, with_median, share, heard })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        let mut table = Table::new();
        table.set_header(["hints", "rounds", "events/s", "p99 ms"]);
        for (name, rounds, middle) in
            [("without", &self.without, self.without_median), ("with", &self.with, self.with_median)]
        {
            table.add_row([
                name.to_owned(),
                rounds.len().to_string(),
                format!("{:.0}", middle.events_per_second),
                format!("{:.2}", middle.p99_ms),
            ]);
        }
        let verdict = if self.share >= SHARE_AIM { "met" } else { "missed" };
        write!(
            f,
            "{table}\n{} hints were heard; with hints {:.0} % of the rate; aim (at least {:.0} %): {verdict}",
            self.heard,
            self.share * 100.0,
            SHARE_AIM * 100.0
        )
    }
}
