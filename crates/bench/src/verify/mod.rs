//! `verify`: what a recipe costs beside code written by hand for one provider, and what each algorithm costs.

mod bare;
mod recipe;

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;
use portero_recipe::{Recipe, Request, Secret};
use portero_types::{SecretNo, Timestamp};
use serde::Serialize;

use self::bare::{Bare, Signed};
use crate::figures::median;

/// At most this many times the bare code's time.
const RATIO_AIM: f64 = 2.0;
const SECRET: &str = "whsec_5WbX5kEWLlfzsGNjH64I8lOOqUB6e8FH";
/// The moment at which everything was signed and is verified, seconds.
const NOW: i64 = 1_750_000_000;
/// Distinct requests that the samples go round.
const REQUESTS: u64 = 256;
/// The same for algorithms with a key pair, each of which takes long enough to be timed.
const REQUESTS_PUBLIC: u64 = 4;

/// What to measure, and how often.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Samples; the contenders take turns within each.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: u32,
    /// Length of each body, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    body_bytes: usize,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Fail unless verifying and extracting stay within twice the time of the bare code.
    #[arg(long)]
    check: bool,
}

/// Medians over all samples, microseconds per request.
#[derive(Clone, Debug, Serialize)]
struct Report {
    body_bytes: usize,
    /// Bare HMAC over time and body, compared in constant time.
    bare_hmac_us: f64,
    /// The same and serde_json into a struct of the three fields wanted.
    bare_typed_us: f64,
    /// The same and serde_json into a `Value`.
    bare_value_us: f64,
    /// The verification of the preset `stripe` alone.
    recipe_verify_us: f64,
    /// Its verification and extraction.
    recipe_us: f64,
    /// The recipe's whole as a multiple of the bare code with a struct: the median of what each sample gave.
    ratio: f64,
    /// Recipes that differ in the algorithm alone.
    algorithms: Vec<Cost>,
}

/// What an algorithm costs.
#[derive(Clone, Debug, Serialize)]
struct Cost {
    algorithm: &'static str,
    verify_us: f64,
    verify_extract_us: f64,
}

/// Measures and reports.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let report = measure(options)?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        writeln!(out, "{}", table(&report))?;
    }
    ensure!(!options.check || report.ratio <= RATIO_AIM, "the aim is missed");
    Ok(())
}

fn table(report: &Report) -> String {
    let mut stripe = Table::new();
    stripe.set_header(["one Stripe request", "µs"]);
    for (name, micros) in [
        ("bare: HMAC", report.bare_hmac_us),
        ("bare: HMAC + serde_json (struct)", report.bare_typed_us),
        ("bare: HMAC + serde_json (Value)", report.bare_value_us),
        ("recipe: verify", report.recipe_verify_us),
        ("recipe: verify + extract", report.recipe_us),
    ] {
        stripe.add_row([name.to_owned(), format!("{micros:.2}")]);
    }
    let mut algorithms = Table::new();
    algorithms.set_header(["recipe with", "verify, µs", "verify + extract, µs"]);
    for cost in &report.algorithms {
        algorithms.add_row([
            cost.algorithm.to_owned(),
            format!("{:.2}", cost.verify_us),
            format!("{:.2}", cost.verify_extract_us),
        ]);
    }
    format!(
        "{stripe}\n{} bytes; the recipe takes {:.2} times as long as bare code with a struct (aim: at most {RATIO_AIM})\n\
         {algorithms}",
        report.body_bytes, report.ratio
    )
}

fn measure(options: &Options) -> anyhow::Result<Report> {
    let bare = Bare::new();
    let requests = bare.requests(options.body_bytes, REQUESTS)?;
    let preset = Stripe::new()?;
    let receivers = recipe::receivers(options.body_bytes, REQUESTS, REQUESTS_PUBLIC)?;
    let mut samples: [Vec<Duration>; 5] = Default::default();
    let mut costs = vec![<[Vec<Duration>; 2]>::default(); receivers.len()];
    for _ in 0..options.samples {
        samples[0].push(time(&requests, |signed| bare.verifies(signed))?);
        samples[1].push(time(&requests, |signed| {
            bare.verifies(signed) && black_box(Bare::typed(signed)).is_some()
        })?);
        samples[2].push(time(&requests, |signed| {
            bare.verifies(signed) && black_box(Bare::tree(signed)).is_some()
        })?);
        samples[3].push(time(&requests, |signed| preset.judge(signed, false).is_some())?);
        samples[4].push(time(&requests, |signed| black_box(preset.judge(signed, true)).is_some())?);
        for (receiver, [verify, extract]) in receivers.iter().zip(&mut costs) {
            verify.push(time(&receiver.requests, |signed| receiver.verifies(signed))?);
            extract.push(time(&receiver.requests, |signed| receiver.extracts(signed))?);
        }
    }
    let ratio = median(
        samples[4].iter().zip(&samples[1]).map(|(ours, bare)| ours.as_secs_f64() / bare.as_secs_f64()),
    );
    let [bare_hmac_us, bare_typed_us, bare_value_us, recipe_verify_us, recipe_us] =
        samples.map(|samples| micros(&samples));
    let algorithms = receivers.iter().zip(&costs).map(|(receiver, [verify, extract])| Cost {
        algorithm: receiver.algorithm,
        verify_us: micros(verify),
        verify_extract_us: micros(extract),
    });
    Ok(Report {
        body_bytes: options.body_bytes,
        bare_hmac_us,
        bare_typed_us,
        bare_value_us,
        recipe_verify_us,
        recipe_us,
        ratio,
        algorithms: algorithms.collect(),
    })
}

/// The preset and its secret.
struct Stripe {
    recipe: std::sync::Arc<Recipe>,
    secrets: [Secret; 1],
}

impl Stripe {
    fn new() -> anyhow::Result<Self> {
        let recipe = Recipe::preset("stripe").context("the preset stripe")?;
        let secrets = [Secret::new(&recipe, SecretNo(1), SECRET, Timestamp::EPOCH, None)?];
        Ok(Self { recipe, secrets })
    }

    fn judge(&self, signed: &Signed, extract: bool) -> Option<usize> {
        let headers: [(&str, &[u8]); 4] = [
            ("host", b"gateway.example.com"),
            ("user-agent", b"Stripe/1.0 (+https://stripe.com/docs/webhooks)"),
            ("content-type", b"application/json; charset=utf-8"),
            ("stripe-signature", signed.header.as_bytes()),
        ];
        let request = Request::new("POST", "", &headers, &signed.body);
        let now = Timestamp::from_secs(NOW);
        let verified = portero_recipe::verify(&self.recipe, &request, &self.secrets, now).ok()?;
        if !extract {
            return Some(0);
        }
        let events = portero_recipe::extract(&self.recipe, &request, &verified).ok()?;
        events.first().and_then(|event| Some(event.event_id.len() + event.entity.as_ref()?.len()))
    }
}

/// How long one request takes when all are judged, one after the other.
fn time<T>(requests: &[T], judge: impl Fn(&T) -> bool) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let good = requests.iter().filter(|signed| black_box(judge(black_box(*signed)))).count();
    let took = began.elapsed();
    ensure!(good == requests.len(), "a good request is not verified");
    Ok(took.div_f64(f64::from(u32::try_from(good).unwrap_or(u32::MAX))))
}

fn micros(samples: &[Duration]) -> f64 {
    median(samples.iter().map(|sample| sample.as_secs_f64() * 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_accepts_every_request() {
        let options = Options { samples: 1, body_bytes: 2048, json: false, check: false };
        let report = measure(&options).expect("all are accepted");
        assert!(report.recipe_us > 0.0 && report.bare_typed_us > 0.0 && report.ratio > 0.0);
        let algorithms: Vec<_> = report.algorithms.iter().map(|cost| cost.algorithm).collect();
        assert_eq!(algorithms, ["hmac-sha256", "ed25519", "ecdsa-p256-sha256", "rsa-sha256"]);
    }
}
