//! Why a request is refused: told on the command line without a gateway, and by a gateway about what it refused.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Gateway, Kind, Setup, Site, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

const SECRET: &str = "whsec_offlineSampleNotBase64Decoded";
const SIGNATURE: &str = "a852e854eb0e418e39f51022ea0877df23f17bbb8cc44fb73e45a757340f32ca";

/// A line of the signed samples.
fn sample(provider: &str, case: &str) -> String {
    let mark = format!("{{\"provider\": \"{provider}\", \"case\": \"{case}\"");
    let lines = include_str!("cases/signed-samples.jsonl").lines();
    lines.filter(|line| line.starts_with(&mark)).collect()
}

fn write(site: &Site, name: &str, content: &str) -> String {
    let path = site.path(name);
    std::fs::write(&path, content).expect("written");
    path
}

fn words(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).expect("text")
}

/// `portero verify` of a Stripe sample.
fn verify(site: &Site, request: &str, secret: &str, more: &[&str]) -> Output {
    let (request, secret) = (write(site, "request", request), write(site, "secret", secret));
    let arguments = ["verify", "--preset", "stripe", "--request", &request, "--secret-file", &secret];
    let output = site.run(&[&arguments, more].concat());
    let said = words(&output.stdout) + &words(&output.stderr);
    assert!(!said.contains(SECRET) && !said.contains(SIGNATURE), "{said}");
    output
}

#[test]
fn verify_ends_with_0_1_or_64_and_says_which_step_failed() {
    let site = Site::new(Kind::Sqlite);
    let request = sample("stripe", "snapshot");
    let good = verify(&site, &request, SECRET, &["--at", "2025-06-15T15:06:40Z"]);
    assert_eq!(good.status.code(), Some(0), "{}", words(&good.stderr));
    let text = words(&good.stdout);
    assert!(text.contains("✓ signature") && text.contains("evt_1OracleA"), "{text}");
    assert!(text.ends_with("✓ verified by secret 1\n"), "{text}");

    let stale = verify(&site, &request, SECRET, &["--at", "1750000301"]);
    assert_eq!(stale.status.code(), Some(1));
    let text = words(&stale.stdout);
    assert!(text.contains("✗ time") && text.contains("301 s before now"), "{text}");
    let wrong = verify(&site, &request, "another secret, long enough", &["--at", "1750000000", "-o", "json"]);
    assert_eq!(wrong.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&wrong.stdout).expect("JSON");
    assert_eq!((&json["verdict"], &json["reason"]), (&json!("refused"), &json!("SIGNATURE_MISMATCH")));

    assert_eq!(verify(&site, "no request", SECRET, &[]).status.code(), Some(64));
    assert_eq!(verify(&site, &request, "\n", &[]).status.code(), Some(64));
    assert_eq!(verify(&site, &request, SECRET, &["--at", "yesterday"]).status.code(), Some(2), "clap's own");
}

#[test]
fn raw_http_is_read_byte_by_byte() {
    let site = Site::new(Kind::Sqlite);
    let line: Value = serde_json::from_str(&sample("github", "plain")).expect("JSON");
    let body = STANDARD.decode(line["body_base64"].as_str().expect("text")).expect("base64");
    let mut request = b"POST /in/0 HTTP/1.1\r\n".to_vec();
    for (name, value) in line["headers"].as_object().expect("headers") {
        request.extend(format!("{name}: {}\r\n", value.as_str().expect("text")).bytes());
    }
    request.extend(b"\r\n");
    request.extend(body);
    let file = site.path("raw");
    let secret = write(&site, "secret", line["secret"].as_str().expect("text"));
    let arguments = ["verify", "--preset", "github", "--request", &file, "--secret-file", &secret];
    std::fs::write(&file, &request).expect("written");
    site.succeed(&arguments);
    request.push(b'\n');
    std::fs::write(&file, &request).expect("written");
    let output = site.run(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(words(&output.stdout).contains("line end"), "{}", words(&output.stdout));
}

#[test]
fn every_provider_is_listed_and_shown() {
    let site = Site::new(Kind::Sqlite);
    let listed = site.succeed(&["provider", "list", "-o", "json"]);
    let mut names = Vec::new();
    for line in listed.lines() {
        let provider: Value = serde_json::from_str(line).expect("JSON");
        names.push(provider["name"].as_str().expect("text").to_owned());
    }
    assert!(names.len() >= 60, "{}", names.len());
    for name in ["stripe", "twilio", "aws-sns"] {
        assert!(names.iter().any(|have| have == name), "{name}");
        assert!(site.succeed(&["provider", "show", name]).contains("Set up:"), "{name}");
    }
    let recipe = write(&site, "own.json", &site.succeed(&["provider", "show", "stripe", "--recipe"]));
    let (request, secret) =
        (write(&site, "request", &sample("stripe", "snapshot")), write(&site, "secret", SECRET));
    let own = ["verify", "--recipe", &recipe, "--request", &request, "--secret-file", &secret];
    site.succeed(&[&own[..], &["--at", "1750000000"]].concat());
    assert_eq!(site.run(&["provider", "show", "nobody"]).status.code(), Some(66));
}

/// A command of an administrator.
fn admin(site: &Arc<Site>, gateway: &Gateway, arguments: &[&str]) -> Output {
    let token = write(site, "admin.token", &site.admin_token());
    site.run(&[arguments, &["--endpoint", &gateway.grpc_url(), "--token-file", &token]].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_explains_what_it_refused_and_says_what_a_source_lacks() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let stripe = Setup::new(&gateway).await.stripe;
    let request = write(&site, "request", &sample("stripe", "snapshot"));

    let explain = ["rejection", "explain", "acme", "stripe", "--request", &request];
    let refused = admin(&site, &gateway, &explain);
    let text = words(&refused.stdout);
    assert_eq!(refused.status.code(), Some(1), "{text}{}", words(&refused.stderr));
    assert!(text.contains("✗ secret") && text.contains("SIGNATURE_MISMATCH"), "{text}");
    assert!(!text.contains(&stripe.secret) && !text.contains(SIGNATURE), "{text}");

    let (url, secret) =
        (format!("{}{}", gateway.edge_url(), stripe.path), write(&site, "secret", &stripe.secret));
    let stale = ["send", "stripe", "--url", &url, "--secret-file", &secret, "--ago", "10m"];
    assert_eq!(site.run(&stale).status.code(), Some(1));
    let listed = eventually("the refusal is listed", PATIENCE, async || {
        let listed = admin(&site, &gateway, &["rejection", "list", "acme", "stripe", "-o", "json"]);
        let lines = words(&listed.stdout);
        let line = lines.lines().find(|line| line.contains("TIMESTAMP_TOO_OLD"))?;
        serde_json::from_str::<Value>(line).ok()
    })
    .await;
    assert_eq!((&listed["reason"], &listed["explainable"]), (&json!("TIMESTAMP_TOO_OLD"), &json!(true)));
    let request_id = listed["request_id"].as_str().expect("an id");
    let shown = admin(&site, &gateway, &["rejection", "show", "acme", "stripe", request_id]);
    assert!(words(&shown.stdout).contains("TIMESTAMP_TOO_OLD"), "{}", words(&shown.stderr));
    let explained = admin(&site, &gateway, &["rejection", "explain", "acme", "stripe", request_id]);
    let text = words(&explained.stdout);
    assert!(
        text.contains("✗ time") && text.contains("its key matches"),
        "{text}{}",
        words(&explained.stderr)
    );

    let create = ["source", "create", "acme", "calls", "--preset", "twilio"];
    let created = admin(&site, &gateway, &create);
    assert!(created.status.success(), "{}", words(&created.stderr));
    assert!(words(&created.stderr).contains("public_urls"), "the URL is signed and none is given");
    let update = ["source", "update", "acme", "calls", "--public-url", "https://hooks.example.com/in/1"];
    let updated = admin(&site, &gateway, &update);
    assert!(updated.status.success(), "{}", words(&updated.stderr));
    assert!(words(&updated.stdout).contains("https://hooks.example.com/in/1"));
    assert!(!words(&updated.stderr).contains("public_urls"), "{}", words(&updated.stderr));
    let nothing = admin(&site, &gateway, &["source", "update", "acme", "calls"]);
    assert_eq!(nothing.status.code(), Some(64));
}
