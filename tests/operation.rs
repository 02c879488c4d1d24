//! What operators and tenants see: handshakes, recipes of their own, probes, metrics, and logs without secrets.

use std::time::Duration;

use portero_client::v1;
use portero_recipe::Recipe;
use serde_json::json;
use tonic::Code;

use crate::harness::{
    Consumer, Gateway, Kind, Provider, Setup, Signed, Site, Source, canaries, eventually, get, stripe_event,
};

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slacks_check_of_the_url_is_answered_when_it_is_signed_and_makes_no_event() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let slack = Source::preset(&mut setup.admin, &gateway, "acme", "slack").await;
    let (provider, consumer) = (Provider::new(&gateway, &slack), Consumer::start(&gateway).await);

    let check =
        json!({ "type": "url_verification", "token": "old", "challenge": "3eZbrw1aB10K4" }).to_string();
    let answer = provider.send(check.as_bytes()).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "3eZbrw1aB10K4"));
    let unsigned = provider.post(&Signed { headers: Vec::new(), body: check.into_bytes() }).await;
    assert_eq!(unsigned.status, 401, "{unsigned:?}");
    assert!(!unsigned.text.contains("3eZbrw1aB10K4"), "a stranger's challenge is not repeated");

    let recipe = Recipe::preset("slack").expect("a preset");
    let sample =
        portero_recipe::sample(&recipe, "Ev1", None, portero_types::Timestamp::EPOCH).expect("a sample");
    let accepted = provider.send(&sample.body).await;
    assert_eq!(
        (accepted.status, accepted.text.as_str()),
        (200, ""),
        "Slack shows a text to whoever gave a command"
    );
    consumer.has_acked(1, PATIENCE).await;
    assert_eq!(consumer.handled()[0].event_id, "src:slack:Ev1");
    assert_eq!(consumer.handled().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_own_recipe_verifies_its_requests() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let text = json!({
        "version": 1,
        "title": "Our own",
        "about": "Orders of our shop.",
        "schemes": [{
            "signature": { "header": "X-Shop-Signature" },
            "algorithm": "hmac-sha256",
            "encoding": "base64",
            "keys": ["text"],
            "message": "{body}",
            "id": ["{json:order.id}"],
            "type": ["order.{json:order.state}"],
            "entity": ["{json:order.customer}"],
        }],
    })
    .to_string();
    let recipe = std::sync::Arc::new(Recipe::from_json(&text).expect("a recipe"));
    let verification = v1::source::Verification::RecipeJson(text);
    let mut source = Source::without_secret(&mut setup.admin, "acme", "shop", verification, recipe).await;
    let consumer = Consumer::start(&gateway).await;
    source.secret = source.add_secret(&mut setup.admin, "").await.value;
    let provider = Provider::new(&gateway, &source);

    // The gateway that answered the change knows it; others within half a second.
    let order = br#"{"order":{"id":"o-1","state":"paid","customer":"c-1"}}"#;
    let answer = provider.send(order).await;
    assert_eq!((answer.status, answer.field("status").as_str()), (200, "accepted"), "{answer:?}");
    let mut forged = provider.sign(order);
    forged.body = br#"{"order":{"id":"o-2","state":"paid","customer":"c-1"}}"#.to_vec();
    assert_eq!(provider.post(&forged).await.reason(), "SIGNATURE_MISMATCH");
    consumer.has_acked(1, PATIENCE).await;
    assert_eq!(consumer.handled()[0].ordering_key, "shop:c-1");

    let broken = v1::source::Verification::RecipeJson(
        r#"{"version":1,"title":"x","schemes":[],"colour":1}"#.to_owned(),
    );
    let request = v1::CreateSourceRequest {
        parent: "tenants/acme".to_owned(),
        source_id: "broken".to_owned(),
        source: Some(v1::Source { verification: Some(broken), ..v1::Source::default() }),
    };
    let refused = setup.admin.create_source(request).await.expect_err("a broken recipe");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("colour"), "it names the field: {refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_answer_and_the_metrics_count_what_happened() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    let management = gateway.management_url();
    assert_eq!(get(&format!("{management}/livez")).await.status, 200);
    eventually("it is ready", PATIENCE, async || {
        (get(&format!("{management}/readyz")).await.status == 200).then_some(())
    })
    .await;
    let signed = provider.sign(&stripe_event("evt_1", "entity", 0));
    for _ in 0..3 {
        assert_eq!(provider.post(&signed).await.status, 200);
    }
    let refused = provider.post(&Signed { headers: Vec::new(), body: Vec::new() }).await;
    assert_eq!(refused.status, 401);
    consumer.has_acked(1, PATIENCE).await;
    let events = "portero_ingress_events_total";
    assert_eq!(gateway.metric(events, &["accepted"]).await.to_string(), "1");
    assert_eq!(gateway.metric(events, &["duplicate"]).await.to_string(), "2");
    assert!(gateway.metric("portero_ingress_rejections_total", &["SIGNATURE_MISSING"]).await >= 1.0);
    assert_eq!(gateway.metric("portero_dispatcher_deliveries_total", &[]).await.to_string(), "1");
    assert!(gateway.metric("portero_ingress_accept_seconds_count", &[]).await >= 3.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_logs_nor_metrics_nor_answers_hold_a_secret_a_signature_a_token_or_a_payload() {
    let site = Site::new(Kind::Sqlite);
    // The harness searches what each gateway says, at level debug. Here it says all that it can.
    let mut gateway = Gateway::new(&site).set("TELEMETRY__LOG_LEVEL", "trace");
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    let body = br#"{"id":"evt_1","type":"a","data":{"object":{"id":"e","card":"4242-payload-4242"}}}"#;
    canaries::plant("payload", "4242-payload-4242");
    let good = provider.sign(body);
    let mut forged = good.clone();
    forged.body.push(b' ');
    let mut heard = String::new();
    for request in [&good, &good, &forged] {
        heard.push_str(&provider.post(request).await.text);
    }
    consumer.has_acked(1, PATIENCE).await;
    canaries::assert_none("the answers", &heard);

    for (value, about) in [
        ("too-short-1!", "16"),
        ("pasted with a line\nbreak in the middle", "line"),
        ("qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "character"),
    ] {
        canaries::plant_secret(value);
        let (parent, value) = (setup.stripe.name.clone(), value.to_owned());
        let request = v1::CreateSecretRequest { parent, value, ..v1::CreateSecretRequest::default() };
        let refused = setup.admin.create_secret(request).await.expect_err("too weak");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
        assert!(refused.message().contains(about), "{refused:?}");
    }
    let stranger = "eyJstranger.eyJstranger.c2lnbmF0dXJlIG9mIGEgc3RyYW5nZXI";
    let refused =
        gateway.client(stranger).await.admin().list_tenants(v1::ListTenantsRequest::default()).await;
    assert_eq!(refused.expect_err("refused").code(), Code::Unauthenticated);

    let metrics = get(&format!("{}/metrics", gateway.management_url())).await.text;
    let log = gateway.log.text();
    assert!(metrics.contains("portero_ingress") && log.contains("\"TRACE\""), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_onboards_a_tenant_and_says_what_became_of_an_event() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    std::fs::write(site.path("token"), site.admin_token()).expect("written");
    let (endpoint, token) = (gateway.grpc_url(), site.path("token"));
    let run = |arguments: &[&str]| {
        let connect = ["--endpoint", &endpoint, "--token-file", &token, "--output", "json"];
        let text = site.succeed(&[arguments, &connect].concat());
        serde_json::from_str::<serde_json::Value>(text.lines().next().unwrap_or("null")).expect("JSON")
    };
    run(&["tenant", "create", "acme", "--display-name", "Acme"]);
    let source = run(&["source", "create", "acme", "stripe", "--preset", "stripe"]);
    let secret = run(&["secret", "create", "acme", "stripe"]);
    run(&["subscription", "create", "billing", "--tenant", "acme", "--from", "earliest"]);
    let value = secret["value"].as_str().expect("a value");
    std::fs::write(site.path("secret"), value).expect("written");
    let path = source["ingest_path"].as_str().expect("a path");
    let known = Source {
        name: "tenants/acme/sources/stripe".to_owned(),
        path: path.to_owned(),
        secret: value.to_owned(),
        recipe: Recipe::preset("stripe").expect("a preset"),
    };
    known.is_known(&gateway).await;

    let url = format!("{}{path}", gateway.edge_url());
    let secret_file = site.path("secret");
    let sent = site.succeed(&[
        "send",
        "stripe",
        "--url",
        &url,
        "--secret-file",
        &secret_file,
        "--id",
        "evt_cli",
        "-o",
        "json",
    ]);
    assert!(sent.contains("\"accepted\""), "{sent}");
    let receipt = run(&["receipt", "get", "acme", "stripe/evt_cli"]);
    assert_eq!(receipt["event_id"], "evt_cli", "{receipt}");
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(1, PATIENCE).await;

    let missing = site.run(&["tenant", "get", "nobody", "--endpoint", &endpoint, "--token-file", &token]);
    assert_eq!(missing.status.code(), Some(66), "what does not exist has an exit code of its own");
}
