//! A tenant that sends twenty times what it may, valid or forged, and another one that does not notice.
//!
//! `PORTERO_NOISY_UNLIMITED` takes the limits away, to see the test fail.

mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use portero_client::v1;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::harness::{Admin, Gateway, Kind, Provider, Setup, Site, Source, stripe_event};
use wire::{Ready, Wire};

/// What the noisy tenant may send, events a second.
const LIMIT: u32 = 100;
/// Events in each of its requests, and how many it may send at once.
const BATCH: u32 = 20;
/// What it sends, requests a second, over so many connections: more than twenty times what it may.
const FLOOD: u32 = 30 * LIMIT / BATCH;
const CONNECTIONS: u32 = 16;
/// Between two requests of the quiet tenant.
const PACE: Duration = Duration::from_millis(10);
/// How long each phase takes. A round has three: quiet, valid flood, forged flood.
const PHASE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 9;
/// Others' work on the machine may spoil one measurement; what a missing limit does is seen in each.
const MEASUREMENTS: usize = 3;
/// Two busy cores delay somebody now and then, whoever sends what.
const FLOOR: Duration = Duration::from_millis(15);

/// What GoCardless hears of what was accepted, and of what did not verify.
const ACCEPTED: u16 = 204;
const UNVERIFIED: u16 = 498;

/// How many forged requests are examined at once; 20 more a second.
const UNVERIFIED_BURST: u32 = 40;

/// Where the requests say that they come from; the gateway trusts this machine's word as a proxy's.
const NOISY: &str = "192.0.2.10";
const QUIET: &str = "192.0.2.20";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_tenant_is_refused_and_another_tenant_does_not_notice_it() {
    let site = Site::new(Kind::Postgres);
    let gateway = started(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let batching = Source::preset(&mut setup.admin, &gateway, "acme", "gocardless").await;
    let noisy = Arc::new(Flood::new(Provider::new(&gateway, &batching), gateway.edge_address()));
    let began = Instant::now();
    limit(&mut setup.admin, "acme", if is_unlimited() { 0 } else { LIMIT }).await;
    let mut quiet = Quiet::new(&mut setup.admin, &gateway).await;
    let _ = quiet.phase().await; // connections, plans and caches

    let mut unnoticed = false;
    for _ in 0..MEASUREMENTS {
        let medians = measure(&mut quiet, &noisy).await;
        let counts = noisy.counts().await;
        println!(
            "noisy: p99 of the quiet tenant, medians of {ROUNDS} rounds: {medians:?}; the flood's answers: {counts:?}"
        );
        let bound = (medians["quiet"] * 2).max(FLOOR);
        unnoticed = medians.values().all(|p99| *p99 <= bound);
        if unnoticed {
            break;
        }
    }
    assert!(
        unnoticed,
        "the flood more than doubles what the quiet tenant waits, in each of {MEASUREMENTS} measurements"
    );
    noisy.stayed_within_limits(began.elapsed()).await;
    assert!(gateway.metric("portero_ingress_limited_total", &["tenant"]).await > 0.0);
    assert!(gateway.metric("portero_ingress_limited_total", &["unverified_source"]).await > 0.0);
}

/// What the quiet tenant waits in phases that take turns: the median of the rounds' 99th percentiles by kind.
async fn measure(quiet: &mut Quiet, noisy: &Arc<Flood>) -> BTreeMap<&'static str, Duration> {
    let mut seen: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        seen.entry("quiet").or_default().push(quiet.phase().await);
        for (kind, is_genuine) in [("valid", true), ("forged", false)] {
            let requests = noisy.prepare(is_genuine);
            let (p99, ()) = tokio::join!(quiet.phase(), noisy.run(requests));
            seen.entry(kind).or_default().push(p99);
        }
    }
    seen.into_iter().map(|(kind, p99)| (kind, median(p99))).collect()
}

fn is_unlimited() -> bool {
    std::env::var_os("PORTERO_NOISY_UNLIMITED").is_some()
}

async fn started(site: &Arc<Site>) -> Gateway {
    let mut gateway = Gateway::new(site)
        .set("EDGE__TRUSTED_PROXIES", "127.0.0.0/8")
        .set("TELEMETRY__LOG_LEVEL", "info")
        .set("LIMITS__UNVERIFIED_SOURCE_BURST", UNVERIFIED_BURST.to_string());
    if is_unlimited() {
        gateway = gateway
            .set("LIMITS__SOURCE_EVENTS_PER_SECOND", "0")
            .set("LIMITS__UNVERIFIED_SOURCE_PER_SECOND", "0")
            .set("LIMITS__IN_FLIGHT_PERCENT", "100");
    }
    gateway.launch().await;
    gateway
}

async fn limit(admin: &mut Admin, tenant: &str, events_per_second: u32) {
    let limits =
        v1::Limits { events_per_second: Some(events_per_second), burst: Some(BATCH), bytes_per_second: None };
    let tenant =
        v1::Tenant { name: format!("tenants/{tenant}"), limits: Some(limits), ..v1::Tenant::default() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["limits".to_owned()] });
    let request = v1::UpdateTenantRequest { tenant: Some(tenant), update_mask };
    admin.update_tenant(request).await.expect("limited");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The tenant that sends at its pace, and is never refused.
struct Quiet {
    provider: Provider,
    wire: Wire,
    sent: usize,
}

impl Quiet {
    async fn new(admin: &mut Admin, gateway: &Gateway) -> Self {
        let globex = v1::CreateTenantRequest { tenant_id: "globex".to_owned(), tenant: None };
        admin.create_tenant(globex).await.expect("a tenant");
        let source = Source::preset(admin, gateway, "globex", "stripe").await;
        Self { provider: Provider::new(gateway, &source), wire: Wire::new(gateway.edge_address()), sent: 0 }
    }

    /// The 99th percentile of its answers' times in one phase.
    async fn phase(&mut self) -> Duration {
        let until = Instant::now() + PHASE;
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut times = Vec::new();
        while Instant::now() < until {
            pace.tick().await;
            self.sent += 1;
            let body = stripe_event(&format!("evt_quiet_{}", self.sent), "entity", self.sent);
            let request = Ready::new(&self.provider, &body, QUIET, true);
            let began = Instant::now();
            assert_eq!(self.wire.send(&request).await, 200, "a quiet tenant's event is accepted");
            times.push(began.elapsed());
        }
        times.sort_unstable();
        times[(times.len() * 99 / 100).min(times.len() - 1)]
    }
}

/// The tenant that sends more than it may.
struct Flood {
    provider: Provider,
    wires: Vec<Mutex<Wire>>,
    answers: Mutex<BTreeMap<u16, u32>>,
    offered: AtomicU32,
    phases: AtomicU32,
}

impl Flood {
    fn new(provider: Provider, address: String) -> Self {
        let wires = (0..CONNECTIONS).map(|_| Mutex::new(Wire::new(address.clone()))).collect();
        Self {
            provider,
            wires,
            answers: Mutex::default(),
            offered: AtomicU32::new(0),
            phases: AtomicU32::new(0),
        }
    }

    /// A phase's requests of each connection, signed before it begins.
    fn prepare(&self, is_genuine: bool) -> Vec<Vec<Ready>> {
        let phase = self.phases.fetch_add(1, Ordering::SeqCst);
        let each = u32::try_from(PHASE.as_millis()).expect("short") * FLOOD / CONNECTIONS / 1_000;
        let request = |connection: u32, n: u32| {
            let client = if is_genuine { NOISY.to_owned() } else { format!("198.51.100.{}", n % 250) };
            let event = |event: u32| {
                let id = format!("EV{phase}-{connection}-{n}-{event}");
                json!({ "id": id, "resource_type": "payments", "action": "paid", "links": { "payment": id } })
            };
            let events: Vec<_> = (0..BATCH).map(event).collect();
            Ready::new(
                &self.provider,
                json!({ "events": events }).to_string().as_bytes(),
                &client,
                is_genuine,
            )
        };
        (0..CONNECTIONS).map(|connection| (0..each).map(|n| request(connection, n)).collect()).collect()
    }

    /// Sends them evenly over a phase, as far as answers come in time.
    async fn run(self: &Arc<Self>, requests: Vec<Vec<Ready>>) {
        let until = Instant::now() + PHASE;
        let mut connections = JoinSet::new();
        for (connection, requests) in requests.into_iter().enumerate() {
            let flood = Arc::clone(self);
            connections.spawn(async move {
                let mut wire = flood.wires[connection].lock().await;
                let mut pace = interval(Duration::from_secs(1) * CONNECTIONS / FLOOD);
                for request in requests {
                    pace.tick().await;
                    if Instant::now() >= until {
                        return;
                    }
                    flood.offered.fetch_add(1, Ordering::SeqCst);
                    let status = wire.send(&request).await;
                    *flood.answers.lock().await.entry(status).or_default() += 1;
                }
            });
        }
        connections.join_all().await;
    }

    /// Fails the test when more was accepted or examined than limits allow, or when it was no flood.
    async fn stayed_within_limits(&self, elapsed: Duration) {
        let counts = self.counts().await;
        let seconds = u32::try_from(elapsed.as_secs()).expect("short") + 1;
        let accepted = counts.get(&ACCEPTED).copied().unwrap_or_default() * BATCH;
        let allowed = LIMIT * (seconds + 1) + BATCH;
        assert!(accepted > 0 && accepted <= allowed, "{accepted} accepted, {allowed} allowed in {elapsed:?}");
        assert!(self.offered() * BATCH > accepted * 5, "this was no flood: {counts:?}");
        let examined = counts.get(&UNVERIFIED).copied().unwrap_or_default();
        assert!(
            examined > 0 && examined <= UNVERIFIED_BURST + 20 * seconds,
            "{examined} forged ones in {elapsed:?}"
        );
        assert!(counts.keys().all(|status| [ACCEPTED, UNVERIFIED, 429].contains(status)), "{counts:?}");
    }

    /// How many requests were sent.
    fn offered(&self) -> u32 {
        self.offered.load(Ordering::SeqCst)
    }

    /// How often each status was the answer.
    async fn counts(&self) -> BTreeMap<u16, u32> {
        self.answers.lock().await.clone()
    }
}
