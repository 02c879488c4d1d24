//! Secrets that overlap, are retired, and are made for many sources at once.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portero_client::v1;
use portero_recipe::SignOptions;
use portero_types::Timestamp;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::harness::{
    Answer, Gateway, Kind, Process, Provider, Setup, Signed, Site, Source, canaries, eventually, now,
    stripe_event, unique,
};
use crate::kinds::on_each_store;
use crate::operator::{Operator, said};

const OVERLAP: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(30);
const SENDERS: u64 = 6;

/// With what the provider signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Signer {
    Old,
    /// As Stripe does while a secret is rolled: the header lists a signature of each.
    Both,
    New,
}

/// A provider whose people switch it over when they please.
struct Stripe {
    provider: Provider,
    old: String,
    new: Mutex<String>,
    /// 0: old, 1: both, 2: new.
    switch: AtomicU8,
    next: AtomicU64,
    accepted: Mutex<Vec<(String, Signer)>>,
}

impl Stripe {
    fn signer(&self) -> Signer {
        [Signer::Old, Signer::Both, Signer::New][usize::from(self.switch.load(Ordering::SeqCst))]
    }

    /// Signs a new event with what is in use now.
    fn sign(&self) -> (String, Signer, Signed) {
        let signer = self.signer();
        let id = format!("evt_{}", self.next.fetch_add(1, Ordering::SeqCst));
        let body = stripe_event(&id, &id, 0);
        let new = self.new.lock().expect("unpoisoned").clone();
        let options = SignOptions { now: now(), ..SignOptions::default() };
        let signed = match signer {
            Signer::Old => self.provider.sign_with(&self.old, &body, options),
            Signer::New => self.provider.sign_with(&new, &body, options),
            Signer::Both => {
                let mut signed = self.provider.sign_with(&self.old, &body, options);
                let other = self.provider.sign_with(&new, &body, options);
                let second = v1_of(&other);
                for (name, value) in &mut signed.headers {
                    if name.eq_ignore_ascii_case("stripe-signature") {
                        value.push_str(&format!(",v1={second}"));
                    }
                }
                signed
            }
        };
        (id, signer, signed)
    }

    /// Sends a request that is genuine and must be taken.
    async fn must_be_taken(&self, id: String, signer: Signer, signed: &Signed) {
        let answer = self.provider.deliver_unless_refused(signed).await;
        assert!(answer.is_success(), "{id}, signed with {signer:?}, was refused: {answer:?}");
        self.accepted.lock().expect("unpoisoned").push((id, signer));
    }

    /// Sends events until `end`. What the provider signed and could not deliver at once comes later with its first signature.
    async fn send_until(self: Arc<Self>, end: Timestamp) {
        let mut held: Vec<(String, Signer, Signed)> = Vec::new();
        for round in 0_u64.. {
            if now() >= end {
                break;
            }
            let (id, signer, signed) = self.sign();
            if round % 4 == 0 && held.len() < 40 {
                held.push((id, signer, signed));
                continue;
            }
            self.must_be_taken(id, signer, &signed).await;
            if round % 5 == 0 && held.len() > 3 {
                let (id, signer, signed) = held.remove(0);
                self.must_be_taken(id, signer, &signed).await;
            }
        }
    }
}

impl Provider {
    /// Posts until there is an answer that is the provider's to act upon: taken, or refused for good.
    async fn deliver_unless_refused(&self, signed: &Signed) -> Answer {
        for _ in 0..100 {
            match self.try_post(signed).await {
                Some(answer) if answer.status < 500 && answer.status != 429 => return answer,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        panic!("the gateway does not answer");
    }
}

fn v1_of(signed: &Signed) -> String {
    let header = signed.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("stripe-signature"));
    let (_, value) = header.expect("a signature");
    value.split(',').find_map(|pair| pair.strip_prefix("v1=")).expect("v1").to_owned()
}

on_each_store!(a_stripe_secret_is_rotated_under_load_while_the_provider_switches_when_it_pleases);

async fn a_stripe_secret_is_rotated_under_load_while_the_provider_switches_when_it_pleases(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let stripe = Arc::new(Stripe {
        provider: setup.provider(&gateway),
        old: setup.stripe.secret.clone(),
        new: Mutex::default(),
        switch: AtomicU8::new(0),
        next: AtomicU64::new(0),
        accepted: Mutex::default(),
    });
    let (id, signer, signed) = stripe.sign();
    stripe.must_be_taken(id.clone(), signer, &signed).await;
    let old_id = setup.receipt(&id).await.expect("a receipt").secret;

    let request = v1::RotateSecretRequest {
        parent: setup.stripe.name.clone(),
        secret_id: "new".to_owned(),
        overlap: Some(prost_types::Duration::try_from(OVERLAP).expect("fits")),
        wait: true,
        ..v1::RotateSecretRequest::default()
    };
    let rotated = setup.admin.rotate_secret(request).await.expect("rotated").into_inner();
    assert_eq!(rotated.unconfirmed_replicas, Vec::<String>::new());
    let new = rotated.secret.expect("a secret").value;
    canaries::plant_secret(&new);
    assert_ne!(stripe.old, new);
    *stripe.new.lock().expect("unpoisoned") = new;
    let end = rotated.retiring[0].not_after.expect("an end");
    let end = Timestamp::from_micros(end.seconds * 1_000_000 + i64::from(end.nanos) / 1_000);

    let mut senders = JoinSet::new();
    for _ in 0..SENDERS {
        // What is under way when the overlap ends is decided by when it was received.
        senders.spawn(Arc::clone(&stripe).send_until(end.minus(Duration::from_secs(2))));
    }
    let moment = |part: u64| OVERLAP.mul_f64(f64::from(u8::try_from(part).expect("small")) / 255.0);
    // People click when they please: at two random moments of the overlap's first three quarters.
    let random = u64::from_ne_bytes(site_random());
    let (first, second) = (moment(random & 0x5f), moment((random >> 8) & 0x5f));
    tokio::time::sleep(first).await;
    stripe.switch.store(1, Ordering::SeqCst);
    tokio::time::sleep(second).await;
    stripe.switch.store(2, Ordering::SeqCst);
    while let Some(sender) = senders.join_next().await {
        sender.expect("every genuine request is taken in the overlap");
    }

    after_the_end(&stripe, end).await;
    receipts_say_which(&mut setup, &stripe, &old_id).await;
    uses_add_up(&Operator::at(&gateway), &stripe, &old_id).await;
}

/// Two bytes that differ from run to run.
fn site_random() -> [u8; 8] {
    let stamp = now().as_micros().unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (stamp >> 13).to_ne_bytes()
}

/// Nothing that the old secret signed is taken, and everything that the new one did.
async fn after_the_end(stripe: &Stripe, end: Timestamp) {
    let by = |secret: &str, id: &str| {
        let options = SignOptions { now: now(), ..SignOptions::default() };
        stripe.provider.sign_with(secret, &stripe_event(id, id, 0), options)
    };
    eventually("the overlap ends", PATIENCE, async || (now() > end).then_some(())).await;
    let new = stripe.new.lock().expect("unpoisoned").clone();
    for n in 0..50 {
        let refused = stripe.provider.deliver_unless_refused(&by(&stripe.old, &format!("late_{n}"))).await;
        assert_eq!((refused.status, refused.reason().as_str()), (401, "SECRET_RETIRED"), "{refused:?}");
        let id = format!("after_{n}");
        stripe.must_be_taken(id.clone(), Signer::New, &by(&new, &id)).await;
    }
    // An accepted event that comes again under the old signature is refused like any other.
    let repeated = by(&stripe.old, "evt_0");
    assert_eq!(stripe.provider.deliver_unless_refused(&repeated).await.reason(), "SECRET_RETIRED");
}

/// The newest secret that verifies is the one that is named.
async fn receipts_say_which(setup: &mut Setup, stripe: &Stripe, old_id: &str) {
    let accepted = stripe.accepted.lock().expect("unpoisoned").clone();
    let mut looked_at: BTreeMap<Signer, usize> = BTreeMap::new();
    for (id, signer) in accepted {
        let count = looked_at.entry(signer).or_default();
        *count += 1;
        if *count > 60 {
            continue;
        }
        let secret = setup.receipt(&id).await.expect("a receipt").secret;
        let wanted = if signer == Signer::Old { old_id } else { "new" };
        assert_eq!(secret, wanted, "{id} was signed with {signer:?}");
    }
    assert!(looked_at.contains_key(&Signer::Old) && looked_at.contains_key(&Signer::New), "{looked_at:?}");
}

/// Each request is counted once, for the secret that its receipt names.
async fn uses_add_up(operator: &Operator, stripe: &Stripe, old_id: &str) {
    let accepted = stripe.accepted.lock().expect("unpoisoned").clone();
    let by_old = accepted.iter().filter(|(_, signer)| *signer == Signer::Old).count();
    for (id, wanted) in [(old_id, by_old), ("new", accepted.len() - by_old)] {
        let shown = eventually("uses are written down", PATIENCE, async || {
            let shown = operator.json(&format!("secret show acme stripe {id}"));
            (shown["uses"] == wanted).then_some(shown)
        })
        .await;
        let days = shown["days"].as_array().expect("days");
        assert_eq!(days.iter().filter_map(|day| day["uses"].as_u64()).sum::<u64>(), wanted as u64);
        assert!(shown["first_use_time"].is_string() && shown["last_use_time"].is_string(), "{shown}");
    }
    let new = operator.json("secret show acme stripe new");
    assert_eq!(new["safe_to_retire"], false, "{new}");
    let old = operator.json(&format!("secret show acme stripe {old_id}"));
    assert_eq!(
        (old["state"].as_str(), old["safe_to_retire"].as_bool()),
        (Some("retired"), Some(true)),
        "{old}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_secret_is_said_and_never_repeated() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    Setup::new(&gateway).await;
    let operator = Operator::at(&gateway);
    let file = site.path("pasted");
    for (value, words) in [
        ("whsec_tooShort", "fewer than 16 bytes"),
        ("whsec_4f1c9a70b2e35d68\nwhsec_88a1c0ffee123456", "line break"),
        ("whsec_4f1c9a70b2e35d68 88a1c0ffee123456", "white space"),
        ("whsec_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "repeats one character"),
    ] {
        std::fs::write(&file, format!("{value}\n")).expect("written");
        for command in ["create", "rotate"] {
            let refused = operator.run(&format!("secret {command} acme stripe --value-file {file}"));
            let told = said(&refused);
            assert!(!refused.status.success() && told.contains(words), "{told}");
            assert!(!told.contains(value) && !told.contains(&value[6..]), "{told}");
        }
    }
    for n in 2..=8 {
        operator.json(&format!("secret create acme stripe --id s{n}"));
    }
    let ninth = operator.run("secret create acme stripe --id s9");
    assert!(
        !ninth.status.success() && said(&ninth).contains("retire or revoke one first"),
        "{}",
        said(&ninth)
    );
    let gone = operator.run("secret delete acme stripe s8");
    assert!(said(&gone).contains("retire it, or revoke it, before it is deleted"), "{}", said(&gone));
    operator.json("secret retire acme stripe s8");
    operator.json("secret delete acme stripe s8");
    operator.json("secret create acme stripe --id s9");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bulk_rotation_that_is_killed_goes_on_where_it_stopped() {
    const SOURCES: usize = 30;
    let site = Site::new(Kind::Postgres);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let mut sources = Vec::new();
    for n in 0..SOURCES {
        let preset = v1::source::Verification::Preset("stripe".to_owned());
        let recipe = Arc::clone(&setup.stripe.recipe);
        let id = format!("shop-{n}");
        let source = Source::without_secret(&mut setup.admin, "acme", &id, preset, recipe).await;
        source.add_secret(&mut setup.admin, "").await;
        sources.push(source);
    }
    let operator = Operator::at(&gateway);
    let words =
        "secret rotate-all --tenant acme --source-prefix shop- --secret-id march --values-out march.jsonl";
    let dry = operator.run(&format!("{words} --dry-run"));
    assert_eq!(said(&dry).matches("would_rotate").count(), SOURCES, "{}", said(&dry));
    assert!(!std::path::Path::new(&site.path("march.jsonl")).exists(), "nothing was written");

    let mut command = operator.command(&words.split(' ').collect::<Vec<_>>());
    let mut process = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let values = || std::fs::read_to_string(site.path("march.jsonl")).unwrap_or_default();
    eventually("it is at work", PATIENCE, async || (values().lines().count() >= 3).then_some(())).await;
    assert!(process.exited().is_none(), "it was to be killed at work");
    process.kill();

    let second = operator.run(words);
    canaries::plant_files(&site.folder_path());
    assert!(second.status.success(), "{}", said(&second));
    assert!(
        said(&second).contains("\"already\""),
        "what was done before is not done again: {}",
        said(&second)
    );
    assert!(!said(&second).contains("whsec_"), "values go to the file alone");
    let lines: Vec<Value> =
        values().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), SOURCES, "one value for each source");
    for source in &sources {
        let line = lines.iter().find(|line| line["source"] == source.name.as_str()).expect("a line");
        let value = line["value"].as_str().expect("a value");
        let provider = Provider::new(&gateway, source);
        let options = SignOptions { now: now(), ..SignOptions::default() };
        let id = unique("evt");
        let signed = provider.sign_with(value, &stripe_event(&id, &id, 0), options);
        let answer = provider.deliver(&signed, PATIENCE).await;
        assert!(answer.is_success(), "{answer:?}");
    }
    let lost = operator.run(&words.replace("march.jsonl", "other.jsonl"));
    assert_eq!(lost.status.code(), Some(1), "{}", said(&lost));
    assert_eq!(said(&lost).matches("\"failed\"").count(), SOURCES, "{}", said(&lost));
    assert!(said(&lost).contains("another --secret-id"), "{}", said(&lost));
    let other = std::fs::read_to_string(site.path("other.jsonl")).expect("made");
    assert_eq!(other, "", "no value that verifies nowhere");
    let listed = operator.run("secret list acme shop-7");
    let states: Vec<_> = said(&listed)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|secret| secret["state"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(states.iter().filter(|state| *state == "retiring").count(), 1, "{states:?}");
    assert_eq!(states.iter().filter(|state| *state == "active").count(), 1, "{states:?}");
}
