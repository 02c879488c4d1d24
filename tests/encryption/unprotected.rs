//! Going without a keyring, and getting one later.

use super::{PATIENCE, fail, status_of, succeed};
use crate::harness::{Consumer, Gateway, Kind, Setup, Site, stripe_event};
use crate::kinds::on_each_store;

on_each_store!(a_gateway_without_a_keyring_says_so_and_gets_one_later_without_a_loss);

async fn a_gateway_without_a_keyring_says_so_and_gets_one_later_without_a_loss(kind: Kind) {
    let site = Site::new(kind);
    let open = || Gateway::new(&site).without("KEYRING__PATH").set("KEYRING__UNPROTECTED", "true");
    let mut gateway = open();
    gateway.launch().await;
    assert!((gateway.metric("portero_keyring_unprotected", &[]).await - 1.0).abs() < 0.1);
    let log = std::fs::read_to_string(&gateway.log.path).expect("a log");
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("no keyring is used")));
    let setup = Setup::new(&gateway).await;
    let provider = setup.provider(&gateway);
    assert!(provider.send(&stripe_event("evt_0", "a", 0)).await.is_success());
    gateway.terminate();
    gateway.ended(PATIENCE).await;

    let closed = Gateway::new(&site);
    let said = fail(&closed, &["serve"]);
    assert!(said.contains("keyring.unprotected = true") && said.contains("keyring rewrap"), "{said}");
    assert!(fail(&gateway, &["keyring", "rewrap"]).contains("keyring.path"), "there is no key to wrap with");
    let both = Gateway::new(&site).set("KEYRING__UNPROTECTED", "true");
    assert_eq!(status_of(&both, "none"), ("unprotected".to_owned(), 1));
    assert!(succeed(&both, &["keyring", "rewrap"]).starts_with("1 data keys were wrapped under v1"));
    let said = fail(&gateway, &["serve"]);
    assert!(said.contains("lacks the key v1"), "without the keyring nobody reads it now: {said}");

    let mut protected = closed;
    protected.launch().await;
    let provider = setup.provider(&protected);
    assert!(provider.send(&stripe_event("evt_1", "a", 1)).await.is_success());
    let consumer = Consumer::start(&protected).await;
    consumer.has_acked(2, PATIENCE).await;
    consumer.check_promises();
    consumer.stop().await;
}
