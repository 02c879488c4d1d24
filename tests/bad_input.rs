//! What strangers and careless senders post: each gets its own clear answer, and nothing is lost by it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use portero_client::v1;
use portero_recipe::{Recipe, SignOptions};
use portero_types::Timestamp;
use serde_json::json;

use crate::harness::{
    Answer, Consumer, Gateway, Kind, Provider, Setup, Signed, Site, Source, now, raw, stripe_event,
};
use crate::kinds::on_each_store;

const PATIENCE: Duration = Duration::from_secs(60);

fn signed_at(provider: &Provider, secret: &str, body: &[u8], after_secs: i64) -> Signed {
    let at = Timestamp::from_secs(now().as_secs() + after_secs);
    provider.sign_with(secret, body, SignOptions { now: at, ..SignOptions::default() })
}

fn with_signature(signed: &Signed, value: &str) -> Signed {
    Signed { headers: vec![("stripe-signature".to_owned(), value.to_owned())], body: signed.body.clone() }
}

/// Whoever knows a URL must not fill the log's disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_forged_requests_is_told_by_a_few_lines_and_counted_whole() {
    const FORGED: usize = 80;
    let site = Site::new(Kind::Sqlite);
    let mut gateway = Gateway::new(&site).set("TELEMETRY__LOG_LEVEL", "info");
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    let began = Instant::now();
    for _ in 0..FORGED {
        assert_eq!(provider.post(&Signed { headers: Vec::new(), body: b"{}".to_vec() }).await.status, 401);
    }
    let took = usize::try_from(began.elapsed().as_secs()).expect("few");
    let lines = gateway.log.count("a request is rejected");
    assert!((10..=11 + took).contains(&lines), "{lines} lines in {took} s");
    let counted = gateway.metric("portero_ingress_rejections_total", &[]).await;
    assert!(counted >= FORGED as f64, "{counted}");
}

on_each_store!(a_request_that_does_not_verify_is_refused_with_its_reason_and_good_ones_still_pass);

async fn a_request_that_does_not_verify_is_refused_with_its_reason_and_good_ones_still_pass(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    let secret = setup.stripe.secret.clone();
    let body = stripe_event("evt_bad", "entity", 0);
    let good = provider.sign(&body);
    let signature = good.headers[0].1.clone();
    assert_eq!(good.headers[0].0, "stripe-signature");

    let doubled =
        Signed { headers: vec![good.headers[0].clone(), good.headers[0].clone()], body: body.clone() };
    let other_body = Signed { headers: good.headers.clone(), body: stripe_event("evt_forged", "entity", 0) };
    let too_many: String = std::iter::repeat_n(",v1=00", 40).collect();
    let cases: [(&str, Signed, &str); 12] = [
        ("missing", Signed { headers: Vec::new(), body: body.clone() }, "SIGNATURE_MISSING"),
        ("empty", with_signature(&good, ""), "SIGNATURE_MISSING"),
        ("doubled", doubled, "SIGNATURE_DUPLICATED"),
        ("malformed", with_signature(&good, &signature.replace("v1=", "v1=zz")), "SIGNATURE_MALFORMED"),
        ("of another version", with_signature(&good, &signature.replace("v1=", "v0=")), "SIGNATURE_MISSING"),
        ("of another body", other_body, "SIGNATURE_MISMATCH"),
        (
            "of another secret",
            signed_at(&provider, "whsec_0123456789abcdef0123456789abcdef", &body, 0),
            "SIGNATURE_MISMATCH",
        ),
        ("expired", signed_at(&provider, &secret, &body, -600), "TIMESTAMP_TOO_OLD"),
        ("from the future", signed_at(&provider, &secret, &body, 600), "TIMESTAMP_IN_FUTURE"),
        (
            "without a time",
            with_signature(&good, signature.split_once(',').expect("parts").1),
            "TIMESTAMP_MISSING",
        ),
        ("with a wrong time", with_signature(&good, &signature.replace("t=1", "t=x")), "TIMESTAMP_MALFORMED"),
        ("many times", with_signature(&good, &format!("{signature}{too_many}")), "TOO_MANY_SIGNATURES"),
    ];
    for (what, request, reason) in cases {
        let answer = provider.post(&request).await;
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (401, reason),
            "a signature {what}: {answer:?}"
        );
        assert!(!answer.field("message").is_empty(), "people are told what is wrong: {answer:?}");
    }

    let verification = v1::source::Verification::Preset("stripe".to_owned());
    let recipe = Recipe::preset("stripe").expect("a preset");
    let bare = Source::without_secret(&mut setup.admin, "acme", "bare", verification, recipe).await;
    let without = Provider::new(&gateway, &bare).post(&good).await;
    assert_eq!((without.status, without.reason().as_str()), (401, "NO_ACTIVE_SECRET"));

    assert!(setup.receipt("evt_bad").await.is_none(), "nothing that was refused left a receipt");
    assert_eq!(provider.post(&good).await.field("status"), "accepted", "the good request still passes");
    consumer.has_acked(1, PATIENCE).await;
    assert_eq!(consumer.handled().len(), 1);
}

on_each_store!(a_verified_body_is_never_lost_however_odd_it_is);

async fn a_verified_body_is_never_lost_however_odd_it_is(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    let deep = format!("{{\"id\":\"evt_deep\",\"data\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    // What, the body, and the id under which it is accepted; none when one is derived from its bytes.
    let cases: [(&str, Vec<u8>, Option<&str>); 13] = [
        ("an empty body", Vec::new(), None),
        ("bytes that are no text", b"\xff\xfe\x00\x80".to_vec(), None),
        ("an id that is no text", b"{\"id\":\"evt_\xff\",\"type\":\"a\"}".to_vec(), None),
        ("a NUL in the id", br#"{"id":"evt_\u0000x","type":"a"}"#.to_vec(), None),
        ("a NUL in the type", br#"{"id":"evt_nul_type","type":"a\u0000b"}"#.to_vec(), Some("evt_nul_type")),
        ("half a surrogate in the id", br#"{"id":"evt_\ud800","type":"a"}"#.to_vec(), None),
        ("a repeated id", br#"{"id":"evt_a","id":"evt_b","type":"a"}"#.to_vec(), None),
        ("an id of 64 bits", br#"{"id":9007199254740993,"type":"a"}"#.to_vec(), Some("9007199254740993")),
        ("its neighbour", br#"{"id":9007199254740992,"type":"a"}"#.to_vec(), Some("9007199254740992")),
        ("no id", br#"{"type":"invoice.paid"}"#.to_vec(), None),
        ("an id that is an object", br#"{"id":{"x":1},"type":"a"}"#.to_vec(), None),
        ("an id of 5,000 characters", format!("{{\"id\":\"{}\"}}", "x".repeat(5_000)).into_bytes(), None),
        ("a body that is not finished", br#"{"id":"evt_cut","type":"#.to_vec(), None),
    ];
    let mut sent = HashMap::new();
    for (what, body, id) in &cases {
        let signed = provider.sign(body);
        let first = provider.post(&signed).await;
        assert_eq!((first.status, first.field("status").as_str()), (200, "accepted"), "{what}: {first:?}");
        let second = provider.post(&signed).await;
        assert_eq!(
            (second.status, second.field("status").as_str()),
            (200, "duplicate"),
            "{what}: {second:?}"
        );
        sent.insert(first.field("receipt_id"), (*what, body.clone(), *id));
    }
    for (what, body) in [("deep nesting", deep.into_bytes()), ("a byte order mark", bom())] {
        let answer = provider.send(&body).await;
        assert_eq!((answer.status, answer.field("status").as_str()), (200, "accepted"), "{what}: {answer:?}");
        sent.insert(answer.field("receipt_id"), (what, body, None));
    }
    assert_eq!(sent.len(), cases.len() + 2, "each has a receipt of its own");

    consumer.has_acked(sent.len(), PATIENCE).await;
    for handled in consumer.handled() {
        let (what, body, id) = &sent[&handled.receipt_id];
        assert_eq!(&handled.body[..], &body[..], "{what} arrives byte for byte");
        if let Some(id) = id {
            assert_eq!(handled.event_id, *id, "{what}");
        }
    }
    let derived = sent.iter().find(|(_, (what, ..))| *what == "no id").expect("sent").0;
    let key = Some(v1::get_receipt_request::Key::ReceiptId(derived.clone()));
    let request = v1::GetReceiptRequest { parent: "tenants/acme".to_owned(), key };
    let receipt = setup.admin.get_receipt(request).await.expect("a receipt").into_inner();
    assert!(receipt.event_id_derived, "{receipt:?}");
    consumer.check_promises();
}

fn bom() -> Vec<u8> {
    [b"\xef\xbb\xbf".as_slice(), &stripe_event("evt_bom", "entity-bom", 0)].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_id_with_other_bytes_is_a_duplicate_whose_conflict_is_counted() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    let first = provider.send(&stripe_event("evt_1", "entity", 0)).await;
    let other = provider.send(&stripe_event("evt_1", "entity", 7)).await;
    assert_eq!((other.status, other.field("status").as_str()), (200, "duplicate"));
    assert_eq!(first.field("receipt_id"), other.field("receipt_id"));
    let conflicts = crate::harness::eventually("the conflict is counted", PATIENCE, async || {
        let receipt = setup.receipt("evt_1").await.expect("a receipt");
        (receipt.conflicts > 0).then_some(receipt.conflicts)
    })
    .await;
    assert_eq!(conflicts, 1);
    assert_eq!(provider.send(&stripe_event("evt_2", "entity", 1)).await.status, 200);
    consumer.has_acked(2, PATIENCE).await;
    assert_eq!(consumer.handled()[0].sequence, Some(0), "the first one is kept");
    consumer.check_promises();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_before_verification_has_its_own_answer_too() {
    let site = Site::new(Kind::Sqlite);
    let mut gateway = Gateway::new(&site).set("EDGE__BODY_MAX", "64KiB");
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let (provider, consumer) = (setup.provider(&gateway), Consumer::start(&gateway).await);
    let (address, path) = (gateway.edge_address(), setup.stripe.path.clone());
    let ask = async |line: &str, headers: &str, body: &[u8]| {
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        raw(&address, &[head.as_bytes(), body].concat()).await
    };

    let unknown = ask("POST /in/00000000000000000000000000000000", "content-length: 2\r\n", b"{}").await;
    assert_eq!((unknown.status, unknown.field("error").as_str()), (404, "not_found"));
    for elsewhere in
        ["POST /", "POST /in/", "POST /in/x", "GET /in/00000000000000000000000000000000", "POST /admin"]
    {
        let answer = ask(elsewhere, "content-length: 0\r\n", b"").await;
        assert_eq!((answer.status, &answer.text), (404, &unknown.text), "{elsewhere} is told nothing else");
    }

    let head = ask(&format!("HEAD {path}"), "", b"").await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let answer = ask(&format!("{method} {path}"), "content-length: 0\r\n", b"").await;
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.header("allow").contains("POST"), "{method}: {answer:?}");
    }
    let encoded =
        ask(&format!("POST {path}"), "content-encoding: gzip\r\ncontent-length: 2\r\n", b"{}").await;
    assert_eq!((encoded.status, encoded.field("error").as_str()), (415, "encoding_unsupported"));

    let declared = ask(&format!("POST {path}"), "content-length: 70000\r\n", &vec![b'x'; 70_000]).await;
    assert_eq!((declared.status, declared.field("error").as_str()), (413, "too_large"));
    let chunked = ask(&format!("POST {path}"), "transfer-encoding: chunked\r\n", &chunks(70_000)).await;
    assert_eq!((chunked.status, chunked.field("error").as_str()), (413, "too_large"));
    let within = ask(&format!("POST {path}"), "transfer-encoding: chunked\r\n", &chunks(60_000)).await;
    assert_eq!(
        (within.status, within.reason().as_str()),
        (401, "SIGNATURE_MISSING"),
        "a smaller one is read"
    );

    let mut slash = provider.clone();
    slash.url.push('/');
    assert_eq!(
        slash.send(&stripe_event("evt_1", "entity", 0)).await.status,
        200,
        "a trailing slash is allowed"
    );
    consumer.has_acked(1, PATIENCE).await;
    assert_eq!(consumer.handled().len(), 1, "nothing else became an event");
}

/// A body in chunks of 1,000 bytes.
fn chunks(length: usize) -> Vec<u8> {
    let chunk = [b"3e8\r\n".as_slice(), &[b'x'; 1_000], b"\r\n"].concat();
    [chunk.repeat(length / 1_000), b"0\r\n\r\n".to_vec()].concat()
}

fn adyen_batch(ids: &[&str]) -> Vec<u8> {
    let items: Vec<_> = ids
        .iter()
        .map(|id| {
            json!({ "NotificationRequestItem": {
                "additionalData": {},
                "pspReference": id,
                "originalReference": "",
                "merchantAccountCode": "Shop",
                "merchantReference": format!("order-{id}"),
                "amount": { "value": 25_000, "currency": "EUR" },
                "eventCode": "AUTHORISATION",
                "success": "true",
            } })
        })
        .collect();
    json!({ "live": "false", "notificationItems": items }).to_string().into_bytes()
}

on_each_store!(a_batch_is_taken_whole_and_one_forged_item_refuses_all_of_it);

async fn a_batch_is_taken_whole_and_one_forged_item_refuses_all_of_it(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let source = Source::preset(&mut setup.admin, &gateway, "acme", "adyen").await;
    let (provider, consumer) = (Provider::new(&gateway, &source), Consumer::start(&gateway).await);

    let signed = provider.sign(&adyen_batch(&["A1", "A2", "A3"]));
    let text = String::from_utf8(signed.body.clone()).expect("text");
    let forged = Signed { headers: signed.headers.clone(), body: forge(&text, "A2").into_bytes() };
    let refused: Answer = provider.post(&forged).await;
    assert_eq!((refused.status, refused.reason().as_str()), (401, "SIGNATURE_MISMATCH"), "{refused:?}");

    let accepted = provider.post(&signed).await;
    assert_eq!((accepted.status, accepted.text.as_str()), (200, "[accepted]"));
    let again = provider.post(&provider.sign(&adyen_batch(&["A1", "A3", "A4"]))).await;
    assert_eq!(
        (again.status, again.text.as_str()),
        (200, "[accepted]"),
        "known items do not hold up a new one"
    );
    consumer.has_acked(4, PATIENCE).await;
    let mut ids: Vec<String> = consumer.handled().into_iter().map(|handled| handled.event_id).collect();
    ids.sort();
    assert_eq!(ids, ["A1", "A2", "A3", "A4"].map(|id| format!("acct:Shop:{id}:AUTHORISATION")));
    let accepted = gateway.metric("portero_ingress_events_total", &["outcome=\"accepted\""]).await;
    assert!((accepted - 4.0).abs() < f64::EPSILON, "the forged batch stored nothing: {accepted}");
}

/// Changes the amount of one item.
fn forge(batch: &str, id: &str) -> String {
    let mut batch: serde_json::Value = serde_json::from_str(batch).expect("JSON");
    for item in batch["notificationItems"].as_array_mut().expect("items") {
        let item = &mut item["NotificationRequestItem"];
        if item["pspReference"] == id {
            item["amount"]["value"] = json!(1);
        }
    }
    batch.to_string()
}
