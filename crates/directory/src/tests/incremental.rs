//! A snapshot that follows changes is the one that is built from everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portero_keyring::{DataKey, TenantKeys};
use portero_store::{
    ConfigChanges, ConfigSnapshot, ConfigStore, DeadLetterPolicy, FreedName, Grant, Limits, Name, Revision,
    Subscription, Tenant, TenantKey,
};
use portero_types::{
    GrantId, GrantNo, IngestKey, LaneCount, SourceId, SourceNo, SubscriptionId, SubscriptionNo, TenantId,
    TenantNo, Timestamp,
};
use proptest::prelude::*;

use super::{key, keyring, open, secret, snapshot, source};
use crate::testing::FixedConfig;
use crate::{Snapshot, Source, Verification};

fn tenant(no: i64, name: u8) -> Tenant {
    Tenant {
        no: TenantNo(no),
        id: TenantId::new(format!("t{name}")).expect("valid"),
        display_name: String::new(),
        limits: Limits::default(),
        created_at: Timestamp::EPOCH,
    }
}

fn subscription(no: i64, name: u8) -> Subscription {
    Subscription {
        no: SubscriptionNo(no),
        id: SubscriptionId::new(format!("u{name}")).expect("valid"),
        tenant: None,
        sources: Vec::new(),
        event_types: Vec::new(),
        lanes: LaneCount::DEFAULT,
        attempts_max: 3,
        defer_deadline_ms: 0,
        dead_letter_policy: DeadLetterPolicy::Continue,
        starts_after: vec![0],
        expired: 0,
        created_at: Timestamp::EPOCH,
    }
}

fn grant(no: i64, name: u8) -> Grant {
    Grant {
        no: GrantNo(no),
        id: GrantId::new(format!("g{name}")).expect("valid"),
        issuer: "issuer".to_owned(),
        subject: "subject".to_owned(),
        role: "viewer".to_owned(),
        tenant: None,
        subscriptions: Vec::new(),
        created_at: Timestamp::EPOCH,
    }
}

/// One change: a kind and which one of it. A name that is there is changed or deleted, one that is not is created.
type Step = (u8, u8);

struct Config {
    rows: ConfigSnapshot,
    next: i64,
    /// Tenants that get no data key any more.
    erased: BTreeSet<TenantNo>,
}

impl Config {
    fn number(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Numbers are never used again, and names are.
    fn step(&mut self, (kind, name): Step) {
        let no = self.number();
        match kind {
            0 => {
                if toggle(&mut self.rows.tenants, tenant(no, name), |row| row.id.clone()) {
                    self.free(Name::Tenant(tenant(no, name).id), no);
                }
            }
            1 => {
                if toggle(&mut self.rows.subscriptions, subscription(no, name), |row| row.id.clone()) {
                    self.free(Name::Subscription(subscription(no, name).id), no);
                }
            }
            2 => {
                toggle(&mut self.rows.grants, grant(no, name), |row| row.id.clone());
            }
            3 => {
                let id = SourceId::new(format!("s{}", name % 3)).expect("valid");
                let tenant_no = TenantNo(i64::from(name / 3));
                let ingest_key = IngestKey::from_bytes(u128::from(no.unsigned_abs()).to_be_bytes());
                let row = portero_store::Source {
                    no: SourceNo(no),
                    id,
                    tenant_no,
                    ingest_key,
                    ..source(1, "stripe")
                };
                toggle(&mut self.rows.sources, row, |row| (row.tenant_no, row.id.clone()));
                let left: BTreeSet<_> = self.rows.sources.iter().map(|source| source.no).collect();
                self.rows.secrets.retain(|secret| left.contains(&secret.source_no));
            }
            4 => {
                if let Some(row) = pick(&mut self.rows.sources, name) {
                    row.ingest_key = IngestKey::from_bytes(u128::from(no.unsigned_abs()).to_be_bytes());
                }
            }
            5 => {
                if let Some(row) = pick(&mut self.rows.sources, name) {
                    row.preset = if row.preset == "stripe" { "no-such-preset" } else { "stripe" }.to_owned();
                }
            }
            6 => {
                if let Some(row) = pick(&mut self.rows.sources, name).cloned() {
                    self.rows.secrets.push(secret(&row, no % 200));
                    let numbers: BTreeSet<_> = self.rows.secrets.iter().map(|secret| secret.no).collect();
                    if numbers.len() < self.rows.secrets.len() {
                        self.rows.secrets.pop();
                    }
                }
            }
            7 => {
                if let Some(row) = pick(&mut self.rows.secrets, name) {
                    row.not_after = Some(Timestamp::from_secs(no));
                }
            }
            8 if !self.erased.contains(&TenantNo(i64::from(name / 3))) => {
                self.another_key(TenantNo(i64::from(name / 3)), name % 3 == 0);
            }
            8 => {}
            9 => {
                let erased = TenantNo(i64::from(name / 3));
                self.rows.tenant_keys.retain(|key| key.tenant_no != erased);
                self.erased.insert(erased);
            }
            _ => {
                if !self.rows.secrets.is_empty() {
                    self.rows.secrets.remove(usize::from(name) % self.rows.secrets.len());
                }
            }
        }
        self.rows.revision.0 += 1;
    }

    fn free(&mut self, name: Name, at: i64) {
        self.rows.freed_names.retain(|freed| freed.name != name);
        self.rows.freed_names.push(FreedName { name, at: Timestamp::from_secs(at) });
    }

    /// A data key beside those that a tenant has; one that nobody can open, when it is damaged.
    fn another_key(&mut self, tenant_no: TenantNo, damaged: bool) {
        let versions = self.rows.tenant_keys.iter().filter(|key| key.tenant_no == tenant_no);
        let version = versions.map(|key| key.key.version).max().map_or(1, |newest| newest + 1);
        let tenant = TenantId::new("acme").expect("valid");
        let key = DataKey::new(version, [if version == 1 { 11 } else { 12 }; 32]);
        let mut key = keyring().wrap(&key, &tenant, [5; 12]);
        if damaged {
            key.bytes.pop();
        }
        self.rows.tenant_keys.push(TenantKey { tenant_no, tenant, key, created_at: Timestamp::EPOCH });
    }
}

/// Whether it is gone now.
fn toggle<T, N: PartialEq>(rows: &mut Vec<T>, row: T, name: impl Fn(&T) -> N) -> bool {
    let known = rows.iter().position(|known| name(known) == name(&row));
    match known {
        Some(at) => drop(rows.remove(at)),
        None => rows.push(row),
    }
    known.is_some()
}

fn pick<T>(rows: &mut [T], which: u8) -> Option<&mut T> {
    let len = rows.len();
    (len > 0).then(|| &mut rows[usize::from(which) % len])
}

/// Everything that can be looked up, in one order.
fn seen(snapshot: &Snapshot, rows: &ConfigSnapshot) -> String {
    let source = |source: &Arc<Source>| {
        let secrets =
            |found: &Verification| found.secrets.iter().map(|secret| secret.no()).collect::<Vec<_>>();
        let verifies = source.verification.as_ref().map(secrets);
        (source.no, format!("{:?} {} {verifies:?}", source.origin, source.ingest_key))
    };
    let sources: BTreeMap<_, _> = snapshot.sources().map(source).collect();
    let by_key: Vec<_> =
        rows.sources.iter().map(|row| snapshot.source_by_ingest_key(&row.ingest_key).map(source)).collect();
    let named: Vec<BTreeSet<_>> = (0..3)
        .map(|n| SourceId::new(format!("s{n}")).expect("valid"))
        .map(|id| snapshot.sources_named(&id).map(|source| source.no).collect())
        .collect();
    let tenants: Vec<_> = (0..9).map(|n| snapshot.tenant(&tenant(0, n).id).cloned()).collect();
    let subscriptions: Vec<_> =
        (0..9).map(|n| snapshot.subscription(&subscription(0, n).id).cloned()).collect();
    let freed: Vec<_> = (0..9)
        .map(|n| {
            let (tenant, subscription) = (tenant(0, n).id, subscription(0, n).id);
            (snapshot.tenant_name_freed_at(&tenant), snapshot.subscription_name_freed_at(&subscription))
        })
        .collect();
    let all: BTreeSet<_> = snapshot.subscriptions().map(|subscription| subscription.no).collect();
    let grants: BTreeSet<_> = snapshot.grants_of("issuer", "subject").map(|grant| grant.no).collect();
    let versions = |keys: &Arc<TenantKeys>| keys.versions().collect::<Vec<_>>();
    let keys: Vec<_> = (0..4).map(|n| snapshot.keys_of(TenantNo(n)).map(|keys| keys.map(versions))).collect();
    let unopened = snapshot.tenants_unopened();
    format!(
        "{sources:#?} {by_key:?} {named:?} {tenants:?} {subscriptions:?} {all:?} {grants:?} {freed:?} {keys:?} {unopened}"
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn following_changes_leads_to_what_building_everything_does(
        steps in prop::collection::vec((0_u8..11, 0_u8..9), 1..60),
        skips in prop::collection::vec(any::<bool>(), 60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut config = Config { rows: snapshot(Vec::new(), Vec::new()), next: 0, erased: BTreeSet::new() };
        let store = FixedConfig::new(config.rows.clone());
        let keyring = keyring();
        let mut followed = Snapshot::build(config.rows.clone(), &keyring, None);
        for (step, skip) in steps.into_iter().zip(skips) {
            config.step(step);
            store.change(|rows| *rows = ConfigSnapshot { revision: rows.revision, ..config.rows.clone() });
            if skip {
                continue;
            }
            let changes = runtime.block_on(store.changes(followed.revision())).expect("read");
            let ConfigChanges::Delta(delta) = changes else { panic!("only changes") };
            followed = followed.apply(delta, &keyring);
            let built = Snapshot::build(config.rows.clone(), &keyring, None);
            prop_assert_eq!(followed.revision(), built.revision());
            prop_assert_eq!(seen(&followed, &config.rows), seen(&built, &config.rows));
            let numbers = followed.sources().flat_map(|source| &source.origin.secrets);
            let known: BTreeMap<_, _> = numbers.map(|secret| (secret.no, secret.source_no)).collect();
            for row in &config.rows.secrets {
                prop_assert_eq!(followed.source_of_secret.get(&row.no), known.get(&row.no));
            }
            prop_assert_eq!(followed.source_of_secret.values().count(), known.len());
        }
    }
}

#[tokio::test]
async fn one_change_among_many_sources_makes_one_source_anew() {
    let keyring = keyring();
    let rows: Vec<_> = (1..=2_000)
        .map(|n| portero_store::Source {
            no: SourceNo(n),
            id: SourceId::new(format!("s{n}")).expect("valid"),
            ingest_key: IngestKey::from_bytes(u128::from(n.unsigned_abs()).to_be_bytes()),
            ..source(1, "stripe")
        })
        .collect();
    let added = secret(&rows[6], 1);
    let store = FixedConfig::new(snapshot(rows, Vec::new()));
    let (directory, _) = open(&store, Arc::clone(&keyring)).await;
    let anew = async |change: &dyn Fn(&mut ConfigSnapshot)| {
        let before = directory.snapshot();
        store.change(change);
        directory.refresh_now().await.expect("readable");
        let after = directory.snapshot();
        let is_kept =
            |source: &Arc<Source>| before.source_by_no(source.no).is_some_and(|old| Arc::ptr_eq(old, source));
        after.sources().filter(|source| !is_kept(source)).map(|source| source.no.0).collect::<Vec<_>>()
    };
    assert_eq!(anew(&|config| config.secrets.push(added.clone())).await, [7]);
    assert_eq!(anew(&|config| config.secrets[0].not_after = Some(Timestamp::EPOCH)).await, [7]);
    assert_eq!(
        anew(&|config| config.sources[1_999].public_urls.push("https://a.example".to_owned())).await,
        [2_000]
    );
    assert_eq!(anew(&|config| drop(config.sources.remove(0))).await, Vec::<i64>::new());
    assert_eq!(anew(&|config| config.tenants.push(tenant(1, 1))).await, Vec::<i64>::new());
    assert_eq!((store.snapshots_read(), store.deltas_read()), (1, 5));
}

#[tokio::test]
async fn what_is_no_longer_known_or_was_restored_is_read_whole() {
    let store = FixedConfig::new(snapshot(vec![source(1, "stripe"), source(2, "stripe")], Vec::new()));
    let (directory, _) = open(&store, keyring()).await;
    store.change(|config| drop(config.sources.pop()));
    store.forget();
    assert_eq!(directory.refresh_now().await.expect("readable"), Revision(2));
    assert_eq!((store.snapshots_read(), store.deltas_read()), (2, 0));
    assert!(directory.snapshot().source_by_ingest_key(&key(2)).is_none());
    let kept = Arc::clone(directory.snapshot().source_by_no(SourceNo(1)).expect("there"));

    store.restore(snapshot(vec![source(1, "stripe"), source(3, "stripe")], Vec::new()));
    assert_eq!(directory.refresh_now().await.expect("readable"), Revision(1), "a lower revision than before");
    let after = directory.snapshot();
    assert!(after.source_by_ingest_key(&key(3)).is_some());
    assert!(Arc::ptr_eq(&kept, after.source_by_no(SourceNo(1)).expect("there")), "what is the same is kept");
}

/// As after a failover to a standby that was behind.
#[tokio::test]
async fn a_revocation_that_the_database_lost_holds_where_it_was_known() {
    let row = source(1, "stripe");
    let now = Timestamp::from_secs(9);
    let (leaked, good) = (secret(&row, 1), secret(&row, 2));
    let revoked = portero_store::Secret { revoked_at: Some(now), ..leaked.clone() };
    let store = FixedConfig::new(snapshot(vec![row.clone()], vec![revoked, good.clone()]));
    let (directory, _) = open(&store, keyring()).await;
    let verifying = async || {
        directory.refresh_now().await.expect("readable");
        let snapshot = directory.snapshot();
        let found = snapshot.source_by_no(row.no).expect("there").verification.as_ref().expect("usable");
        let active = found.secrets.iter().filter(|secret| secret.is_active(now));
        active.map(|secret| secret.no().0).collect::<Vec<_>>()
    };
    assert_eq!(verifying().await, [2]);
    store.restore(snapshot(vec![row.clone()], vec![leaked.clone(), good]));
    assert_eq!(verifying().await, [2]);
    store.change(|config| config.secrets[0].not_after = Some(Timestamp::from_secs(99)));
    assert_eq!(verifying().await, [2], "whatever becomes of it");
    store.change(|config| config.secrets[0] = portero_store::Secret { created_at: now, ..leaked });
    assert_eq!(verifying().await, [1, 2], "another one, which has its number in the other history");
}
