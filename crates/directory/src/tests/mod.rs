//! The directory over a store in memory.

mod catching_up;
mod incremental;
mod mending;
mod reporting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portero_keyring::{DataKey, KeyId, Keyring, TenantKeys, secret_aad, setting_aad};
use portero_store::{ConfigSnapshot, ConfigStore, Revision, Sealed, SealedSetting, SealedSettings};
use portero_types::{
    IngestKey, ProviderName, SecretId, SecretNo, SourceId, SourceNo, TenantId, TenantNo, Timestamp,
};
use tokio_util::sync::CancellationToken;

use crate::testing::{FixedConfig, tenant_key, tenant_keys};
use crate::{Directory, DirectoryConfig, Fault, Follower, SecretFault, Unreadable};

const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef";

fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable"))
}

fn key(n: u8) -> IngestKey {
    IngestKey::from_bytes([n; 16])
}

fn source(n: u8, preset: &str) -> portero_store::Source {
    portero_store::Source {
        no: SourceNo(i64::from(n)),
        tenant_no: TenantNo(1),
        tenant: TenantId::new("acme").expect("valid"),
        id: SourceId::new(format!("source-{n}")).expect("valid"),
        provider: ProviderName::new("stripe").expect("valid"),
        preset: preset.to_owned(),
        recipe: String::new(),
        ingest_key: key(n),
        public_urls: Vec::new(),
        settings: BTreeMap::new(),
        sealed_settings: SealedSettings::default(),
        secret_expected_until: None,
        limits: portero_store::Limits::default(),
        created_at: Timestamp::EPOCH,
    }
}

fn secret(source: &portero_store::Source, no: i64) -> portero_store::Secret {
    let id = SecretId::new(format!("secret-{no}")).expect("valid");
    let aad = secret_aad(&source.tenant, &source.id, &id);
    let sealed = tenant_keys().seal(&aad, SECRET.as_bytes(), [u8::try_from(no).expect("small"); 12]);
    portero_store::Secret {
        no: SecretNo(no),
        source_no: source.no,
        id,
        sealed: Sealed(sealed),
        not_before: Timestamp::EPOCH,
        not_after: None,
        revoked_at: None,
        unseen: false,
        created_at: Timestamp::EPOCH,
    }
}

fn snapshot(sources: Vec<portero_store::Source>, secrets: Vec<portero_store::Secret>) -> ConfigSnapshot {
    ConfigSnapshot {
        revision: Revision(1),
        tenants: Vec::new(),
        tenant_keys: vec![tenant_key(TenantNo(1), &TenantId::new("acme").expect("valid"), &keyring())],
        sources,
        secrets,
        subscriptions: Vec::new(),
        grants: Vec::new(),
        freed_names: Vec::new(),
    }
}

async fn open(store: &FixedConfig, keyring: Arc<Keyring>) -> (Directory, Follower) {
    let store: Arc<dyn ConfigStore> = Arc::new(store.clone());
    Directory::open(store, keyring, DirectoryConfig::default()).await.expect("readable")
}

#[tokio::test]
async fn a_source_is_found_by_its_key_with_its_secrets_opened() {
    let keyring = keyring();
    let row = source(1, "stripe");
    let secrets = vec![secret(&row, 2), secret(&row, 1)];
    let (directory, _) = open(&FixedConfig::new(snapshot(vec![row], secrets)), keyring).await;
    let snapshot = directory.snapshot();
    let found = snapshot.source_by_ingest_key(&key(1)).expect("there");
    let verification = found.verification.as_ref().expect("usable");
    let numbers: Vec<_> = verification.secrets.iter().map(|secret| secret.no().0).collect();
    assert_eq!(numbers, [1, 2], "in the order of their creation");
    assert!(snapshot.source_by_ingest_key(&key(2)).is_none());
    assert!(directory.is_fresh());
    let shown = format!("{snapshot:?}");
    assert!(!shown.contains("0123456789abcdef"), "Debug shows no secret");
}

#[tokio::test]
async fn what_cannot_be_used_disables_its_own_source_only() {
    let keyring = keyring();
    let (good, odd) = (source(1, "stripe"), source(2, "no-such-preset"));
    let mut broken = source(4, "");
    broken.recipe = "{".to_owned();
    let secrets = vec![secret(&good, 1)];
    let rows = vec![good, odd, broken];
    let (directory, _) = open(&FixedConfig::new(snapshot(rows, secrets)), keyring).await;
    let snapshot = directory.snapshot();
    let fault = |n| snapshot.source_by_no(SourceNo(n)).expect("there").verification.as_ref().err().cloned();
    assert_eq!(fault(1), None);
    assert_eq!(fault(2), Some(Fault::PresetUnknown));
    assert!(matches!(fault(4), Some(Fault::RecipeInvalid(_))));
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_known_and_disturbs_no_other_one() {
    let keyring = keyring();
    let (damaged, moved) = (source(3, "stripe"), source(5, "stripe"));
    let mut foreign = secret(&damaged, 3);
    foreign.sealed.0[2] = 9;
    // A secret that was sealed for another source does not open for this one.
    let stolen = portero_store::Secret { source_no: moved.no, ..secret(&damaged, 9) };
    let mut gone = secret(&moved, 10);
    (gone.sealed.0[2], gone.revoked_at) = (9, Some(Timestamp::EPOCH));
    let rows = vec![damaged.clone(), moved.clone()];
    let secrets = vec![foreign.clone(), secret(&damaged, 4), stolen, secret(&moved, 8), gone];
    let store = FixedConfig::new(snapshot(rows, secrets));
    let (directory, _) = open(&store, keyring).await;
    let snapshot = directory.snapshot();
    for (source, lost, good) in [(3, 3, 4), (5, 9, 8)] {
        let found = snapshot.source_by_no(SourceNo(source)).expect("there");
        let id = SecretId::new(format!("secret-{lost}")).expect("valid");
        let lost = Unreadable { no: SecretNo(lost), id, fault: SecretFault::Sealed };
        assert_eq!(found.unreadable(), [lost]);
        let secrets = &found.verification.as_ref().expect("usable").secrets;
        let readable: Vec<_> =
            secrets.iter().filter(|secret| secret.is_readable()).map(|secret| secret.no().0).collect();
        assert_eq!((readable, secrets.len()), (vec![good], 2));
    }
    assert_eq!(snapshot.secrets_unreadable(), 2);

    store.change(|config| config.secrets.retain(|secret| secret.no != SecretNo(9)));
    directory.refresh_now().await.expect("readable");
    assert_eq!(directory.snapshot().secrets_unreadable(), 1, "what is deleted is forgotten");
    store.change(|config| config.secrets[0] = secret(&damaged, 3));
    directory.refresh_now().await.expect("readable");
    assert_eq!(directory.snapshot().secrets_unreadable(), 0, "what was mended is read");
}

/// A source of Meta's with the setting `name`, sealed for the setting `sealed_for`.
fn with_setting(n: u8, name: &str, sealed_for: &str) -> portero_store::Source {
    let row = source(n, "meta");
    let aad = setting_aad(&row.tenant, &row.id, sealed_for);
    let sealed = Sealed(tenant_keys().seal(&aad, b"door-word-0123456789", [n; 12]));
    let setting = SealedSetting { given_at: Timestamp::EPOCH, sealed };
    portero_store::Source { sealed_settings: SealedSettings([(name.to_owned(), setting)].into()), ..row }
}

#[tokio::test]
async fn a_secret_setting_is_opened_and_one_that_cannot_be_disables_its_source() {
    let (good, moved) =
        (with_setting(1, "verify_token", "verify_token"), with_setting(2, "verify_token", "word"));
    let plain = portero_store::Source { preset: "github".to_owned(), ..with_setting(3, "word", "word") };
    let (directory, _) = open(&FixedConfig::new(snapshot(vec![good, moved, plain], vec![])), keyring()).await;
    let snapshot = directory.snapshot();
    let found = |n| snapshot.source_by_no(SourceNo(n)).expect("there");
    let opened = found(1).settings.as_map().get("verify_token").map(String::as_str);
    assert_eq!(opened, Some("door-word-0123456789"));
    let fault = found(2).verification.as_ref().err();
    assert_eq!(fault, Some(&Fault::SettingSealed("verify_token".to_owned())), "it is another setting's");
    assert!(found(3).verification.is_ok());
    assert!(found(3).settings.as_map().is_empty(), "a recipe that would show it is not given it");
    let shown = format!("{snapshot:?}");
    assert!(shown.contains("verify_token") && !shown.contains("door-word"), "Debug shows no value");
}

#[tokio::test]
async fn a_refresh_sees_what_was_changed_before_and_keeps_unchanged_sources() {
    let keyring = keyring();
    let row = source(1, "stripe");
    let store = FixedConfig::new(snapshot(vec![row.clone()], vec![secret(&row, 1)]));
    let (directory, _) = open(&store, Arc::clone(&keyring)).await;
    let mut changed = directory.changed();
    let before = Arc::clone(directory.snapshot().source_by_no(SourceNo(1)).expect("there"));

    store.change(|config| config.sources.push(source(2, "github")));
    assert_eq!(directory.refresh_now().await.expect("readable"), Revision(2));
    assert!(changed.has_changed().expect("open"));
    assert_eq!(*changed.borrow_and_update(), Revision(2));
    let after = directory.snapshot();
    assert!(Arc::ptr_eq(&before, after.source_by_no(SourceNo(1)).expect("there")));
    assert!(after.source_by_ingest_key(&key(2)).is_some());

    store.change(|config| config.secrets[0].unseen = true);
    directory.refresh_now().await.expect("readable");
    let after = directory.snapshot();
    let same = after.source_by_no(SourceNo(1)).expect("there");
    assert!(Arc::ptr_eq(&before, same), "who has seen a secret makes no difference");

    store.change(|config| config.secrets.clear());
    directory.refresh_now().await.expect("readable");
    let after = directory.snapshot();
    let source = after.source_by_no(SourceNo(1)).expect("there");
    assert!(source.verification.as_ref().expect("usable").secrets.is_empty(), "a revoked secret is gone");

    assert_eq!((store.snapshots_read(), store.deltas_read()), (1, 3), "only changes are read");
    directory.refresh_now().await.expect("readable");
    assert_eq!(
        (store.snapshots_read(), store.deltas_read()),
        (1, 3),
        "an unchanged revision is not read again"
    );
}

#[tokio::test(start_paused = true)]
async fn the_follower_keeps_it_fresh_and_picks_up_changes_within_a_second() {
    let store = FixedConfig::new(snapshot(Vec::new(), Vec::new()));
    let (directory, follower) = open(&store, keyring()).await;
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(directory.is_fresh());
    store.change(|config| config.sources.push(source(1, "stripe")));
    let mut changed = directory.changed();
    tokio::time::timeout(Duration::from_secs(1), changed.changed()).await.expect("in time").expect("open");
    assert!(directory.snapshot().source_by_ingest_key(&key(1)).is_some());
    shutdown.cancel();
    following.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_or_hangs_makes_it_stale_and_its_return_fresh() {
    let store = FixedConfig::new(snapshot(vec![source(1, "stripe")], Vec::new()));
    let (directory, follower) = open(&store, keyring()).await;
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(follower.run(shutdown.clone()));
    for hangs in [false, true] {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(directory.is_fresh(), "hangs: {hangs}");
        let hanging = if hangs { Some(store.hang().await) } else { None };
        store.set_down(true);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(!directory.is_fresh(), "hangs: {hangs}");
        assert!(directory.snapshot().source_by_ingest_key(&key(1)).is_some(), "the last one is kept");
        store.set_down(false);
        drop(hanging);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(directory.is_fresh());
    shutdown.cancel();
    following.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn without_its_follower_it_is_stale_after_five_seconds() {
    let store = FixedConfig::new(snapshot(Vec::new(), Vec::new()));
    let (directory, _follower) = open(&store, keyring()).await;
    tokio::time::advance(Duration::from_millis(4_999)).await;
    assert!(directory.is_fresh());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!directory.is_fresh());
}

/// What a tenant's number and key version stood for before a restore may be another tenant's by now.
#[tokio::test]
async fn after_a_restore_nothing_is_sealed_with_a_key_of_the_lost_history() {
    let acme = TenantId::new("acme").expect("valid");
    let keyed = |byte: u8| {
        let key = keyring().wrap(&DataKey::new(1, [byte; 32]), &acme, [byte; 12]);
        let mut config = snapshot(vec![source(1, "stripe")], Vec::new());
        config.tenant_keys[0].key = key;
        config
    };
    for (lost, kept) in [(21, 22), (22, 22)] {
        let store = FixedConfig::new(keyed(lost));
        let (directory, _) = open(&store, keyring()).await;
        store.change(|_| ());
        directory.refresh_now().await.expect("readable");
        store.restore(keyed(kept));
        directory.refresh_now().await.expect("readable");
        let after = directory.snapshot();
        let stored = TenantKeys::new(vec![DataKey::new(1, [kept; 32])]).expect("a set");
        let own = after.keys_of(TenantNo(1)).expect("known").expect("opens");
        let source = after.source_by_no(SourceNo(1)).expect("there").verification.as_ref().expect("usable");
        for keys in [own, &source.keys] {
            let sealed = keys.seal(b"aad", b"an event", [1; 12]);
            assert!(stored.open(b"aad", &sealed).is_ok(), "a restart could not open it");
        }
    }
}
