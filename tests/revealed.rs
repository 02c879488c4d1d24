//! A secret that a provider's handshake brings: stored, shown to a person once, and verified with.

use std::process::Output;
use std::time::Duration;

use portero_recipe::Recipe;
use serde_json::{Value, json};

use crate::harness::{Consumer, Gateway, Kind, Provider, Setup, Signed, Site, Source};
use crate::kinds::on_each_store;

const TOKEN: &str = "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl";
const PATIENCE: Duration = Duration::from_secs(20);

on_each_store!(notions_token_is_stored_revealed_once_and_verifies);

async fn notions_token_is_stored_revealed_once_and_verifies(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    Setup::new(&gateway).await;
    let admin = |words: &str| admin(&site, &gateway, words);

    let created = json_of(&admin("source create acme wiki --preset notion --secret-window 1h"));
    let source = Source {
        name: text(&created["name"]),
        path: text(&created["ingest_path"]),
        secret: TOKEN.to_owned(),
        recipe: Recipe::preset("notion").expect("a preset"),
    };
    let provider = Provider::new(&gateway, &source);
    let first = json!({ "verification_token": TOKEN }).to_string().into_bytes();
    let first = Signed { headers: Vec::new(), body: first };
    let answer = provider.post(&first).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let late = provider.post(&first).await;
    assert_eq!(late.status, 401, "the source waits no longer: {late:?}");

    let listed = admin("secret list acme wiki");
    assert!(!said(&listed).contains(TOKEN));
    let secret = json_of(&listed);
    assert_eq!((&secret["unseen"], &secret["state"]), (&json!(true), &json!("active")));
    let reveal = format!("secret reveal acme wiki {}", text(&secret["secret"]));
    let revealed = json_of(&admin(&reveal));
    assert_eq!((&revealed["value"], &revealed["unseen"]), (&json!(TOKEN), &json!(false)));

    let again = admin(&reveal);
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
    assert!(said(&again).contains("only once") && !said(&again).contains(TOKEN), "{}", said(&again));
    assert_eq!(json_of(&admin("secret list acme wiki"))["unseen"], json!(false));
    let log = gateway.log.text();
    assert_eq!(gateway.log.count("the secret that a handshake brought was shown, this once"), 1, "{log}");
    assert!(!log.contains(TOKEN), "{log}");

    let event = json!({ "id": "n1", "type": "page.created", "entity": { "id": "p1", "type": "page" } });
    let accepted = provider.send(&event.to_string().into_bytes()).await;
    assert_eq!(accepted.field("status"), "accepted", "{accepted:?}");
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(1, PATIENCE).await;
    consumer.stop().await;
}

/// A command of an administrator, which answers in JSON.
fn admin(site: &Site, gateway: &Gateway, words: &str) -> Output {
    let token = site.path("admin.token");
    std::fs::write(&token, site.admin_token()).expect("written");
    let words: Vec<_> = words.split(' ').collect();
    let endpoint = gateway.grpc_url();
    site.run(&[&words[..], &["--output", "json", "--endpoint", &endpoint, "--token-file", &token]].concat())
}

fn said(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).expect("text")
}

/// The one line that it answered with.
fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}
