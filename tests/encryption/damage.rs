//! Rows that were damaged, and a tenant whose key was destroyed.

use portero_client::v1;
use portero_recipe::SignOptions;
use tonic::Code;

use super::{PATIENCE, fail, parked, succeed, tenant};
use crate::harness::{
    Consumer, Gateway, Kind, Provider, Setup, Site, Source, canaries, eventually, now, stripe_event,
};
use crate::kinds::on_each_store;

/// Changes a bit of an event's sealed content; done twice, it is as it was.
fn flip_event(site: &Site, event_id: &str) {
    site.query(&format!(
        "UPDATE events e SET content = set_byte(content, 20, get_byte(content, 20) # 1)
         FROM receipts r WHERE r.receipt_id = e.receipt_id AND r.event_id = '{event_id}'"
    ));
}

/// Changes a bit of a tenant's wrapped data key; done twice, it is as it was.
fn flip_key(site: &Site, tenant: &str) {
    site.query(&format!(
        "UPDATE tenant_keys k SET wrapped = set_byte(wrapped, 20, get_byte(wrapped, 20) # 1)
         FROM tenants t WHERE t.tenant_no = k.tenant_no AND t.tenant_id = '{tenant}'"
    ));
}

/// Changes a bit of a secret's sealed value, as a gateway would change a row: the others hear of it.
fn flip_secret(site: &Site, secret: &str) {
    site.query(&format!(
        "BEGIN; UPDATE config_revision SET revision = revision + 1;
         UPDATE secrets SET sealed = set_byte(sealed, 20, get_byte(sealed, 20) # 1) WHERE secret_id = '{secret}'; COMMIT"
    ));
}

/// How often the log says this at level ERROR.
fn errors(gateway: &Gateway, words: &str) -> usize {
    let log = std::fs::read_to_string(&gateway.log.path).expect("a log");
    log.lines().filter(|line| line.contains("ERROR") && line.contains(words)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_secret_leaves_the_others_at_work_until_it_is_revoked() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::new(&site).expect("cannot be opened");
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    let sign = |secret: &str, id: &str| {
        let options = SignOptions { now: now(), ..SignOptions::default() };
        provider.sign_with(secret, &stripe_event(id, "a", 0), options)
    };
    let first = setup.stripe.secret.clone();
    assert!(provider.post(&sign(&first, "evt_0")).await.is_success());
    let damaged = setup.receipt("evt_0").await.expect("a receipt").secret;
    let request = v1::CreateSecretRequest {
        parent: setup.stripe.name.clone(),
        secret_id: "good".to_owned(),
        ..v1::CreateSecretRequest::default()
    };
    let good = setup.admin.create_secret(request).await.expect("added").into_inner().value;
    canaries::plant_secret(&good);
    flip_secret(&site, &damaged);
    let answer = eventually("its damage is seen", PATIENCE, async || {
        let answer = provider.post(&sign(&first, "evt_1")).await;
        (!answer.is_success()).then_some(answer)
    })
    .await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "SECRET_UNREADABLE"), "{answer:?}");
    assert!(provider.post(&sign(&good, "evt_2")).await.is_success(), "the other one goes on");
    assert_eq!(setup.receipt("evt_2").await.expect("a receipt").secret, "good");
    assert_eq!(gateway.metric("portero_secrets_unreadable", &[]).await, 1.0);
    let name = format!("{}/secrets/{damaged}", setup.stripe.name);
    let shown = setup.admin.get_secret(v1::GetSecretRequest { name: name.clone() }).await.expect("there");
    let shown = shown.into_inner();
    assert!(shown.warnings.iter().any(|warning| warning.contains("cannot be read")), "{shown:?}");
    assert!(!shown.safe_to_retire.expect("judged").safe);
    let source = v1::GetSourceRequest { name: setup.stripe.name.clone() };
    let source = setup.admin.get_source(source).await.expect("there").into_inner();
    assert!(source.warnings.iter().any(|warning| warning.contains("cannot be read")), "{source:?}");

    let said = fail(&gateway, &["keyring", "rotate-data-keys"]);
    assert!(said.contains("Restore its row, or revoke it"), "{said}");
    let revoke = v1::RevokeSecretRequest { name, wait: true, ..v1::RevokeSecretRequest::default() };
    setup.admin.revoke_secret(revoke).await.expect("revoked");
    let answer = provider.post(&sign(&first, "evt_1")).await;
    assert_eq!((answer.status, answer.reason().as_str()), (401, "SIGNATURE_MISMATCH"), "{answer:?}");
    assert!(provider.post(&sign(&good, "evt_3")).await.is_success());
    assert_eq!(gateway.metric("portero_secrets_unreadable", &[]).await, 0.0);
    assert_eq!(errors(&gateway, "a secret cannot be read"), 1, "once, however often the source was read");
    succeed(&gateway, &["keyring", "rotate-data-keys"]);
    assert!(provider.post(&sign(&good, "evt_4")).await.is_success(), "what is revoked holds nothing up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_event_waits_with_its_entity_while_others_go_on_and_comes_once_it_is_mended() {
    let site = Site::new(Kind::Postgres);
    let gateway = Gateway::new(&site).expect("cannot be opened");
    let mut gateway = gateway;
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    for (id, entity, sequence) in
        [("evt_a0", "a", 0), ("evt_b0", "b", 0), ("evt_a1", "a", 1), ("evt_b1", "b", 1)]
    {
        assert!(provider.send(&stripe_event(id, entity, sequence)).await.is_success());
    }
    flip_event(&site, "evt_a0");
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(2, PATIENCE).await;
    let waiting = eventually("the damaged event is parked", PATIENCE, async || {
        parked(&mut setup).await.into_iter().find(|entity| entity.reason_code == "BODY_UNREADABLE")
    })
    .await;
    assert_eq!(waiting.attempts, 0, "nobody's fault is counted");
    let handled: Vec<_> = consumer.handled().into_iter().map(|handled| handled.event_id).collect();
    assert_eq!(handled, ["evt_b0", "evt_b1"], "nothing of the entity passes the damaged one");
    let receipt = setup.receipt("evt_a0").await.expect("a receipt");
    assert_eq!(waiting.receipt_id, receipt.receipt_id);
    let log = std::fs::read_to_string(&gateway.log.path).expect("a log");
    let told =
        log.lines().filter(|line| line.contains("ERROR") && line.contains(&receipt.receipt_id)).count();
    assert_eq!(told, 1, "an operator is told once, with the receipt");

    flip_event(&site, "evt_a0");
    consumer.has_acked(4, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_event_can_be_given_up_and_its_entity_goes_on() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::new(&site).expect("cannot be opened");
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    for (id, sequence) in [("evt_0", 0), ("evt_1", 1)] {
        assert!(provider.send(&stripe_event(id, "a", sequence)).await.is_success());
    }
    flip_event(&site, "evt_0");
    let consumer = Consumer::start(&gateway).await;
    let waiting = eventually("the damaged event is parked", PATIENCE, async || {
        parked(&mut setup).await.into_iter().find(|entity| entity.reason_code == "BODY_UNREADABLE")
    })
    .await;
    let give_up = v1::DeadLetterParkedEntityRequest { name: waiting.name };
    setup.admin.dead_letter_parked_entity(give_up).await.expect("asked");
    consumer.has_acked(1, PATIENCE).await;
    assert_eq!(consumer.handled()[0].event_id, "evt_1");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_whose_key_is_damaged_stands_still_alone_and_goes_on_once_it_is_mended() {
    let site = Site::new(Kind::Postgres);
    let mut gateway = Gateway::new(&site).expect("cannot be opened");
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    tenant(&mut setup, "globex").await;
    let other = Source::preset(&mut setup.admin, &gateway, "globex", "stripe").await;
    let (acme, globex) = (setup.provider(&gateway), Provider::new(&gateway, &other));
    for sequence in 0..3 {
        let id = format!("evt_acme_{sequence}");
        assert!(acme.send(&stripe_event(&id, "a", sequence)).await.is_success());
    }
    flip_key(&site, "acme");
    gateway.terminate();
    gateway.ended(PATIENCE).await;
    gateway.launch().await;

    let refused = acme.send(&stripe_event("evt_acme_3", "a", 3)).await;
    assert_eq!(refused.status, 503, "it comes again later: {refused:?}");
    let name = setup.stripe.name.clone();
    let shown = setup.admin.get_source(v1::GetSourceRequest { name }).await.expect("shown").into_inner();
    assert!(shown.warnings.iter().any(|said| said.contains("data key cannot be opened")), "{shown:?}");
    let status = succeed(&gateway, &["keyring", "status"]);
    assert_eq!(status.lines().nth(1).and_then(|line| line.split_whitespace().last()), Some("1"), "{status}");
    let consumer = Consumer::start(&gateway).await;
    for sequence in 0..3 {
        let id = format!("evt_globex_{sequence}");
        assert!(globex.send(&stripe_event(&id, "g", sequence)).await.is_success());
    }
    consumer.has_acked(3, PATIENCE).await;
    eventually("acme's events wait", PATIENCE, async || {
        let waiting = parked(&mut setup).await;
        waiting.iter().any(|entity| entity.reason_code == "BODY_UNREADABLE").then_some(())
    })
    .await;
    assert!(consumer.handled().iter().all(|handled| handled.event_id.starts_with("evt_globex")));

    flip_key(&site, "acme");
    let again = acme.sign(&stripe_event("evt_acme_3", "a", 3));
    acme.deliver(&again, PATIENCE).await;
    consumer.has_acked(7, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
}

on_each_store!(an_erased_tenants_urls_are_unknown_and_its_events_are_over_and_counted);

async fn an_erased_tenants_urls_are_unknown_and_its_events_are_over_and_counted(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    tenant(&mut setup, "globex").await;
    let other = Source::preset(&mut setup.admin, &gateway, "globex", "stripe").await;
    let acme = setup.provider(&gateway);
    for sequence in 0..3 {
        let id = format!("evt_acme_{sequence}");
        assert!(acme.send(&stripe_event(&id, "a", sequence)).await.is_success());
    }
    let erase = |confirm: &str| v1::EraseTenantRequest {
        name: "tenants/acme".to_owned(),
        confirm: confirm.to_owned(),
        reason: "their contract ended".to_owned(),
    };
    let refused = setup.admin.erase_tenant(erase("globex")).await.expect_err("not confirmed");
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(acme.send(&stripe_event("evt_acme_3", "a", 3)).await.is_success(), "nothing happened");
    setup.admin.erase_tenant(erase("acme")).await.expect("erased");
    let again = setup.admin.erase_tenant(erase("acme")).await.expect_err("nobody is left");
    assert_eq!(again.code(), Code::NotFound);
    assert_eq!(acme.send(&stripe_event("evt_acme_4", "a", 4)).await.status, 404);

    let consumer = Consumer::start(&gateway).await;
    assert!(Provider::new(&gateway, &other).send(&stripe_event("evt_globex", "a", 0)).await.is_success());
    consumer.has_acked(1, PATIENCE).await;
    eventually("the erased events are counted", PATIENCE, async || {
        let request = v1::GetSubscriptionRequest { name: "subscriptions/billing".to_owned() };
        let found = setup.admin.get_subscription(request).await.expect("there").into_inner();
        (found.expired_count == 4).then_some(())
    })
    .await;
    assert_eq!(consumer.handled().len(), 1, "nothing of the erased tenant was delivered");
    if kind == Kind::Postgres {
        assert_eq!(site.query("SELECT count(*) FROM tenant_keys"), "1");
    }
    consumer.stop().await;
}
