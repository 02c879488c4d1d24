//! `memory`: what a gateway holds for subscriptions in which nothing happens, and for consumers that stall.
//!
//! Idle: subscriptions with all their lanes and one stream each, none with an event. Stalled: consumers with a backlog and
//! the largest window, of which one kind reads its stream and settles nothing, and the other reads nothing at all.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;
use futures::StreamExt as _;
use portero_client::v1::subscriber_service_client::SubscriberServiceClient;
use portero_client::{Admin, SubscribeOptions, Subscription, v1};
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use super::gateway::Gateway;
use super::setup::{Source, subscribe};
use super::site::{Site, client};
use super::{Place, Size, backlog, print};
use crate::database::Settings;
use crate::figures::per;
use crate::progress::say;

const TENANT: &str = "bench";
/// Subscriptions that one token names.
const TOKEN_SUBSCRIPTIONS: usize = 50;
/// How long lanes may take to be claimed.
const PATIENCE: Duration = Duration::from_secs(180);
/// Lanes of a subscription by default.
const LANES: u64 = 16;
/// The largest window that the protocol allows.
const WINDOW: v1::Flow = v1::Flow { max_inflight_events: 10_000, max_inflight_bytes: 1 << 30 };
/// The gateway ends the stream of a consumer that takes nothing after 30 s: its memory is looked at before.
const STALLED_FOR: Duration = Duration::from_secs(20);

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Idle subscriptions, each with a consumer.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    idle: u32,
    /// Stalled consumers of each kind, each with a subscription of its own.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    stalled: u32,
    /// Events of the backlog that stalled consumers have.
    #[arg(long, value_name = "N", default_value_t = 40_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    events: u64,
    /// Entities that they are about.
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    entities: u64,
    /// Length of each body, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    body_bytes: usize,
}

/// A whole run.
#[derive(Debug, Serialize)]
struct Report {
    cpus: usize,
    settings: Settings,
    idle: u32,
    stalled: u32,
    /// A gateway with nothing to do.
    empty_mib: f64,
    /// What 1,000 idle subscriptions with their lanes and a stream each add.
    idle_mib_per_thousand: f64,
    /// Cores that the gateway uses for all idle subscriptions together.
    idle_cores: Option<f64>,
    /// Most that a consumer adds that reads and settles nothing, or does not even read.
    unsettling_kib: f64,
    unreading_kib: f64,
}

/// Measures and reports.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let report = Site::with(&options.place, "memory", async |site| measure(&options, site).await).await?;
    print(&report, &options.place)
}

async fn measure(options: &Options, site: &Site) -> anyhow::Result<Report> {
    let mut gateway = Gateway::start(site, "gateway").await?;
    let mut admin = gateway.admin(site).await?;
    Source::create(&mut admin, TENANT).await?;
    sleep(Duration::from_secs(2)).await;
    let empty = gateway.resident_bytes()?;
    let (idle, idle_cores) = idle(options, site, &gateway, &mut admin).await?;
    let size = Size { events: options.events, entities: options.entities, body_bytes: options.body_bytes };
    backlog::fill(site, TENANT, size).await?;
    let mut grown = [0; 2];
    for (grown, kind) in grown.iter_mut().zip(["unsettling", "unreading"]) {
        // A fresh process, so that no memory of former consumers is used again.
        gateway.stop().await?;
        gateway.launch(site).await?;
        let mut admin = gateway.admin(site).await?;
        *grown = stalled(options, site, &gateway, &mut admin, kind).await?;
    }
    gateway.stop().await?;
    let each = |bytes: u64| per(bytes, 1_024.0) / f64::from(options.stalled);
    Ok(Report {
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        settings: site.settings.clone(),
        idle: options.idle,
        stalled: options.stalled,
        empty_mib: mib(empty),
        idle_mib_per_thousand: mib(idle.saturating_sub(empty)) * 1_000.0 / f64::from(options.idle),
        idle_cores,
        unsettling_kib: each(grown[0]),
        unreading_kib: each(grown[1]),
    })
}

/// The gateway's memory with all idle subscriptions, and the cores that it needs for them.
async fn idle(
    options: &Options,
    site: &Site,
    gateway: &Gateway,
    admin: &mut Admin,
) -> anyhow::Result<(u64, Option<f64>)> {
    let ids: Vec<String> = (0..options.idle).map(|n| format!("idle-{n}")).collect();
    for id in &ids {
        subscribe(admin, id, v1::StartAt::Latest).await?;
    }
    let mut subscriptions = Vec::new();
    for (ids, part) in ids.chunks(TOKEN_SUBSCRIPTIONS).zip(0..) {
        let token = site.consumer_token(ids).await?;
        let client = client(&gateway.grpc_url(), &token, &format!("idle-{part}")).await?;
        for id in ids {
            subscriptions.push(client.subscribe(id, SubscribeOptions::default()).open()?);
        }
    }
    let wanted = u64::from(options.idle) * LANES;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let query = "SELECT count(*) FROM lane_owners WHERE session_id IS NOT NULL";
        let owned = site.database.number(query).await?;
        if owned >= wanted {
            break;
        }
        ensure!(Instant::now() < deadline, "{owned} of {wanted} lanes have an owner");
        say(&format!("{owned} of {wanted} lanes have an owner"));
        sleep(Duration::from_secs(2)).await;
    }
    sleep(Duration::from_secs(3)).await;
    let (before, began) = (gateway.cpu(), Instant::now());
    sleep(Duration::from_secs(10)).await;
    let cores = gateway
        .cpu()
        .zip(before)
        .map(|(after, before)| after.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64());
    let resident = gateway.resident_bytes()?;
    say(&format!("{} idle subscriptions: {:.0} MiB in all", options.idle, mib(resident)));
    for subscription in subscriptions {
        close(subscription).await;
    }
    Ok((resident, cores))
}

async fn close(subscription: Subscription) {
    // How a stream ends that had nothing to do is of no interest here.
    let _ = subscription.close(Duration::from_secs(1)).await;
}

/// Most that the gateway grows by while consumers of a kind stall.
async fn stalled(
    options: &Options,
    site: &Site,
    gateway: &Gateway,
    admin: &mut Admin,
    kind: &str,
) -> anyhow::Result<u64> {
    let ids: Vec<String> = (0..options.stalled).map(|n| format!("{kind}-{n}")).collect();
    for id in &ids {
        subscribe(admin, id, v1::StartAt::Earliest).await?;
    }
    sleep(Duration::from_secs(2)).await;
    let before = gateway.resident_bytes()?;
    let mut streams = Vec::new();
    for (ids, part) in ids.chunks(TOKEN_SUBSCRIPTIONS).zip(0..) {
        let token = site.consumer_token(ids).await?;
        for (id, number) in ids.iter().zip(0..) {
            let instance = format!("{kind}-{part}-{number}");
            streams.push(open(gateway, id, &token, &instance).await?);
        }
    }
    let reading = kind == "unsettling";
    let (deadline, mut most) = (Instant::now() + STALLED_FOR, before);
    while Instant::now() < deadline {
        if reading {
            for stream in &mut streams {
                stream.read().await?;
            }
        }
        most = most.max(gateway.resident_bytes()?);
        sleep(Duration::from_millis(100)).await;
    }
    say(&format!("{kind}: {:.1} MiB more for {} consumers", mib(most - before), options.stalled));
    Ok(most - before)
}

/// A stream by the generated client, which reads only when it is told to.
struct Raw {
    frames: tonic::Streaming<v1::SubscribeResponse>,
    /// Kept, so that the stream stays open.
    requests: tokio::sync::mpsc::Sender<v1::SubscribeRequest>,
    beat_at: Instant,
}

async fn open(gateway: &Gateway, id: &str, token: &str, instance: &str) -> anyhow::Result<Raw> {
    let channel = Endpoint::from_shared(gateway.grpc_url())?
        .initial_connection_window_size(8 << 20)
        .initial_stream_window_size(1 << 20)
        .connect()
        .await
        .context("connecting a consumer")?;
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let hello = v1::Hello {
        subscription: format!("subscriptions/{id}"),
        instance_id: instance.to_owned(),
        boot_id: instance.to_owned(),
        protocol: 1,
        flow: Some(WINDOW),
        max_message_bytes: 4 << 20,
        ..v1::Hello::default()
    };
    let frame = v1::subscribe_request::Frame::Hello(hello);
    requests.send(v1::SubscribeRequest { frame: Some(frame) }).await?;
    let mut request = tonic::Request::new(ReceiverStream::new(receiver));
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    let frames = SubscriberServiceClient::new(channel).subscribe(request).await?.into_inner();
    Ok(Raw { frames, requests, beat_at: Instant::now() + Duration::from_secs(8) })
}

impl Raw {
    /// Takes what has arrived, and says now and then that it lives.
    async fn read(&mut self) -> anyhow::Result<()> {
        while let Ok(Some(frame)) = tokio::time::timeout(Duration::from_millis(1), self.frames.next()).await {
            frame.context("a consumer's stream broke")?;
        }
        if Instant::now() >= self.beat_at {
            self.beat_at = Instant::now() + Duration::from_secs(8);
            let frame = v1::subscribe_request::Frame::Heartbeat(v1::Heartbeat {});
            self.requests.send(v1::SubscribeRequest { frame: Some(frame) }).await?;
        }
        Ok(())
    }
}

fn mib(bytes: u64) -> f64 {
    per(bytes, 1024.0 * 1024.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.set_header(["resident memory of the gateway", ""]);
        for (name, value) in [
            ("with nothing to do", format!("{:.1} MiB", self.empty_mib)),
            (
                "per 1,000 idle subscriptions (16 lanes and a stream each)",
                format!("{:.1} MiB more", self.idle_mib_per_thousand),
            ),
            (
                "per consumer that settles nothing (window of 10,000 events)",
                format!("{:.0} KiB more", self.unsettling_kib),
            ),
            ("per consumer that reads nothing", format!("{:.0} KiB more", self.unreading_kib)),
        ] {
            table.add_row([name.to_owned(), value]);
        }
        write!(f, "{} CPUs; {} idle, {} stalled\n{table}", self.cpus, self.idle, self.stalled)?;
        match self.idle_cores {
            Some(cores) => write!(f, "\nthe idle subscriptions together use {cores:.2} cores of the gateway"),
            None => Ok(()),
        }
    }
}
