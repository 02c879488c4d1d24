//! `rolling`: gateways are restarted one after the other under load, behind a balancer, with consumers that reconnect through
//! it: how long does any event wait at worst, is anything delivered again whose ack was on record, is anything counted
//! against consumers that did nothing wrong.
//!
//! The hand-over gap is the longest time from the moment at which a gateway had received an event to the beginning of its
//! handler: all lanes have events all the time, so a lane that nobody serves for a while shows in it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;
use portero_client::{Delivery, Disconnect, Observer, Outcome, SettlementStatus, v1};
use portero_types::Clock as _;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::balancer::{Balancer, Readiness};
use super::gateway::Gateway;
use super::latency::lanes_are_owned;
use super::open_loop::{OpenLoop, Schedule, events};
use super::setup::{Source, subscribe};
use super::site::Site;
use super::watch::{Watch, Watched};
use super::{Place, Window, print, verdict};
use crate::clock::SystemClock;
use crate::database::{Database, Settings};
use crate::figures::to_ms;
use crate::progress::say;

/// The longest gap, milliseconds.
const GAP_AIM_MS: f64 = 2_000.0;
const ID: &str = "rolling";
/// How often the database is asked for attempts counted.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How long what is left may take to arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// Settled quiet before and after the restarts, and between two.
const PAUSE: Duration = Duration::from_secs(4);

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Gateways.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=8))]
    gateways: u32,
    /// Consumers.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    consumers: u32,
    /// Events per second.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Entities that the events are about in turn.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    entities: u64,
    /// Length of each body, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    body_bytes: usize,
    /// How long a gateway stays reachable after it was asked to stop, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    drain_delay_ms: u64,
    #[command(flatten)]
    window: Window,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    cpus: usize,
    settings: Settings,
    gateways: u32,
    consumers: u32,
    rate: u32,
    /// From the first signal to the last gateway's readiness, seconds.
    restarts_seconds: f64,
    events: u64,
    /// The longest wait from receipt to handler: over the restarts, and in the quiet time before.
    gap_ms: f64,
    gap_before_ms: f64,
    /// The longest time without any handler beginning.
    silence_ms: f64,
    /// Requests that had to be sent again.
    requests_again: u64,
    /// Events handled more than once.
    handled_again: u64,
    /// Deliveries that came after their event's ack was on record.
    again_after_ack: u64,
    /// Most attempts and interruptions that were on record at a time, and dead letters.
    attempts: u64,
    interruptions: u64,
    dead_letters: u64,
    /// Streams that broke instead of ending by themselves.
    broken_streams: u64,
}

/// What all consumers saw.
#[derive(Default)]
struct Books {
    pages: Mutex<Pages>,
    /// The restarts have begun.
    rolling: AtomicBool,
    broken: AtomicU64,
}

#[derive(Default)]
struct Pages {
    /// How often each receipt was handled, and whether its ack is on record.
    receipts: HashMap<String, (u32, bool)>,
    again_after_ack: u64,
    gap: Duration,
    gap_before: Duration,
    silence: Duration,
    latest: Option<Instant>,
}

impl Books {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handled(&self, delivery: &Delivery) {
        let waited = SystemClock.now().since(delivery.received_at());
        let (now, rolling) = (Instant::now(), self.rolling.load(Ordering::Relaxed));
        let mut pages = self.pages();
        let receipt = pages.receipts.entry(delivery.receipt_id().to_owned()).or_default();
        receipt.0 += 1;
        let first = receipt.0 == 1;
        let latest = pages.latest.replace(now);
        if !rolling {
            pages.gap_before = pages.gap_before.max(waited);
        } else if first {
            pages.gap = pages.gap.max(waited);
            if let Some(latest) = latest {
                pages.silence = pages.silence.max(now - latest);
            }
        }
    }
}

struct Recorder(Arc<Books>);

impl Observer for Recorder {
    fn delivered(&self, delivery: &Delivery) {
        let mut pages = self.0.pages();
        if pages.receipts.get(delivery.receipt_id()).is_some_and(|(_, acked)| *acked) {
            pages.again_after_ack += 1;
        }
    }

    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        if *outcome == Outcome::Ack
            && status.is_durable()
            && let Some(receipt) = self.0.pages().receipts.get_mut(receipt_id)
        {
            // After a late ack one delivery that had begun may still arrive.
            receipt.1 = status != SettlementStatus::DurableLate;
        }
    }

    fn disconnected(&self, why: &Disconnect<'_>, _next_attempt_in: Option<Duration>) {
        if let Disconnect::Failed(error) = why {
            self.0.broken.fetch_add(1, Ordering::Relaxed);
            say(&format!("a stream broke: {error}"));
        }
    }
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let report = Site::with(&options.place, "rolling", async |site| measure(&options, site).await).await?;
    print(&report, &options.place)?;
    ensure!(!options.place.check || report.meets_aim(), "the aim is missed");
    Ok(())
}

async fn measure(options: &Options, site: &Site) -> anyhow::Result<Report> {
    let delay = Duration::from_millis(options.drain_delay_ms);
    let mut gateways = Vec::new();
    for number in 1..=options.gateways {
        gateways.push(Gateway::with_drain_delay(site, &format!("gateway-{number}"), delay).await?);
    }
    let mut admin = gateways.first().context("gateways")?.admin(site).await?;
    let source = Source::create(&mut admin, "bench").await?;
    for gateway in &gateways {
        source.is_known_at(gateway.edge()).await?;
    }
    subscribe(&mut admin, ID, v1::StartAt::Latest).await?;
    let (readiness, _asking) = Readiness::follow(gateways.iter().map(Gateway::management).collect());
    let edges = gateways.iter().map(Gateway::edge).collect();
    let edge = Balancer::start(Arc::clone(&readiness), edges).await?;
    let grpc = Balancer::start(readiness, gateways.iter().map(Gateway::grpc).collect()).await?;
    let books = Arc::new(Books::default());
    let watches = consumers(options, site, &grpc, &books).await?;
    lanes_are_owned(site, ID).await?;

    let counted = Counted::follow(site.database.url.clone());
    let load = OpenLoop {
        address: edge.address,
        source,
        events: events(options.body_bytes, 1, options.entities)?,
        first: 0,
    };
    let enough = CancellationToken::new();
    let sending = tokio::spawn(send_until(load, options.rate, enough.clone()));
    sleep(PAUSE).await;
    let began = Instant::now();
    books.rolling.store(true, Ordering::Relaxed);
    for (gateway, number) in gateways.iter_mut().zip(1_u32..) {
        gateway.stop().await?;
        gateway.launch(site).await?;
        say(&format!("gateway {number} was restarted; longest gap so far {:?}", books.pages().gap));
        sleep(PAUSE).await;
    }
    let restarts_seconds = began.elapsed().as_secs_f64();
    enough.cancel();
    let (events, requests_again) = sending.await??;
    all_handled(&books, events).await?;
    let counted = counted.finish(&site.database).await?;
    for watch in watches {
        watch.stop().await?;
    }
    for gateway in &mut gateways {
        gateway.stop().await?;
    }
    let pages = books.pages();
    let ms = |duration: Duration| to_ms(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    Ok(Report {
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        settings: site.settings.clone(),
        gateways: options.gateways,
        consumers: options.consumers,
        rate: options.rate,
        restarts_seconds,
        events,
        gap_ms: ms(pages.gap),
        gap_before_ms: ms(pages.gap_before),
        silence_ms: ms(pages.silence),
        requests_again,
        handled_again: pages.receipts.values().filter(|(handled, _)| *handled > 1).count() as u64,
        again_after_ack: pages.again_after_ack,
        attempts: counted.attempts,
        interruptions: counted.interruptions,
        dead_letters: counted.dead_letters,
        broken_streams: books.broken.load(Ordering::Relaxed),
    })
}

async fn consumers(
    options: &Options,
    site: &Site,
    grpc: &Balancer,
    books: &Arc<Books>,
) -> anyhow::Result<Vec<Watch>> {
    let token = site.consumer_token(&[ID.to_owned()]).await?;
    let mut watches = Vec::new();
    for number in 1..=options.consumers {
        let watched = Watched {
            endpoint: &format!("http://{}", grpc.address),
            token: &token,
            instance: &format!("consumer-{number}"),
            subscription: ID,
            window: options.window,
            work: Duration::from_millis(1),
            observer: Arc::new(Recorder(Arc::clone(books))),
        };
        let noted = Arc::clone(books);
        watches.push(Watch::start(watched, move |delivery| noted.handled(delivery)).await?);
    }
    Ok(watches)
}

/// The load, a second at a time, until it is enough. Gives how many events were sent and how many of them again.
async fn send_until(load: OpenLoop, rate: u32, enough: CancellationToken) -> anyhow::Result<(u64, u64)> {
    let (mut sent, mut again) = (0, 0);
    while !enough.is_cancelled() {
        let part = OpenLoop { first: sent, ..load.clone() };
        let brought = part.run(Schedule::new(rate), u64::from(rate)).await?;
        sent += u64::from(rate);
        again += brought.again;
    }
    Ok((sent, again))
}

/// Waits until every event was handled.
async fn all_handled(books: &Books, sent: u64) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let handled = books.pages().receipts.len() as u64;
        if handled >= sent {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{handled} of {sent} events were handled");
        sleep(Duration::from_millis(50)).await;
    }
}

/// What the database has counted against consumers.
#[derive(Clone, Copy, Default)]
struct Counts {
    attempts: u64,
    interruptions: u64,
    dead_letters: u64,
}

/// Asks the database again and again, since what was parked is soon gone.
struct Counted(AbortOnDropHandle<()>, Arc<Mutex<Counts>>);

impl Counted {
    fn follow(url: String) -> Self {
        let worst = Arc::<Mutex<Counts>>::default();
        let noted = Arc::clone(&worst);
        let asking = tokio::spawn(async move {
            let database = Database { name: String::new(), url };
            loop {
                if let Ok(counts) = count(&database).await {
                    let mut worst = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    worst.attempts = worst.attempts.max(counts.attempts);
                    worst.interruptions = worst.interruptions.max(counts.interruptions);
                }
                sleep(ASK_EVERY).await;
            }
        });
        Self(AbortOnDropHandle::new(asking), worst)
    }

    async fn finish(self, database: &Database) -> anyhow::Result<Counts> {
        let last = count(database).await?;
        self.0.abort();
        let worst = *self.1.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Counts {
            attempts: worst.attempts.max(last.attempts),
            interruptions: worst.interruptions.max(last.interruptions),
            dead_letters: last.dead_letters,
        })
    }
}

async fn count(database: &Database) -> anyhow::Result<Counts> {
    Ok(Counts {
        attempts: database.number("SELECT sum(attempts)::bigint FROM parked_entities").await?,
        interruptions: database.number("SELECT sum(interruptions)::bigint FROM parked_entities").await?,
        dead_letters: database.count("dead_letters").await?,
    })
}

impl Report {
    fn meets_aim(&self) -> bool {
        let nothing_counted = self.attempts == 0 && self.interruptions == 0 && self.dead_letters == 0;
        self.gap_ms < GAP_AIM_MS && self.again_after_ack == 0 && nothing_counted
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        writeln!(
            f,
            "{} CPUs; {} gateways restarted in {:.0} s; {} consumers; {} events per second",
            self.cpus, self.gateways, self.restarts_seconds, self.consumers, self.rate
        )?;
        let mut table = Table::new();
        for (name, value) in [
            ("events", self.events.to_string()),
            ("longest gap, ms", format!("{:.0}", self.gap_ms)),
            ("longest gap before, ms", format!("{:.0}", self.gap_before_ms)),
            ("longest silence of all lanes, ms", format!("{:.0}", self.silence_ms)),
            ("requests sent again", self.requests_again.to_string()),
            ("events handled again", self.handled_again.to_string()),
            ("delivered again after a durable ack", self.again_after_ack.to_string()),
            ("attempts counted", self.attempts.to_string()),
            ("interruptions counted", self.interruptions.to_string()),
            ("dead letters", self.dead_letters.to_string()),
            ("streams broken", self.broken_streams.to_string()),
        ] {
            table.add_row([name.to_owned(), value]);
        }
        write!(
            f,
            "{table}\naim (gap below {GAP_AIM_MS:.0} ms, nothing again after its ack, nothing counted): {}",
            verdict(self.meets_aim())
        )
    }
}
