//! Secrets that leaked: nothing that they sign is accepted any more, whichever gateway is asked and whatever it knows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use portero_client::v1;
use portero_recipe::{Recipe, SignOptions};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::harness::{
    Consumer, Gateway, Kind, Provider, Setup, Signed, Site, Source, eventually, now, stripe_event, unique,
};
use crate::kinds::on_each_store;
use crate::operator::{Operator, said};

const PATIENCE: Duration = Duration::from_secs(30);
/// How long after the call nothing may be accepted any more.
const GRACE: Duration = Duration::from_secs(1);

/// Three gateways on one database, and the source's leaked and good secrets.
struct Bench {
    site: Arc<Site>,
    gateways: Vec<Gateway>,
    setup: Setup,
    providers: Vec<Provider>,
    good: String,
}

impl Bench {
    async fn start() -> Self {
        let site = Site::new(Kind::Postgres);
        let mut gateways = vec![Gateway::start(&site).await];
        for _ in 1..3 {
            gateways.push(Gateway::start(&site).await);
        }
        let mut setup = Setup::new(&gateways[0]).await;
        let good = setup.stripe.add_secret(&mut setup.admin, "").await.value;
        for gateway in &gateways {
            gateway.is_up_to_date().await;
        }
        let providers = gateways.iter().map(|gateway| setup.provider(gateway)).collect();
        Self { site, gateways, setup, providers, good }
    }

    /// A new secret that every gateway takes; its id and value.
    async fn leaked(&mut self) -> (String, String) {
        let id = unique("leaked").replace('_', "-");
        let request = v1::RotateSecretRequest {
            parent: self.setup.stripe.name.clone(),
            secret_id: id.clone(),
            overlap: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
            wait: true,
            ..v1::RotateSecretRequest::default()
        };
        let rotated = self.setup.admin.rotate_secret(request).await.expect("rotated").into_inner();
        assert_eq!(rotated.unconfirmed_replicas, Vec::<String>::new());
        (id, rotated.secret.expect("a secret").value)
    }

    /// The events in the database.
    fn stored(&self) -> BTreeSet<String> {
        self.site.query("SELECT event_id FROM receipts").lines().map(|line| line.trim().to_owned()).collect()
    }
}

fn signed(provider: &Provider, secret: &str, event_id: &str) -> Signed {
    let options = SignOptions { now: now(), ..SignOptions::default() };
    provider.sign_with(secret, &stripe_event(event_id, event_id, 0), options)
}

/// One answer of a gateway to a sender that hammers it.
struct Shot {
    sent: Instant,
    answered: Instant,
    accepted: bool,
    reason: String,
}

/// Sends new events with one secret, one after the other, until told to stop.
async fn hammer(
    provider: Provider,
    secret: String,
    stop: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
) -> Vec<Shot> {
    let mut shots = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let id = format!("hammer_{}", next.fetch_add(1, Ordering::SeqCst));
        let signed = signed(&provider, &secret, &id);
        let sent = Instant::now();
        let Some(answer) = provider.try_post(&signed).await else { continue };
        let (accepted, reason) = (answer.is_success(), answer.reason());
        shots.push(Shot { sent, answered: Instant::now(), accepted, reason });
    }
    shots
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_accept_nothing_more_once_the_call_has_returned() {
    let mut bench = Bench::start().await;
    let (id, leaked) = bench.leaked().await;
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (mut bad, mut genuine) = (JoinSet::new(), JoinSet::new());
    for provider in bench.providers.iter().chain(&bench.providers) {
        bad.spawn(hammer(provider.clone(), leaked.clone(), Arc::clone(&stop), Arc::clone(&next)));
    }
    for provider in &bench.providers {
        genuine.spawn(hammer(provider.clone(), bench.good.clone(), Arc::clone(&stop), Arc::clone(&next)));
    }
    eventually("the senders are at work", PATIENCE, async || {
        (next.load(Ordering::SeqCst) > 200).then_some(())
    })
    .await;

    let operator = Operator::at(&bench.gateways[0]);
    let words = format!("secret revoke acme stripe {id} --wait");
    let revoked = tokio::task::spawn_blocking(move || operator.json(&words)).await.expect("no panic");
    let returned = Instant::now();
    assert_eq!(
        (revoked["state"].as_str(), revoked["unconfirmed_replicas"].as_array().map(Vec::len)),
        (Some("revoked"), Some(0))
    );
    let at_return = bench
        .site
        .query("SELECT count(*) FROM receipts WHERE secret_no IN (SELECT secret_no FROM revoked_secrets)");
    let sent = next.load(Ordering::SeqCst);
    eventually("the senders go on for a while", PATIENCE, async || {
        (next.load(Ordering::SeqCst) > sent + 200 && returned.elapsed() > GRACE + GRACE).then_some(())
    })
    .await;
    stop.store(true, Ordering::SeqCst);

    let shots: Vec<Shot> = bad.join_all().await.into_iter().flatten().collect();
    let late = shots.iter().filter(|shot| shot.accepted && shot.answered > returned + GRACE).count();
    assert_eq!(late, 0, "accepted later than a second after the call returned");
    let after = shots.iter().filter(|shot| shot.accepted && shot.sent > returned).count();
    assert_eq!(after, 0, "sent after the call returned, and accepted");
    assert!(shots.iter().any(|shot| shot.accepted), "it verified before");
    let refused: Vec<_> = shots.iter().filter(|shot| shot.sent > returned).collect();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|shot| shot.reason == "SECRET_REVOKED"), "each is told why");
    let count = bench
        .site
        .query("SELECT count(*) FROM receipts WHERE secret_no IN (SELECT secret_no FROM revoked_secrets)");
    assert_eq!(count, at_return, "the database holds none that was committed later");
    let genuine: Vec<Shot> = genuine.join_all().await.into_iter().flatten().collect();
    assert!(genuine.iter().all(|shot| shot.accepted), "the other secret verifies all the time");
}

/// Requests that lie in a gateway's sockets while it is stopped.
struct Waiting(Vec<TcpStream>);

impl Waiting {
    async fn at(gateway: &Gateway, provider: &Provider, secret: &str, ids: &[String]) -> Self {
        let mut streams = Vec::new();
        for id in ids {
            let signed = signed(provider, secret, id);
            let mut head = format!(
                "POST {} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
                provider.source.path,
                signed.body.len()
            );
            for (name, value) in &signed.headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
            let mut stream = TcpStream::connect(gateway.edge_address()).await.expect("the kernel takes it");
            stream.write_all(head.as_bytes()).await.expect("written");
            stream.write_all(&signed.body).await.expect("written");
            streams.push(stream);
        }
        Self(streams)
    }

    /// The status of each answer.
    async fn answers(self) -> Vec<u16> {
        let mut answers = Vec::new();
        for mut stream in self.0 {
            let mut text = String::new();
            let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text)).await;
            read.expect("an answer in time").expect("an answer");
            answers.push(text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"));
        }
        answers
    }
}

fn ids(prefix: &str) -> Vec<String> {
    (0..12).map(|n| format!("{}_{n}", unique(prefix))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_gateway_is_named_and_refuses_what_lay_in_its_sockets_when_it_goes_on() {
    let mut bench = Bench::start().await;
    let (id, leaked) = bench.leaked().await;
    let before = ids("before");
    let stop = Arc::new(AtomicBool::new(false));
    let hammering = tokio::spawn(hammer(
        bench.providers[2].clone(),
        leaked.clone(),
        Arc::clone(&stop),
        Arc::new(AtomicU64::new(0)),
    ));
    // Some are in its hands when it is stopped, the others in its sockets.
    let early = Waiting::at(&bench.gateways[2], &bench.providers[2], &leaked, &before).await;
    bench.gateways[2].signal("STOP");
    let waiting = ids("waiting");
    let late = Waiting::at(&bench.gateways[2], &bench.providers[2], &leaked, &waiting).await;

    let operator = Operator::at(&bench.gateways[0]);
    let words = format!("secret revoke acme stripe {id} --wait");
    let told = tokio::task::spawn_blocking(move || operator.run(&words)).await.expect("no panic");
    assert_eq!(told.status.code(), Some(69), "{}", said(&told));
    let name = bench.gateways[2].log.path.file_stem().expect("a name").to_string_lossy().into_owned();
    assert!(said(&told).contains(&name), "it is named: {}", said(&told));
    assert!(said(&told).contains("the database refuses"), "{}", said(&told));
    let named: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(named["unconfirmed_replicas"], serde_json::json!([name]));

    let stored = bench.stored();
    assert!(waiting.iter().all(|id| !stored.contains(id)));
    bench.gateways[2].signal("CONT");
    for status in late.answers().await {
        assert!([401, 503].contains(&status), "{status}");
    }
    early.answers().await;
    stop.store(true, Ordering::SeqCst);
    hammering.await.expect("no panic");
    assert_eq!(bench.stored(), stored, "nothing was accepted after the call");
    let refused = eventually("it knows of it", PATIENCE, async || {
        let answer = bench.providers[2].try_post(&signed(&bench.providers[2], &leaked, "evt_late")).await?;
        (answer.status != 503).then_some(answer)
    })
    .await;
    assert_eq!((refused.status, refused.reason().as_str()), (401, "SECRET_REVOKED"));
    let good =
        bench.providers[2].deliver(&signed(&bench.providers[2], &bench.good, "evt_good"), PATIENCE).await;
    assert!(good.is_success());
}

/// Paused so shortly that it still trusts its configuration: the database refuses what it takes for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_has_not_heard_of_a_revocation_accepts_nothing() {
    let mut bench = Bench::start().await;
    for _ in 0..3 {
        let (id, leaked) = bench.leaked().await;
        bench.gateways[1].signal("STOP");
        let waiting = ids("waiting");
        let requests = Waiting::at(&bench.gateways[1], &bench.providers[1], &leaked, &waiting).await;
        let name = format!("{}/secrets/{id}", bench.setup.stripe.name);
        let request = v1::RevokeSecretRequest { name, ..v1::RevokeSecretRequest::default() };
        bench.setup.admin.revoke_secret(request).await.expect("revoked");
        bench.gateways[1].signal("CONT");
        let answers = requests.answers().await;
        assert!(answers.iter().all(|status| [401, 503].contains(status)), "{answers:?}");
        let stored = bench.stored();
        assert!(waiting.iter().all(|id| !stored.contains(id)));
    }
}

/// Its secrets were not revoked: the source itself is what the database looks at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_has_not_heard_of_a_sources_deletion_accepts_nothing_for_it() {
    let mut bench = Bench::start().await;
    for round in 0..3 {
        let (admin, preset) = (&mut bench.setup.admin, Recipe::preset("stripe").expect("a preset"));
        let verification = v1::source::Verification::Preset("stripe".to_owned());
        let id = format!("gone-{round}");
        let source = Source::without_secret(admin, "acme", &id, verification, preset).await;
        let secret = source.add_secret(admin, "").await.value;
        bench.gateways[1].is_up_to_date().await;
        let provider = Provider::new(&bench.gateways[1], &source);
        let taken = provider.post(&signed(&provider, &secret, &unique("taken"))).await;
        assert_eq!(taken.field("status"), "accepted", "{taken:?}");

        bench.gateways[1].signal("STOP");
        let waiting = ids("waiting");
        let requests = Waiting::at(&bench.gateways[1], &provider, &secret, &waiting).await;
        let request = v1::DeleteSourceRequest { name: source.name.clone(), ..Default::default() };
        bench.setup.admin.delete_source(request).await.expect("deleted");
        bench.gateways[1].signal("CONT");
        let answers = requests.answers().await;
        assert!(answers.iter().all(|status| [404, 503].contains(status)), "{answers:?}");
        let stored = bench.stored();
        assert!(waiting.iter().all(|id| !stored.contains(id)));
    }
}

on_each_store!(an_accepted_event_that_comes_again_under_a_revoked_secret_is_refused_and_still_delivered);

async fn an_accepted_event_that_comes_again_under_a_revoked_secret_is_refused_and_still_delivered(
    kind: Kind,
) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    let request = signed(&provider, &setup.stripe.secret, "evt_1");
    assert_eq!(provider.post(&request).await.field("status"), "accepted");
    let id = setup.receipt("evt_1").await.expect("a receipt").secret;
    let operator = Operator::at(&gateway);
    let revoked = operator.json(&format!("secret revoke acme stripe {id} --wait"));
    assert_eq!(revoked["state"], "revoked");
    let again = provider.post(&request).await;
    assert_eq!((again.status, again.reason().as_str()), (401, "SECRET_REVOKED"), "{again:?}");
    assert_eq!(
        operator.json(&format!("secret revoke acme stripe {id}"))["revoke_time"],
        revoked["revoke_time"]
    );

    let rejections = operator.run("rejection list acme stripe");
    assert!(said(&rejections).contains("SECRET_REVOKED"), "{}", said(&rejections));
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(1, PATIENCE).await;
    consumer.stop().await;
    operator.json(&format!("secret delete acme stripe {id}"));
    let gone = eventually("the secret is gone", PATIENCE, async || {
        let answer = provider.post(&request).await;
        (answer.reason() == "NO_ACTIVE_SECRET").then_some(answer)
    })
    .await;
    assert_eq!(gone.status, 401);
}
