//! Explanations of refused and uploaded requests.

use std::time::Duration;

use portero_proto::v1;
use portero_proto::v1::explain_request_request::Request as Which;
use portero_recipe::{Recipe, SignOptions, sample, sign};
use portero_store::CapturedRequest;
use portero_types::Header;
use tonic::{Code, Status};

use super::{NOW, SECRET, Service, admin_of, bad_field, code, name, preset};
use crate::time;

const OTHER: &str = "whsec_00112233445566778899aabbccddeeff";

/// A Stripe event signed at [`NOW`].
fn signed(secret: &str) -> CapturedRequest {
    let recipe = Recipe::preset("stripe").expect("there");
    let sample = sample(&recipe, "evt_1", None, NOW).expect("there");
    let options = SignOptions { id: Some("evt_1"), now: NOW, ..SignOptions::default() };
    let signed = sign(&recipe, secret, &sample.body, options).expect("signed");
    let headers = signed.headers.into_iter().map(|(name, value)| Header { name, value: value.into_bytes() });
    CapturedRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: headers.collect(),
        body: signed.body.into(),
    }
}

fn uploaded(request: &CapturedRequest) -> v1::UploadedRequest {
    let header = |header: &Header| v1::RequestHeader {
        name: header.name.to_ascii_uppercase(),
        value: header.value.clone(),
    };
    v1::UploadedRequest {
        method: "post".to_owned(),
        query: request.query.clone(),
        headers: request.headers.iter().map(header).collect(),
        body: request.body.to_vec(),
    }
}

async fn explain(service: &Service, source: &str, which: Which) -> Result<v1::Explanation, Status> {
    explain_at(service, source, which, None).await
}

async fn explain_at(
    service: &Service,
    source: &str,
    which: Which,
    at: Option<prost_types::Timestamp>,
) -> Result<v1::Explanation, Status> {
    let message = v1::ExplainRequestRequest { parent: name(source), request: Some(which), at };
    Ok(service.admin.do_explain_request(service.acme(message)).await?.into_inner())
}

async fn with_stripe(secret: &str) -> Service {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    service.add_secret("pay", "first", secret).await;
    service
}

#[tokio::test]
async fn a_refused_request_is_explained_as_of_its_time() {
    let service = with_stripe(OTHER).await;
    let id = service.refuse("pay", 1, Some(&signed(SECRET))).await.to_string();
    service.clock.advance(Duration::from_secs(86_400));
    let refused = explain(&service, "pay", Which::RequestId(id.clone())).await.expect("explained");
    assert_eq!((refused.verdict(), refused.reason.as_str()), (v1::Verdict::Refused, "SIGNATURE_MISMATCH"));
    assert!(refused.steps.iter().any(|step| step.outcome() == v1::StepOutcome::Failed), "{refused:?}");
    assert!(refused.steps.iter().any(|step| step.secret == "first"), "secrets go by their names");
    assert_eq!(refused.judge_time, Some(time::to_proto(NOW.plus(Duration::from_secs(1)))));

    let message = v1::CreateSecretRequest {
        parent: name("pay"),
        secret_id: "second".to_owned(),
        value: SECRET.to_owned(),
        not_before: Some(time::to_proto(NOW)),
    };
    service.admin.do_create_secret(service.acme(message)).await.expect("added");
    let verified = explain(&service, "pay", Which::RequestId(id.clone())).await.expect("explained");
    assert_eq!((verified.verdict(), verified.secret.as_str()), (v1::Verdict::Verified, "second"));
    assert_eq!((verified.event_count, verified.events[0].event_id.as_str()), (1, "evt_1"));
    let late = Some(time::to_proto(NOW.plus(Duration::from_secs(86_400))));
    let late = explain_at(&service, "pay", Which::RequestId(id), late).await.expect("explained");
    assert_eq!(late.reason, "TIMESTAMP_TOO_OLD");
}

#[tokio::test]
async fn an_uploaded_request_is_explained_as_of_now() {
    let service = with_stripe(SECRET).await;
    let upload = |request: &CapturedRequest| Which::Uploaded(uploaded(request));
    let good = explain(&service, "pay", upload(&signed(SECRET))).await.expect("explained");
    assert_eq!(good.verdict(), v1::Verdict::Verified, "{good:?}");
    let mut changed = signed(SECRET);
    changed.body = changed.body.iter().chain(b" ").copied().collect();
    let bad = explain(&service, "pay", upload(&changed)).await.expect("explained");
    assert_eq!(bad.reason, "SIGNATURE_MISMATCH");
    let bare = CapturedRequest { headers: Vec::new(), ..changed };
    let bad = explain(&service, "pay", upload(&bare)).await.expect("explained");
    assert_eq!(bad.reason, "SIGNATURE_MISSING");
    service.clock.advance(Duration::from_secs(3_600));
    let old = explain(&service, "pay", upload(&signed(SECRET))).await.expect("explained");
    assert_eq!(old.reason, "TIMESTAMP_TOO_OLD");
}

#[tokio::test]
async fn an_explanation_shows_neither_secret_nor_signature_nor_body() {
    let service = with_stripe(OTHER).await;
    let mut request = signed(SECRET);
    request.body = br#"{"id":"evt_1","card":"4242424242424242"}"#.to_vec().into();
    for explained in [
        explain(&service, "pay", Which::Uploaded(uploaded(&request))).await.expect("explained"),
        explain(&service, "pay", Which::Uploaded(uploaded(&signed(OTHER)))).await.expect("explained"),
    ] {
        let shown = format!("{explained:?}");
        let signature = String::from_utf8(request.headers[0].value.clone()).expect("ASCII");
        let signature = signature.rsplit('=').next().expect("a signature");
        for hidden in [SECRET, OTHER, &OTHER[6..], signature, "4242"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
}

#[tokio::test]
async fn what_would_be_fetched_is_named_and_leaves_it_open() {
    let service = Service::start().await;
    let settings = [("webhook_id".to_owned(), "1JE42910".to_owned())].into();
    service.create("paypal", v1::Source { settings, ..preset("paypal") }).await.expect("created");
    let header = |name: &str, value: &str| v1::RequestHeader {
        name: name.to_owned(),
        value: value.as_bytes().to_vec(),
    };
    let request = v1::UploadedRequest {
        headers: vec![
            header("paypal-transmission-id", "69cd13f0-d67a-11e5-baa3-778b53f4ae55"),
            header("paypal-transmission-time", "2025-06-15T15:06:40Z"),
            header(
                "paypal-cert-url",
                "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-1d93a270",
            ),
            header("paypal-auth-algo", "SHA256withRSA"),
            header("paypal-transmission-sig", &"QUJD".repeat(86)),
        ],
        body: b"{}".to_vec(),
        ..v1::UploadedRequest::default()
    };
    let explained = explain(&service, "paypal", Which::Uploaded(request)).await.expect("explained");
    assert_eq!(explained.verdict(), v1::Verdict::Undecided, "{explained:?}");
    assert!(explained.unfetched_url.starts_with("https://api.paypal.com/v1/notifications/certs/"));
    assert!(explained.reason.is_empty());
}

#[tokio::test]
async fn a_handshake_that_brings_a_secret_is_judged_by_the_sources_window() {
    let service = Service::start().await;
    let window = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let source = v1::Source { secret_window: window, ..preset("asana") };
    service.create("tasks", source).await.expect("created");
    let request = || {
        Which::Uploaded(v1::UploadedRequest {
            headers: vec![v1::RequestHeader {
                name: "x-hook-secret".to_owned(),
                value: b"a secret of the provider's own".to_vec(),
            }],
            ..v1::UploadedRequest::default()
        })
    };
    let open = explain(&service, "tasks", request()).await.expect("explained");
    assert_eq!((open.verdict(), open.stores_secret), (v1::Verdict::Handshake, true), "{open:?}");
    service.clock.advance(Duration::from_secs(60));
    let closed = explain(&service, "tasks", request()).await.expect("explained");
    assert_eq!((closed.verdict(), closed.reason.as_str()), (v1::Verdict::Refused, "HANDSHAKE_NOT_EXPECTED"));
    let failed: Vec<_> =
        closed.steps.iter().filter(|step| step.outcome() == v1::StepOutcome::Failed).collect();
    assert!(failed.len() == 1 && failed[0].name == "secret window", "{closed:?}");
    assert!(failed[0].detail.contains("ended"), "{closed:?}");
}

#[tokio::test]
async fn what_cannot_be_explained_is_said() {
    let service = with_stripe(SECRET).await;
    service.create("other", preset("stripe")).await.expect("created");
    let bare = service.refuse("pay", 1, None).await.to_string();
    let kept = service.refuse("pay", 2, Some(&signed(SECRET))).await.to_string();
    let outcome = explain(&service, "pay", Which::RequestId(bare)).await;
    assert_eq!(code(outcome), Code::FailedPrecondition, "the request itself is not kept");
    let outcome = explain(&service, "other", Which::RequestId(kept.clone())).await;
    assert_eq!(code(outcome), Code::NotFound, "it is another source's");
    let outcome = explain(&service, "none", Which::RequestId(kept.clone())).await;
    assert_eq!(code(outcome), Code::NotFound);
    let moved = service.refuse_sealed_for("pay", "other", 3, Some(&signed(SECRET))).await;
    let outcome = explain(&service, "other", Which::RequestId(moved.to_string())).await;
    assert_eq!(code(outcome), Code::FailedPrecondition, "it was sealed for another source");
    let unknown = format!("req_{}", "0".repeat(32));
    assert_eq!(code(explain(&service, "pay", Which::RequestId(unknown)).await), Code::NotFound);

    let foreign =
        v1::ExplainRequestRequest { parent: name("pay"), request: Some(Which::RequestId(kept)), at: None };
    let outcome = service.admin.do_explain_request(service.by(&admin_of("globex"), foreign)).await;
    assert_eq!(code(outcome), Code::PermissionDenied);
}

#[tokio::test]
async fn an_upload_beyond_its_bounds_is_refused_by_field() {
    let service = with_stripe(SECRET).await;
    let good = uploaded(&signed(SECRET));
    let header =
        |name: &str, bytes: usize| v1::RequestHeader { name: name.to_owned(), value: vec![b'a'; bytes] };
    let cases = [
        (v1::UploadedRequest { method: "PO ST".to_owned(), ..good.clone() }, "uploaded.method"),
        (v1::UploadedRequest { query: "a".repeat(8_193), ..good.clone() }, "uploaded.query"),
        (v1::UploadedRequest { headers: vec![header("a", 1); 101], ..good.clone() }, "uploaded.headers"),
        (v1::UploadedRequest { headers: vec![header("a", 65_536)], ..good.clone() }, "uploaded.headers"),
        (v1::UploadedRequest { headers: vec![header("a b", 1)], ..good.clone() }, "uploaded.headers[0].name"),
        (v1::UploadedRequest { body: vec![b'a'; (1 << 20) + 1], ..good.clone() }, "uploaded.body"),
    ];
    for (upload, field) in cases {
        assert_eq!(bad_field(explain(&service, "pay", Which::Uploaded(upload)).await), field);
    }
    let largest = v1::UploadedRequest { body: vec![b'['; 1 << 20], ..good };
    let explained = explain(&service, "pay", Which::Uploaded(largest)).await.expect("explained");
    assert_eq!(explained.reason, "SIGNATURE_MISMATCH");
    let message = v1::ExplainRequestRequest { parent: name("pay"), request: None, at: None };
    assert_eq!(bad_field(service.admin.do_explain_request(service.acme(message)).await), "request");
}
