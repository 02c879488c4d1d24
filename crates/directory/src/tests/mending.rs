//! Data keys that cannot be opened are looked at again, and nothing else is.

use std::sync::Arc;
use std::time::Duration;

use portero_store::TenantKey;
use portero_types::{SourceNo, TenantId, TenantNo};
use tokio_util::sync::CancellationToken;

use super::{keyring, open, snapshot, source};
use crate::Fault;
use crate::testing::{FixedConfig, tenant_key};

const MINUTE: Duration = Duration::from_secs(60);

fn damaged(mut key: TenantKey) -> TenantKey {
    key.key.bytes[20] ^= 1;
    key
}

/// The source 1 of acme, and the source 2 of globex, whose data key is damaged.
fn store() -> FixedConfig {
    let (acme, globex) = (source(1, "stripe"), source(2, "stripe"));
    let id = TenantId::new("globex").expect("valid");
    let globex = portero_store::Source { tenant_no: TenantNo(2), tenant: id.clone(), ..globex };
    let mut config = snapshot(vec![acme, globex], Vec::new());
    config.tenant_keys.push(damaged(tenant_key(TenantNo(2), &id, &keyring())));
    FixedConfig::new(config)
}

#[tokio::test(start_paused = true)]
async fn while_a_data_key_cannot_be_opened_its_row_alone_is_read_and_nobody_hears_of_it() {
    let store = store();
    let (directory, follower) = open(&store, keyring()).await;
    let following = tokio::spawn(follower.run(CancellationToken::new()));
    let (before, mut changed) = (directory.snapshot(), directory.changed());
    assert_eq!(before.tenants_unopened(), 1);
    tokio::time::sleep(MINUTE).await;
    assert!((10..=12).contains(&store.keys_read()), "every five seconds: {}", store.keys_read());
    assert_eq!((store.snapshots_read(), store.deltas_read()), (1, 0));
    assert!(Arc::ptr_eq(&before, &directory.snapshot()));
    assert!(!changed.has_changed().expect("open"), "no stream is woken up");
    assert!(directory.is_fresh());

    store.tamper(|config| config.tenant_keys[1] = damaged(config.tenant_keys[1].clone()));
    tokio::time::timeout(Duration::from_secs(6), changed.changed()).await.expect("in time").expect("open");
    let after = directory.snapshot();
    assert_eq!((after.tenants_unopened(), after.revision()), (0, before.revision()));
    assert!(after.source_by_no(SourceNo(2)).expect("there").verification.is_ok());
    let kept = |snapshot: &crate::Snapshot| Arc::clone(snapshot.source_by_no(SourceNo(1)).expect("there"));
    assert!(Arc::ptr_eq(&kept(&before), &kept(&after)), "others are left alone");
    let read = store.keys_read();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(
        (store.keys_read(), store.snapshots_read()),
        (read, 1),
        "there is nothing to look at any more"
    );
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_erased_meanwhile_is_asked_for_no_longer() {
    let store = store();
    let (directory, follower) = open(&store, keyring()).await;
    let following = tokio::spawn(follower.run(CancellationToken::new()));
    let fault = |snapshot: &crate::Snapshot| {
        snapshot.source_by_no(SourceNo(2)).expect("there").verification.as_ref().err().cloned()
    };
    assert!(matches!(fault(&directory.snapshot()), Some(Fault::DataKey(_))));
    store.change(|config| drop(config.tenant_keys.pop()));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(store.keys_read(), 0);
    assert_eq!(directory.snapshot().tenants_unopened(), 0);
    assert!(matches!(fault(&directory.snapshot()), Some(Fault::DataKey(_))));
    following.abort();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_meanwhile_leaves_everything_as_it_is() {
    let store = store();
    let (directory, follower) = open(&store, keyring()).await;
    let following = tokio::spawn(follower.run(CancellationToken::new()));
    store.set_down(true);
    tokio::time::sleep(MINUTE).await;
    assert_eq!(directory.snapshot().tenants_unopened(), 1);
    store.set_down(false);
    store.tamper(|config| config.tenant_keys[1] = damaged(config.tenant_keys[1].clone()));
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(directory.snapshot().tenants_unopened(), 0);
    following.abort();
}
