//! `verify`: what a recipe costs beside code written by hand for one provider.

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;
use portero_recipe::{Recipe, Request, Secret};
use portero_types::{SecretNo, Timestamp};
use serde::{Deserialize, Serialize};

use crate::stripe::{Events, Key};

/// At most this many times the bare code's time.
const RATIO_AIM: f64 = 2.0;
const SECRET: &str = "whsec_5WbX5kEWLlfzsGNjH64I8lOOqUB6e8FH";
/// The moment at which everything was signed and is verified, seconds.
const NOW: i64 = 1_750_000_000;
/// Distinct requests that the samples go round.
const REQUESTS: u64 = 256;

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
#[derive(Clone, Copy, Debug, Serialize)]
struct Report {
    body_bytes: usize,
    /// Bare HMAC over time and body, compared in constant time.
    bare_hmac_us: f64,
    /// The same and serde_json into a struct of the three fields wanted.
    bare_typed_us: f64,
    /// The same and serde_json into a `Value`.
    bare_value_us: f64,
    /// A recipe's verification alone.
    recipe_verify_us: f64,
    /// A recipe's verification and extraction.
    recipe_us: f64,
    /// The recipe's whole as a multiple of the bare code with a struct.
    ratio: f64,
}

/// What the bare code reads.
#[derive(Deserialize)]
struct Event<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    id: &'a str,
}

/// A signed request.
struct Signed {
    header: String,
    body: Vec<u8>,
}

/// Measures and reports.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let report = measure(options)?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        let mut table = Table::new();
        table.set_header(["one Stripe request", "µs"]);
        for (name, micros) in [
            ("bare: HMAC", report.bare_hmac_us),
            ("bare: HMAC + serde_json (struct)", report.bare_typed_us),
            ("bare: HMAC + serde_json (Value)", report.bare_value_us),
            ("recipe: verify", report.recipe_verify_us),
            ("recipe: verify + extract", report.recipe_us),
        ] {
            table.add_row([name.to_owned(), format!("{micros:.2}")]);
        }
        writeln!(
            out,
            "{table}\n{} bytes; the recipe takes {:.2} times as long as bare code with a struct (aim: at most {RATIO_AIM})",
            report.body_bytes, report.ratio
        )?;
    }
    ensure!(!options.check || report.ratio <= RATIO_AIM, "the aim is missed");
    Ok(())
}

fn measure(options: &Options) -> anyhow::Result<Report> {
    let (key, requests) = requests(options.body_bytes)?;
    let recipe = Recipe::preset("stripe").context("the preset stripe")?;
    let secrets = [Secret::new(&recipe, SecretNo(1), SECRET, Timestamp::EPOCH, None)?];
    let verify = |signed: &Signed, extract: bool| {
        let headers: [(&str, &[u8]); 4] = [
            ("host", b"gateway.example.com"),
            ("user-agent", b"Stripe/1.0 (+https://stripe.com/docs/webhooks)"),
            ("content-type", b"application/json; charset=utf-8"),
            ("stripe-signature", signed.header.as_bytes()),
        ];
        let request =
            Request { method: "POST", query: "", headers: &headers, body: &signed.body, public_url: None };
        let verified = portero_recipe::verify(&recipe, &request, &secrets, Timestamp::from_secs(NOW)).ok()?;
        if !extract {
            return Some(0);
        }
        let events = portero_recipe::extract(&recipe, &request, &verified).ok()?;
        events.first().and_then(|event| Some(event.event_id.len() + event.entity.as_ref()?.len()))
    };
    let bare = |signed: &Signed| key.is_signed(&signed.header, &signed.body, NOW);
    let typed = |signed: &Signed| {
        let event: Event<'_> = serde_json::from_slice(&signed.body).ok()?;
        Some((event.id.to_owned(), event.event_type.to_owned(), event.data.object.id.to_owned()))
    };
    let value = |signed: &Signed| {
        let event: serde_json::Value = serde_json::from_slice(&signed.body).ok()?;
        Some((
            event["id"].as_str()?.len(),
            event["type"].as_str()?.len(),
            event["data"]["object"]["id"].as_str()?.len(),
        ))
    };
    let mut samples: [Vec<Duration>; 5] = Default::default();
    for _ in 0..options.samples {
        samples[0].push(time(&requests, bare)?);
        samples[1].push(time(&requests, |signed| bare(signed) && black_box(typed(signed)).is_some())?);
        samples[2].push(time(&requests, |signed| bare(signed) && black_box(value(signed)).is_some())?);
        samples[3].push(time(&requests, |signed| verify(signed, false).is_some())?);
        samples[4].push(time(&requests, |signed| black_box(verify(signed, true)).is_some())?);
    }
    let [bare_hmac_us, bare_typed_us, bare_value_us, recipe_verify_us, recipe_us] = samples.map(median_us);
    Ok(Report {
        body_bytes: options.body_bytes,
        bare_hmac_us,
        bare_typed_us,
        bare_value_us,
        recipe_verify_us,
        recipe_us,
        ratio: recipe_us / bare_typed_us,
    })
}

fn requests(body_bytes: usize) -> anyhow::Result<(Key, Vec<Signed>)> {
    let key = Key::new(SECRET);
    let events = Events::new(body_bytes, 0, REQUESTS)?;
    let signed = (0..REQUESTS).map(|n| {
        let mut body = Vec::with_capacity(events.bytes());
        events.write(n, &mut body);
        let header = format!("t={NOW},v1={}", hex::encode(key.sign(NOW, &body)));
        Signed { header, body }
    });
    let signed = signed.collect();
    Ok((key, signed))
}

/// How long one go round the requests takes.
fn time(requests: &[Signed], judge: impl Fn(&Signed) -> bool) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let good = requests.iter().filter(|signed| black_box(judge(black_box(signed)))).count();
    let took = began.elapsed();
    ensure!(good == requests.len(), "a good request is not verified");
    Ok(took)
}

fn median_us(mut samples: Vec<Duration>) -> f64 {
    samples.sort();
    let middle = samples.get(samples.len() / 2).copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "256 is exact")]
    let requests = REQUESTS as f64;
    middle.as_secs_f64() * 1e6 / requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_contenders_accept_every_request() {
        let options = Options { samples: 1, body_bytes: 2048, json: false, check: false };
        let report = measure(&options).expect("all are accepted");
        assert!(report.recipe_us > 0.0 && report.bare_typed_us > 0.0);
    }
}
