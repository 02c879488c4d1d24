//! Providers whose signatures need something fetched.

use base64::Engine as _;
use portero_outbound::FetchError;

use super::*;
use crate::testing::Fault;
use crate::{LimitsConfig, UnverifiedLimits};

const SNS: u8 = 20;
const PAYPAL: u8 = 21;
const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:T";
const SAMPLES: &str = include_str!("../../../../tests/cases/signed-samples.jsonl");

/// A request that a provider's own tools signed or accept.
pub(super) struct Sample {
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Where the certificate is said to be.
    pub(super) certificate_url: String,
    pub(super) certificate: String,
}

pub(super) fn sample(provider: &str, case: &str) -> Sample {
    let rows = SAMPLES.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let row = rows.into_iter().find(|row| row["provider"] == provider && row["case"] == case);
    let row = row.expect("there is such a sample");
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let body = base64::engine::general_purpose::STANDARD.decode(text(&row["body_base64"])).expect("base64");
    let headers: Vec<_> = row["headers"]
        .as_object()
        .expect("headers")
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    let named = headers.iter().find(|(name, _)| name == "PAYPAL-CERT-URL").map(|(_, value)| value.clone());
    let certificate_url = named.unwrap_or_else(|| text(&read(&body)["SigningCertURL"]));
    Sample { headers, body, certificate_url, certificate: text(&row["secret"]) }
}

fn read(body: &[u8]) -> serde_json::Value {
    serde_json::from_slice(body).expect("JSON")
}

async fn started() -> Gateway {
    with_providers(Gateway::start().await).await
}

async fn with_providers(gateway: Gateway) -> Gateway {
    let topic = |source: &mut portero_store::Source| {
        source.settings.insert("topic_arn".to_owned(), TOPIC.to_owned());
    };
    gateway.add(SNS, "aws-sns", None, topic).await;
    let webhook = |source: &mut portero_store::Source| {
        source.settings.insert("webhook_id".to_owned(), "1JE4291016473214C".to_owned());
    };
    gateway.add(PAYPAL, "paypal", None, webhook).await;
    gateway
}

#[tokio::test]
async fn requests_verify_under_the_certificate_that_is_fetched_for_them() {
    let gateway = started().await;
    for (source, sample, id) in
        [(PAYPAL, sample("paypal", "plain"), "WH-1"), (SNS, sample("aws-sns", "notification-v2"), "sns-1")]
    {
        gateway.fetch.answer(&sample.certificate_url, Ok(&sample.certificate));
        let reply = gateway.post(source, &sample.headers, &sample.body).await;
        assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("accepted")), "{reply:?}");
        assert!(gateway.stored().last().expect("stored").ends_with(id));
        assert_eq!(gateway.fetch.asked().last(), Some(&sample.certificate_url));
        let mut forged = sample.body.clone();
        let at = forged.len() / 2;
        forged[at] ^= 1;
        let reply = gateway.post(source, &sample.headers, &forged).await;
        assert!(matches!(reply.status, 400 | 401), "{reply:?}");
    }
    assert_eq!(gateway.stored().len(), 2);
    gateway.stop().await;
}

#[tokio::test]
async fn what_cannot_be_fetched_is_503_and_the_provider_comes_again() {
    let gateway = started().await;
    let sample = sample("paypal", "plain");
    for error in [FetchError::Refused(404), FetchError::TimedOut, FetchError::Busy] {
        gateway.fetch.answer(&sample.certificate_url, Err(error));
        let reply = gateway.post(PAYPAL, &sample.headers, &sample.body).await;
        assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some("fetch_failed")), "{reply:?}");
        assert!(reply.header("retry-after").is_some());
    }
    assert!(gateway.stored().is_empty());
    gateway.fetch.answer(&sample.certificate_url, Ok(&sample.certificate));
    assert_eq!(gateway.post(PAYPAL, &sample.headers, &sample.body).await.status, 200);
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    assert!(kept.rows().iter().all(|row| row.reason == "FETCH_FAILED") && kept.rows().len() == 3);
}

/// Else who names made-up keys is never limited.
#[tokio::test]
async fn who_names_keys_that_are_not_there_is_refused_unread_after_some() {
    let one = UnverifiedLimits { per_second: 1, burst: 3 };
    let limits = LimitsConfig { unverified_source: one, ..LimitsConfig::default() };
    let gateway =
        with_providers(Gateway::bounded(EdgeConfig { limits, ..EdgeConfig::default() }).await).await;
    let sample = sample("paypal", "plain");
    for error in [FetchError::TimedOut, FetchError::Unreachable, FetchError::Refused(503)] {
        for _ in 0..5 {
            gateway.fetch.answer(&sample.certificate_url, Err(error));
            let reply = gateway.post(PAYPAL, &sample.headers, &sample.body).await;
            assert_eq!(reply.status, 503, "the other side is down, which is nobody's fault: {reply:?}");
        }
    }
    let mut statuses = Vec::new();
    for n in 0..8 {
        let error = if n % 2 == 0 { FetchError::Refused(404) } else { FetchError::Busy };
        gateway.fetch.answer(&sample.certificate_url, Err(error));
        statuses.push(gateway.post(PAYPAL, &sample.headers, &sample.body).await.status);
    }
    assert_eq!((statuses[..2].to_vec(), statuses[7]), (vec![503; 2], 429), "{statuses:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_certificate_from_elsewhere_is_never_fetched() {
    let gateway = started().await;
    let sample = sample("paypal", "plain");
    for url in
        ["https://evil.example.com/cert", "http://api.paypal.com/x", "https://api.paypal.com.evil.example/x"]
    {
        let mut headers = sample.headers.clone();
        headers
            .iter_mut()
            .filter(|(name, _)| name == "PAYPAL-CERT-URL")
            .for_each(|(_, value)| *value = url.into());
        let reply = gateway.post(PAYPAL, &headers, &sample.body).await;
        assert_eq!(reply.status, 401, "{url}: {reply:?}");
    }
    assert!(gateway.fetch.asked().is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn a_subscription_is_confirmed_after_verification_and_before_its_event_is_committed() {
    let gateway = started().await;
    let sample = sample("aws-sns", "subscription-confirmation");
    let subscribe = read(&sample.body)["SubscribeURL"].as_str().expect("a URL").to_owned();
    gateway.fetch.answer(&sample.certificate_url, Ok(&sample.certificate));

    // The confirmation fails: nothing is stored, and SNS sends it again.
    gateway.fetch.answer(&subscribe, Err(FetchError::Refused(500)));
    let reply = gateway.post(SNS, &sample.headers, &sample.body).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some("fetch_failed")), "{reply:?}");
    assert!(gateway.store.with(|state| state.calls.is_empty()), "nothing was committed");

    // It succeeds, the commit fails.
    gateway.fetch.answer(&subscribe, Ok("<ConfirmSubscriptionResponse/>"));
    gateway.store.with(|state| state.faults.push_back(Fault::Unavailable));
    assert_eq!(gateway.post(SNS, &sample.headers, &sample.body).await.status, 503);

    let reply = gateway.post(SNS, &sample.headers, &sample.body).await;
    assert_eq!((reply.status, reply.json()["status"].as_str()), (200, Some("accepted")), "{reply:?}");
    let confirmed = gateway.fetch.asked().into_iter().filter(|url| *url == subscribe).count();
    assert_eq!(confirmed, 3, "each attempt confirms anew");
    gateway.stop().await;
}

#[tokio::test]
async fn a_subscription_that_is_forged_or_of_another_topic_is_not_confirmed() {
    let gateway = started().await;
    let elsewhere = |source: &mut portero_store::Source| {
        source.settings.insert("topic_arn".to_owned(), "arn:aws:sns:us-east-1:123456789012:Other".to_owned());
    };
    gateway.add(22, "aws-sns", None, elsewhere).await;
    let sample = sample("aws-sns", "subscription-confirmation");
    let subscribe = read(&sample.body)["SubscribeURL"].as_str().expect("a URL").to_owned();
    gateway.fetch.answer(&sample.certificate_url, Ok(&sample.certificate));
    let forged = String::from_utf8(sample.body.clone()).expect("text").replacen("sns-2", "sns-9", 1);
    let reply = gateway.post(SNS, &sample.headers, forged.as_bytes()).await;
    assert_eq!(
        (reply.status, reply.json()["reason"].as_str()),
        (401, Some("SIGNATURE_MISMATCH")),
        "{reply:?}"
    );
    assert_eq!(gateway.post(22, &sample.headers, &sample.body).await.status, 401);
    assert!(!gateway.fetch.asked().contains(&subscribe), "{:?}", gateway.fetch.asked());
    assert!(gateway.stored().is_empty());
    gateway.stop().await;
}
