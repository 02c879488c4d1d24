//! Secrets that overlap, and secrets that are gone.

use std::time::Duration;

use portero_client::v1;
use portero_recipe::SignOptions;

use crate::harness::{Answer, Gateway, Kind, Provider, Setup, Site, eventually, now, stripe_event};
use crate::kinds::on_each_store;

const OVERLAP_SECS: i64 = 3;
const PATIENCE: Duration = Duration::from_secs(20);

async fn send_with(provider: &Provider, secret: &str, event_id: &str) -> Answer {
    let options = SignOptions { now: now(), ..SignOptions::default() };
    provider.post(&provider.sign_with(secret, &stripe_event(event_id, event_id, 0), options)).await
}

on_each_store!(
    both_secrets_verify_during_the_overlap_the_receipt_says_which_and_afterwards_only_the_new_one_does
);

async fn both_secrets_verify_during_the_overlap_the_receipt_says_which_and_afterwards_only_the_new_one_does(
    kind: Kind,
) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    let old = setup.stripe.secret.clone();

    let request = v1::CreateSecretRequest {
        parent: setup.stripe.name.clone(),
        secret_id: "second".to_owned(),
        retire_others_after: Some(prost_types::Duration { seconds: OVERLAP_SECS, nanos: 0 }),
        ..v1::CreateSecretRequest::default()
    };
    let new = setup.admin.create_secret(request).await.expect("a secret").into_inner().value;
    assert_ne!(old, new);
    eventually("the new secret verifies", PATIENCE, async || {
        send_with(&provider, &new, "evt_new").await.is_success().then_some(())
    })
    .await;
    let with_old = send_with(&provider, &old, "evt_old").await;
    assert!(with_old.is_success(), "the old secret verifies during the overlap: {with_old:?}");

    let by_new = setup.receipt("evt_new").await.expect("a receipt").secret;
    let by_old = setup.receipt("evt_old").await.expect("a receipt").secret;
    assert!(by_new.ends_with("second"), "{by_new}");
    assert!(!by_old.is_empty() && by_old != by_new, "{by_old} is not {by_new}");

    let refused = eventually("the old secret ends", PATIENCE, async || {
        let answer = send_with(&provider, &old, "evt_old").await;
        (!answer.is_success()).then_some(answer)
    })
    .await;
    assert_eq!((refused.status, refused.reason().as_str()), (401, "SIGNATURE_MISMATCH"));
    assert!(send_with(&provider, &new, "evt_newer").await.is_success());

    let listed =
        v1::ListSecretsRequest { parent: setup.stripe.name.clone(), ..v1::ListSecretsRequest::default() };
    let secrets = setup.admin.list_secrets(listed).await.expect("a list").into_inner().secrets;
    assert!(secrets.iter().all(|secret| secret.value.is_empty()), "a secret's value is shown once");
    let retired = secrets.iter().filter(|secret| secret.state() == v1::SecretState::Retired).count();
    let active = secrets.iter().filter(|secret| secret.state() == v1::SecretState::Active).count();
    assert_eq!((retired, active), (1, 1), "{secrets:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_secret_ceases_to_verify_on_every_gateway() {
    let site = Site::new(Kind::Postgres);
    let (one, other) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let mut setup = Setup::new(&one).await;
    setup.stripe.is_known(&other).await;
    let providers = [setup.provider(&one), setup.provider(&other)];
    for (number, provider) in providers.iter().enumerate() {
        assert!(send_with(provider, &setup.stripe.secret, &format!("evt_{number}")).await.is_success());
    }
    let name = setup.receipt("evt_0").await.expect("a receipt").secret;
    let name = format!("{}/secrets/{name}", setup.stripe.name);
    setup.admin.delete_secret(v1::DeleteSecretRequest { name }).await.expect("deleted");
    for provider in &providers {
        let refused = eventually("the secret is gone", PATIENCE, async || {
            let answer = send_with(provider, &setup.stripe.secret, "evt_late").await;
            (!answer.is_success()).then_some(answer)
        })
        .await;
        assert_eq!((refused.status, refused.reason().as_str()), (401, "NO_ACTIVE_SECRET"));
    }
}
