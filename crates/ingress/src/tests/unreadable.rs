//! A source one of whose secrets cannot be read.

use super::*;
use crate::forwarded::{ForwardedHeader, TrustedProxies};
use crate::{LimitsConfig, UnverifiedLimits};

/// The stripe source's secret is damaged, and a good one is beside it unless it is `alone`.
async fn damage(gateway: &Gateway, alone: bool) {
    gateway.config.change(|snapshot| {
        let secret =
            snapshot.secrets.iter_mut().find(|secret| secret.source_no == SourceNo(1)).expect("there");
        let good = portero_store::Secret {
            no: SecretNo(101),
            id: SecretId::new("good").expect("valid"),
            ..secret.clone()
        };
        secret.sealed.0[20] ^= 1;
        if !alone {
            let source = &snapshot.sources[0];
            let aad = secret_aad(&source.tenant, &source.id, &good.id);
            let sealed = Sealed(tenant_keys().seal(&aad, GOOD.as_bytes(), [77; 12]));
            snapshot.secrets.push(portero_store::Secret { sealed, ..good });
        }
    });
    gateway.directory.refresh_now().await.expect("readable");
}

const GOOD: &str = "whsec_the-good-one-of-this-source-0123";

/// An event that is signed with the good secret, from an address.
fn good(event: &str, from: &str) -> (Vec<(String, String)>, Vec<u8>) {
    let recipe = Recipe::preset("stripe").expect("a preset");
    let options = SignOptions { now: NOW, ..SignOptions::default() };
    let signed = sign(&recipe, GOOD, &stripe_event(event), options).expect("signs");
    let mut headers = signed.headers;
    headers.push(("x-forwarded-for".to_owned(), from.to_owned()));
    (headers, signed.body)
}

#[tokio::test]
async fn the_others_go_on_and_what_none_of_them_verifies_is_to_come_again_instead_of_refused() {
    let gateway = Gateway::start().await;
    damage(&gateway, false).await;
    let (headers, body) = good("evt_good", "192.0.2.1");
    assert_eq!(gateway.post(1, &headers, &body).await.json()["status"], "accepted");
    let lost = gateway.deliver(1, &stripe_event("evt_lost")).await;
    assert_eq!((lost.status, lost.header("retry-after")), (503, Some("60")), "{lost:?}");
    assert_eq!(
        (&lost.json()["error"], &lost.json()["reason"]),
        (&"secret_unreadable".into(), &"SECRET_UNREADABLE".into())
    );
    let unsigned = gateway.post(1, &[], &stripe_event("evt_unsigned")).await;
    assert_eq!((unsigned.status, unsigned.json()["reason"].as_str()), (401, Some("SIGNATURE_MISSING")));
    assert_eq!(gateway.stored(), ["evt_good"]);

    // Once the damaged one ends, nobody can have signed with it.
    gateway.config.change(|snapshot| snapshot.secrets[0].not_after = Some(NOW));
    gateway.directory.refresh_now().await.expect("readable");
    let late = gateway.deliver(1, &stripe_event("evt_lost")).await;
    assert_eq!((late.status, late.json()["reason"].as_str()), (401, Some("SIGNATURE_MISMATCH")), "{late:?}");
    let kept = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let reasons: Vec<_> = kept.rows().into_iter().map(|row| row.reason).collect();
    assert_eq!(
        reasons,
        ["SECRET_UNREADABLE", "SIGNATURE_MISSING", "SIGNATURE_MISMATCH"],
        "its owner sees all of them"
    );
}

#[tokio::test]
async fn the_only_secret_refuses_nobody_for_good_either() {
    let gateway = Gateway::start().await;
    damage(&gateway, true).await;
    let lost = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!((lost.status, lost.json()["reason"].as_str()), (503, Some("SECRET_UNREADABLE")));
    gateway.config.change(|snapshot| snapshot.secrets[0].sealed.0[20] ^= 1);
    gateway.directory.refresh_now().await.expect("readable");
    assert_eq!(gateway.deliver(1, &stripe_event("evt_1")).await.status, 200, "it was mended");
    gateway.stop().await;
}

/// Else a damaged secret would have a stranger's requests examined without end.
#[tokio::test]
async fn forged_requests_use_up_what_strangers_may_send_as_ever() {
    let unverified = UnverifiedLimits { per_second: 1, burst: 3 };
    let config = EdgeConfig {
        limits: LimitsConfig {
            unverified_source: unverified,
            unverified_address: unverified,
            ..LimitsConfig::default()
        },
        trusted_proxies: TrustedProxies::new(
            vec!["127.0.0.0/8".parse().expect("valid")],
            ForwardedHeader::XForwardedFor,
        ),
        ..EdgeConfig::default()
    };
    let gateway = Gateway::bounded(config).await;
    damage(&gateway, false).await;
    let (headers, body) = good("evt_1", "192.0.2.1");
    assert_eq!(gateway.post(1, &headers, &body).await.status, 200);
    let (mut forged, _) = signed(1, &stripe_event("evt_forged"), NOW);
    forged.push(("x-forwarded-for".to_owned(), "198.51.100.66".to_owned()));
    let mut answers = Vec::new();
    for n in 0..10 {
        answers.push(gateway.post(1, &forged, &stripe_event(&format!("evt_forged_{n}"))).await.status);
    }
    assert_eq!((answers[0], answers[9]), (503, 429), "{answers:?}");
    let (headers, body) = good("evt_2", "192.0.2.1");
    assert_eq!(gateway.post(1, &headers, &body).await.status, 200, "the provider is known");
    gateway.stop().await;
}
