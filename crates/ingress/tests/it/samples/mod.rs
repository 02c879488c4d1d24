//! Requests as the vendors' packages sign them, through the running edge: over TCP into a real store.

mod sample;

use portero_recipe::{IdScope, Strength};
use sample::{Sample, samples};
use serde_json::Value;

use crate::support::{Answer, Endpoint, Gateway};

/// A gateway with an endpoint for each sample, and a second one under another secret.
async fn start(samples: &[Sample]) -> Gateway {
    let endpoints: Vec<Endpoint> = samples
        .iter()
        .flat_map(|sample| [Some(sample.endpoint()), sample.other_endpoint()])
        .flatten()
        .collect();
    Gateway::start(&endpoints).await
}

async fn send(gateway: &Gateway, sample: &Sample, body: &[u8]) -> Answer {
    gateway.gives(sample.fetched.as_deref());
    gateway.send(&sample.endpoint(), &sample.message(body)).await
}

/// A certificate with which no sample was signed, and which was valid then.
const OTHER_CERTIFICATE: &str =
    include_str!("../../../../recipe/src/certificate/fixtures/rsa-2048.certificate.pem");

async fn send_under_another_secret(gateway: &Gateway, sample: &Sample) -> Answer {
    gateway.gives(sample.fetched.as_deref());
    let other = sample.other_endpoint().unwrap_or_else(|| panic!("{}: no other secret", sample.name));
    gateway.send(&other, &sample.message(&sample.body)).await
}

/// The ids under which a sample's events are to be found, as the unique key holds them.
fn scoped_ids(sample: &Sample) -> Vec<(String, portero_recipe::Extracted)> {
    let events = sample.extracted();
    let scoped = |event: &portero_recipe::Extracted| {
        let scope = if event.id_derived { IdScope::Source } else { sample.preset.recipe.id_scope() };
        match (scope, &event.account) {
            (IdScope::Source, _) => format!("src:{}:{}", sample.source, event.event_id),
            (IdScope::Account, Some(account)) => {
                let account = account.replace('%', "%25").replace(':', "%3A");
                format!("acct:{account}:{}", event.event_id)
            }
            (IdScope::Account, None) | (IdScope::Global, _) => event.event_id.clone(),
        }
    };
    events.into_iter().map(|event| (scoped(&event), event)).collect()
}

fn check_answer(sample: &Sample, answer: &Answer, good: bool) {
    let Sample { name, expect, preset, .. } = sample;
    let wanted = match expect["response_status"].as_u64() {
        Some(status) => status,
        // What else a handshake is answered with is said by its body.
        None if sample.is_handshake() => u64::from(answer.status),
        None if good => u64::from(preset.recipe.accepted_reply().map_or(200, |reply| reply.status)),
        None => u64::from(preset.recipe.rejected_status()),
    };
    assert_eq!(u64::from(answer.status), wanted, "{name}: {}", answer.body);
    if let Some(body) = expect["response_body"].as_str() {
        assert_eq!(answer.body, body, "{name}");
    }
    if let Some(json) = expect.get("response_json") {
        assert_eq!(&serde_json::from_str::<Value>(&answer.body).expect("JSON"), json, "{name}");
    }
    if let Some(kind) = expect["response_content_type"].as_str() {
        assert!(answer.header("content-type").is_some_and(|have| have.starts_with(kind)), "{name}");
    }
    for (header, value) in expect["response_headers"].as_object().into_iter().flatten() {
        assert_eq!(answer.header(&header.to_ascii_lowercase()), value.as_str(), "{name}");
    }
}

async fn check_receipts(gateway: &Gateway, sample: &Sample) {
    let Sample { name, expect, .. } = sample;
    let scoped = scoped_ids(sample);
    let ids: Vec<_> = scoped.iter().map(|(_, event)| Value::from(event.event_id.as_str())).collect();
    if let Some(wanted) = expect["event_ids"].as_array() {
        assert_eq!(&ids, wanted, "{name}");
    }
    assert_eq!(scoped.len() as u64, expect["events"].as_u64().unwrap_or(1), "{name}: events");
    let stored = gateway.stored(&sample.endpoint()).await;
    assert_eq!(stored.len(), scoped.len(), "{name}: stored");
    for (n, (id, event)) in scoped.iter().enumerate() {
        // Such an event is none that was there before, whatever its bytes are.
        let distinct = stored.iter().find(|_| event.distinct).map(|event| &event.event_id);
        let id = distinct.unwrap_or(id);
        let receipt = gateway
            .receipt(&sample.endpoint(), id)
            .await
            .unwrap_or_else(|| panic!("{name}: there is no receipt of the event {id}"));
        assert_eq!(receipt.event_type, event.event_type, "{name}");
        assert!(receipt.position.is_some(), "{name}: it is in the log");
        if n > 0 {
            continue;
        }
        match expect.get("event_id") {
            Some(Value::String(wanted)) => assert!(id.ends_with(wanted.as_str()), "{name}: {id}"),
            Some(_) => assert!(receipt.id_derived, "{name}: {id}"),
            None => {}
        }
        if let Some(wanted) = expect["event_type"].as_str() {
            assert_eq!(receipt.event_type, wanted, "{name}");
        }
        if let Some(wanted) = expect["entity"].as_str() {
            assert_eq!(receipt.ordering_key, format!("{}:{wanted}", sample.preset.name), "{name}");
        }
        if let Some(wanted) = expect["account"].as_str() {
            assert_eq!(event.account.as_deref(), Some(wanted), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sample_is_answered_and_stored_as_expected() {
    let samples = samples();
    let gateway = start(&samples).await;
    let mut events = 0;
    for sample in &samples {
        let answer = send(&gateway, sample, &sample.body).await;
        check_answer(sample, &answer, sample.is_good());
        if sample.is_good() && !sample.is_handshake() {
            check_receipts(&gateway, sample).await;
            events += 1;
        } else {
            assert_eq!(
                gateway.stored(&sample.endpoint()).await.len(),
                0,
                "{}: nothing is stored",
                sample.name
            );
        }
    }
    assert!(samples.len() >= 300 && events >= 150, "{} samples, {events} accepted", samples.len());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_accepted_sample_survives_a_change_of_its_bytes_its_secret_or_its_time() {
    let samples: Vec<_> =
        samples().into_iter().filter(|sample| sample.is_good() && !sample.is_handshake()).collect();
    let gateway = start(&samples).await;
    let (mut changed, mut other, mut late) = (0, 0, 0);
    for sample in &samples {
        let name = &sample.name;
        if let Some(body) = changed_body(sample) {
            let answer = send(&gateway, sample, &body).await;
            assert_eq!(answer.status, sample.preset.recipe.rejected_status(), "{name}: another body");
            changed += 1;
        }
        if sample.needs_secret() {
            let answer = send_under_another_secret(&gateway, sample).await;
            assert_eq!(answer.status, sample.preset.recipe.rejected_status(), "{name}: another secret");
            other += 1;
        }
        if sample.fetched.as_ref().is_some_and(|key| key.contains("BEGIN CERTIFICATE")) {
            gateway.gives(Some(OTHER_CERTIFICATE));
            let answer = gateway.send(&sample.endpoint(), &sample.message(&sample.body)).await;
            assert_eq!(answer.status, sample.preset.recipe.rejected_status(), "{name}: another certificate");
            other += 1;
        }
    }
    gateway.forward(std::time::Duration::from_secs(8 * 24 * 3600));
    for sample in samples.iter().filter(|sample| sample.is_timed()) {
        let answer = send(&gateway, sample, &sample.body).await;
        assert_eq!(answer.status, sample.preset.recipe.rejected_status(), "{}: late", sample.name);
        late += 1;
    }
    for sample in &samples {
        assert_eq!(gateway.stored(&sample.endpoint()).await.len(), 0, "{}: nothing is stored", sample.name);
    }
    assert!(changed >= 100 && other >= 100 && late >= 40, "{changed} {other} {late}");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_text_under_a_signature_of_another_is_refused_and_never_an_error() {
    let samples: Vec<_> = samples().into_iter().filter(|sample| sample.method == "POST").collect();
    let gateway = start(&samples).await;
    let mut refused = 0;
    for sample in &samples {
        let answer = send(&gateway, sample, b"\xff\xfe\x00\x80").await;
        let name = &sample.name;
        assert!(answer.status < 500, "{name}: {answer:?}");
        let proves_nothing_of_it = sample.is_handshake()
            || matches!(sample.preset.recipe.strength(), Strength::Token | Strength::None)
            || sample.preset.name == "mercadopago";
        if proves_nothing_of_it {
            continue;
        }
        assert_eq!(answer.status, sample.preset.recipe.rejected_status(), "{name}: {answer:?}");
        assert!(gateway.stored(&sample.endpoint()).await.is_empty(), "{name}");
        refused += 1;
    }
    assert!(refused >= 200, "{refused}");
    gateway.stop().await;
}

/// The body with one bit changed in a place that is signed; `None` where nothing of it is: where only a token is sent,
/// and at Mercado Pago, which signs the query.
fn changed_body(sample: &Sample) -> Option<Vec<u8>> {
    let mut body = sample.body.clone();
    let at = match sample.strength() {
        Strength::Body if sample.preset.name == "braintree" => body.len() - 9,
        Strength::Body => body.len().checked_sub(1)? / 2,
        Strength::Fields if sample.preset.name == "mercadopago" => return None,
        Strength::Fields => {
            let ids = sample.extracted();
            let id =
                ids.first().map(|event| event.event_id.split(':').next().unwrap_or_default().to_owned())?;
            let signed = sample.signed_word().unwrap_or(&id).as_bytes().to_vec();
            body.windows(signed.len()).position(|have| have == signed.as_slice())?
        }
        Strength::Token | Strength::None => return None,
    };
    body[at] ^= 1;
    Some(body)
}
