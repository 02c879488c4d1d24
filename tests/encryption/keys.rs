//! Keys that change while events flow.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::{PATIENCE, fail, run, status_of, succeed, tenant};
use crate::harness::{Consumer, Gateway, Kind, Setup, Site, stripe_event};
use crate::kinds::on_each_store;

/// Enough for a run that can be stopped in the middle.
const TENANTS: u64 = 60;

on_each_store!(a_keyring_that_lacks_a_key_which_a_tenant_needs_is_refused_at_start);

async fn a_keyring_that_lacks_a_key_which_a_tenant_needs_is_refused_at_start(kind: Kind) {
    let site = Site::new(kind);
    let mut gateway = Gateway::start(&site).await;
    Setup::new(&gateway).await;
    gateway.terminate();
    gateway.ended(PATIENCE).await;
    site.succeed(&["keyring", "generate", "other.json", "--id", "v9"]);
    for roles in ["edge", "stream", "admin"] {
        let other = Gateway::new(&site).set("KEYRING__PATH", site.path("other.json")).set("ROLES", roles);
        let said = fail(&other, &["serve"]);
        assert!(said.contains("lacks the key v1") && said.contains("1 tenant"), "{roles}: {said}");
    }
    site.succeed(&["keyring", "generate", "stranger.json"]);
    let stranger = Gateway::new(&site).set("KEYRING__PATH", site.path("stranger.json"));
    let said = fail(&stranger, &["serve"]);
    assert!(said.contains("the keyring's key v1 opens nothing"), "{said}");
    assert_eq!(status_of(&gateway, "v1"), ("active".to_owned(), 1));
    let other = Gateway::new(&site).set("KEYRING__PATH", site.path("other.json"));
    assert_eq!(status_of(&other, "v1"), ("missing".to_owned(), 1));
    let said = fail(&other, &["keyring", "rewrap"]);
    assert!(said.contains("has no key v1") && said.contains("1 data keys could not be opened"), "{said}");
    gateway.launch().await;
}

/// Starts `keyring rewrap` one data key at a time, kills it in the middle, and says how far it had come.
fn rewrap_and_kill(gateway: &Gateway, after: &str) {
    let mut command = gateway.command();
    command.args(["keyring", "rewrap", "--batch", "1"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let reached = lines.map_while(Result::ok).any(|line| line.starts_with(after));
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(reached, "it ended before it was killed");
}

async fn restart(gateway: &mut Gateway) {
    gateway.terminate();
    gateway.ended(PATIENCE).await;
    gateway.launch().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_replaced_while_events_flow_and_rewrapping_goes_on_where_it_was_killed() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    for n in 1..TENANTS {
        tenant(&mut setup, &format!("tenant-{n}")).await;
    }
    let provider = setup.provider(&gateway);
    let flowing = tokio::spawn(async move {
        for sequence in 0..60 {
            let event = provider.sign(&stripe_event(&format!("evt_{sequence}"), "a", sequence));
            provider.deliver(&event, PATIENCE).await;
        }
    });
    let keyring = site.path("keyring.json");
    site.succeed(&["keyring", "add", &keyring]);
    restart(&mut gateway).await;
    site.succeed(&["keyring", "activate", &keyring, "v2"]);
    restart(&mut gateway).await;

    rewrap_and_kill(&gateway, "wrapped 3 of");
    let (old, new) = (status_of(&gateway, "v1"), status_of(&gateway, "v2"));
    assert!(old.1 > 0 && new.1 >= 3 && old.1 + new.1 == TENANTS, "{old:?}, {new:?}");
    let refused = run(&gateway, &["keyring", "remove", &keyring, "v1"]);
    assert_eq!(refused.status.code(), Some(64), "data keys still need it");
    rewrap_and_kill(&gateway, "wrapped 2 of");
    succeed(&gateway, &["keyring", "rewrap", "--batch", "7"]);
    assert_eq!((status_of(&gateway, "v1").1, status_of(&gateway, "v2").1), (0, TENANTS));
    assert!(succeed(&gateway, &["keyring", "rewrap"]).starts_with("0 data keys"), "nothing is left");
    succeed(&gateway, &["keyring", "remove", &keyring, "v1"]);
    restart(&mut gateway).await;

    flowing.await.expect("every event is accepted");
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(60, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
}

/// It could not open what is wrapped under a key that it does not know, and what it wraps later could be lost with its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_changed_only_where_every_gateway_that_runs_has_the_active_one() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let keyring = site.path("keyring.json");
    site.succeed(&["keyring", "rotate", &keyring]);
    for change in
        [&["keyring", "rewrap"][..], &["keyring", "rotate-data-keys"], &["keyring", "remove", &keyring, "v1"]]
    {
        let refused = run(&gateway, change);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(64), "{change:?}: {said}");
        assert!(said.contains("these gateways") && said.contains("Restart"), "{change:?}: {said}");
    }
    tenant(&mut setup, "globex").await;
    assert_eq!(status_of(&gateway, "v1").1, 2, "it goes on with the key that it has");

    restart(&mut gateway).await;
    succeed(&gateway, &["keyring", "rewrap"]);
    succeed(&gateway, &["keyring", "remove", &keyring, "v1"]);
    restart(&mut gateway).await;
}

/// Made on each machine instead of copied, so that the files agree in everything but the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_another_gateway_has_otherwise_is_refused_before_anything_is_wrapped_under_it() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::start(&site).await;
    Setup::new(&gateway).await;
    let (keyring, apart) = (site.path("keyring.json"), site.path("apart.json"));
    std::fs::copy(&keyring, &apart).expect("copied with its mode");
    site.succeed(&["keyring", "rotate", &keyring]);
    site.succeed(&["keyring", "rotate", &apart]);
    restart(&mut gateway).await;
    let other = Gateway::new(&site).set("KEYRING__PATH", &apart);
    let said = fail(&other, &["serve"]);
    assert!(said.contains("runs with another key v2 than this keyring has"), "{said}");
    for change in [&["keyring", "rewrap"][..], &["keyring", "rotate-data-keys"]] {
        let said = fail(&other, change);
        assert!(said.contains("these gateways have another active key"), "{change:?}: {said}");
    }
    succeed(&gateway, &["keyring", "rewrap"]);
    gateway.terminate();
    gateway.ended(PATIENCE).await;
    let said = fail(&other, &["keyring", "rotate-data-keys"]);
    assert!(said.contains("the keyring's key v2 opens nothing"), "nobody runs who could tell: {said}");
    gateway.launch().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_data_keys_seal_what_comes_and_the_old_ones_open_what_came() {
    let site = Site::new(Kind::Postgres);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    tenant(&mut setup, "globex").await;
    let provider = setup.provider(&gateway);
    let before = "2100-01-01T00:00:00Z";
    for sequence in 0..3 {
        assert!(provider.send(&stripe_event(&format!("evt_{sequence}"), "a", sequence)).await.is_success());
    }
    let version = |table: &str, column: &str| {
        site.query(&format!("SELECT DISTINCT get_byte({column}, 2) FROM {table} ORDER BY 1"))
    };
    assert_eq!((version("events", "content"), version("secrets", "sealed")), ("1".into(), "1".into()));
    let said = succeed(&gateway, &["keyring", "rotate-data-keys", "--output", "json"]);
    assert_eq!(said.trim(), r#"{"tenants":2,"secrets":1,"settings":0,"failed":0}"#);
    assert_eq!(version("secrets", "sealed"), "2", "secrets are sealed again at once");
    let sealed = async |id: &str, sequence: usize| {
        assert!(provider.send(&stripe_event(id, "a", sequence)).await.is_success(), "the secret verifies");
        version("events", "content")
    };
    let mut next = 3;
    crate::harness::eventually("events are sealed with the new key", PATIENCE, async || {
        let seen = sealed(&format!("evt_{next}"), next).await;
        next += 1;
        (seen == "1\n2").then_some(())
    })
    .await;
    let nothing = ["keyring", "rotate-data-keys", "--before", "2020-01-01T00:00:00Z", "--output", "json"];
    assert_eq!(
        succeed(&gateway, &nothing).trim(),
        r#"{"tenants":0,"secrets":0,"settings":0,"failed":0}"#,
        "a finished run goes on with nothing"
    );
    let all = ["keyring", "rotate-data-keys", "--before", before, "--batch", "1"];
    assert!(succeed(&gateway, &all).starts_with("2 tenants"));
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(next, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
}

/// Each rotation leaves a version behind, because it still opens events, so one day a tenant has as many as it can have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_can_have_no_further_data_key_holds_up_nobody_else() {
    let site = Site::new(Kind::Postgres);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    let rotate = ["keyring", "rotate-data-keys", "--before", "2100-01-01T00:00:00Z", "--output", "json"];
    for _ in 1..16 {
        succeed(&gateway, &rotate);
    }
    tenant(&mut setup, "globex").await;
    let run = run(&gateway, &rotate);
    let (told, said) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let told: serde_json::Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}{said}"));
    assert_eq!((&told["tenants"], &told["failed"]), (&1.into(), &1.into()), "{said}");
    assert!(said.contains("tenants/acme keeps its data key: the tenant has 16 data keys"), "{said}");
    assert_eq!(run.status.code(), Some(1));
    let event = provider.sign(&stripe_event("evt_after", "a", 0));
    provider.deliver(&event, PATIENCE).await;
}
