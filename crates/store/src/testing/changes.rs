//! What changed since a revision: a gateway that applies it knows what one knows that reads everything.

use portero_keyring::{KEY_BYTES, NONCE_BYTES};
use portero_types::{GrantId, SecretId, SourceId, SubscriptionId, TenantId, Timestamp};

use super::fixture::{
    Fixture, NOW, keyring, new_secret, new_source, new_subscription, new_tenant, secret_id, source_id,
    subscription_id, tenant_id, tester,
};
use super::{Database, migrated};
use crate::{
    Change, ConfigChanges, ConfigDelta, ConfigSnapshot, DynStore, ErrorKind, Limits, NewGrant, NewSecret,
    NewSource, NewSubscription, Removed, Revision, SourceUpdate, SubscriptionUpdate, TenantUpdate,
};

/// Sequences of changes that are tried, and changes in each.
const SEEDS: u64 = 3;
const CHANGES: usize = 70;

/// Later than any test runs.
const FAR: Timestamp = Timestamp::from_secs(4_000_000_000);

/// Numbers without a pattern, the same ones for one seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*, <https://www.jstatsoft.org/article/view/v008i14>.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn name(&mut self, prefix: &str) -> String {
        format!("{prefix}{}", self.below(3))
    }
    fn tenant(&mut self) -> TenantId {
        tenant_id(&self.name("t"))
    }
    fn source(&mut self) -> (TenantId, SourceId) {
        (self.tenant(), source_id(&self.name("s")))
    }
    fn secret(&mut self) -> (TenantId, SourceId, SecretId) {
        let (tenant, source) = self.source();
        (tenant, source, secret_id(&self.name("k")))
    }
    fn subscription(&mut self) -> SubscriptionId {
        subscription_id(&self.name("u"))
    }
    fn grant(&mut self) -> GrantId {
        GrantId::new(self.name("g")).expect("valid")
    }
}

/// Changes something, or tries to: a refused change must leave no trace.
async fn change(store: &DynStore, numbers: &mut Numbers, change: &Change) -> crate::Result<()> {
    match numbers.below(19) {
        0..=2 => {
            let new = new_tenant(numbers.tenant().as_str());
            store.create_tenant(new, change).await.map(drop)
        }
        3 if numbers.below(2) == 0 => another_key(store, numbers, change).await,
        3 => {
            let limits =
                Limits { burst: Some(1 + u32::try_from(numbers.below(9)).unwrap_or(0)), ..Limits::default() };
            let update = TenantUpdate { id: numbers.tenant(), display_name: None, limits: Some(limits) };
            store.update_tenant(update, change).await.map(drop)
        }
        4 if numbers.below(2) == 0 => store.erase_tenant(&numbers.tenant(), change).await,
        4 => store.delete_tenant(&numbers.tenant(), change).await,
        5..=7 => store.create_source(source(numbers), change).await.map(drop),
        8 => {
            let (tenant, id) = numbers.source();
            let urls = vec![format!("https://{}.example.com", numbers.below(100))];
            let update = SourceUpdate { public_urls: Some(urls), ..SourceUpdate::new(tenant, id) };
            store.update_source(update, change).await.map(drop)
        }
        9 => {
            let (tenant, id) = numbers.source();
            store.delete_source(&tenant, &id, change).await
        }
        10..=14 => secrets(store, numbers, change).await,
        15 => store.create_subscription(subscription(numbers), change).await.map(drop),
        16 => {
            let attempts = 1 + u32::try_from(numbers.below(9)).unwrap_or(0);
            let update = SubscriptionUpdate {
                attempts_max: Some(attempts),
                ..SubscriptionUpdate::new(numbers.subscription())
            };
            store.update_subscription(update, change).await.map(drop)
        }
        17 if numbers.below(2) == 0 => store.delete_subscription(&numbers.subscription(), change).await,
        17 => store.delete_grant(&numbers.grant(), change).await,
        _ => store.create_grant(grant(numbers), change).await.map(drop),
    }
}

async fn another_key(store: &DynStore, numbers: &mut Numbers, change: &Change) -> crate::Result<()> {
    let Some(tenant) = store.tenant(&numbers.tenant()).await? else { return Ok(()) };
    let newest = store.tenant_keys(&tenant.id).await?.last().map_or(0, |found| found.key.version);
    let key = keyring().new_data_key(newest + 1, &tenant.id, [3; KEY_BYTES], [4; NONCE_BYTES]);
    store.add_tenant_key(tenant.no, key, change).await
}

async fn secrets(store: &DynStore, numbers: &mut Numbers, change: &Change) -> crate::Result<()> {
    let (tenant, source, id) = numbers.secret();
    match numbers.below(8) {
        0..=2 => {
            let retire_others_at =
                [None, Some(NOW), Some(FAR)][usize::try_from(numbers.below(3)).unwrap_or(0)];
            let new =
                NewSecret { tenant, source, id: id.clone(), retire_others_at, ..new_secret(id.as_str()) };
            store.add_secret(new, change).await.map(drop)
        }
        3 => {
            let Some(found) = store.source(&tenant, &source).await? else { return Ok(()) };
            let new = NewSecret { tenant, source, id: id.clone(), ..new_secret(id.as_str()) };
            store.write_handshake_secret(found.no, new, NOW, change).await.map(drop)
        }
        4 => store.retire_secret(&tenant, &source, &id, FAR, change).await.map(drop),
        5 => store.revoke_secret(&tenant, &source, &id, change).await.map(drop),
        6 => store.take_unseen(&tenant, &source, &id, change).await.map(drop),
        _ => store.delete_secret(&tenant, &source, &id, change).await,
    }
}

fn source(numbers: &mut Numbers) -> NewSource {
    let (tenant, id) = numbers.source();
    let secret_expected_until = (numbers.below(2) == 0).then_some(FAR);
    NewSource { secret_expected_until, ..new_source(tenant.as_str(), id.as_str()) }
}

fn subscription(numbers: &mut Numbers) -> NewSubscription {
    let id = numbers.subscription();
    let tenant = (numbers.below(4) == 0).then(|| numbers.tenant());
    NewSubscription { tenant, ..new_subscription(id.as_str()) }
}

fn grant(numbers: &mut Numbers) -> NewGrant {
    let subscriptions = (0..numbers.below(3)).map(|_| numbers.subscription()).collect();
    NewGrant {
        id: numbers.grant(),
        issuer: "https://issuer.example.com".to_owned(),
        subject: "somebody".to_owned(),
        role: "consumer".to_owned(),
        tenant: (numbers.below(2) == 0).then(|| numbers.tenant()),
        subscriptions,
        created_at: NOW,
    }
}

/// What a gateway acts upon, in one order: whether a secret was shown makes no difference and raises no revision.
fn comparable(mut snapshot: ConfigSnapshot) -> String {
    let revision = snapshot.revision;
    snapshot.apply(ConfigDelta { revision, ..ConfigDelta::default() });
    for secret in &mut snapshot.secrets {
        secret.unseen = false;
    }
    format!("{snapshot:#?}")
}

async fn delta(store: &DynStore, since: Revision) -> ConfigDelta {
    match store.changes(since).await.expect("read") {
        ConfigChanges::Delta(delta) => delta,
        ConfigChanges::Full(_) => panic!("what changed since {since:?} is known"),
    }
}

/// The database's time, so that what is revoked then is not over for long.
async fn database_time(store: &DynStore) -> Timestamp {
    let report = super::replicas::report("clock", &[], Revision(0));
    store.report(&report).await.expect("an echo").database_time
}

pub async fn applying_changes_leads_from_any_revision_to_what_there_is(database: &dyn Database) {
    let store = migrated(database).await;
    for seed in 1..=SEEDS {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut known = vec![store.snapshot().await.expect("read")];
        let mut made = 0;
        while made < CHANGES {
            let at = if numbers.below(2) == 0 { NOW } else { database_time(&store).await };
            match change(&store, &mut numbers, &Change { at, ..tester() }).await {
                Ok(()) => made += 1,
                Err(error) => assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::AlreadyExists | ErrorKind::FailedPrecondition
                    ),
                    "{error}"
                ),
            }
            let last = known.last().expect("one").clone();
            let (present, step) = (store.snapshot().await.expect("read"), delta(&store, last.revision).await);
            let mut applied = last;
            applied.apply(step);
            assert_eq!(comparable(applied), comparable(present.clone()), "seed {seed}, change {made}");
            if known.last().is_some_and(|last| last.revision < present.revision) {
                known.push(present);
            }
        }
        let present = comparable(known.last().expect("one").clone());
        for mut former in known {
            let since = former.revision;
            former.apply(delta(&store, since).await);
            assert_eq!(comparable(former), present, "seed {seed}, from {since:?}");
        }
    }
}

pub async fn a_change_is_as_large_as_what_it_changes(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    for n in 0..20 {
        store.create_source(new_source("acme", &format!("s{n}")), &tester()).await.expect("created");
    }
    let secret = store.add_secret(new_secret("one"), &tester()).await.expect("added");
    let before = store.revision().await.expect("a revision");
    let nothing = delta(store, before).await;
    assert!(nothing.sources.is_empty() && nothing.tenants.is_empty() && nothing.secrets.is_empty());
    assert_eq!((nothing.revision, &nothing.removed), (before, &Removed::default()));

    let urls = Some(vec!["https://moved.example.com".to_owned()]);
    let update = SourceUpdate { public_urls: urls, ..SourceUpdate::new(tenant_id("acme"), source_id("s7")) };
    let moved = store.update_source(update, &tester()).await.expect("updated");
    let one = delta(store, before).await;
    assert_eq!(one.sources, [moved]);
    assert!(one.tenants.is_empty() && one.secrets.is_empty() && one.subscriptions.is_empty());
    assert_eq!((one.revision, &one.removed), (Revision(before.0 + 1), &Removed::default()));

    store.delete_source(&tenant_id("acme"), &source_id("stripe-eu"), &tester()).await.expect("deleted");
    let two = delta(store, Revision(before.0 + 1)).await;
    assert!(two.sources.is_empty() && two.secrets.is_empty());
    assert_eq!((two.removed.sources, two.removed.secrets), (vec![fixture.source.no], vec![secret.no]));
}

pub async fn a_secret_that_is_long_over_is_gone_by_its_change(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let now = database_time(store).await;
    let old = store.add_secret(new_secret("old"), &tester()).await.expect("added");
    let before = store.revision().await.expect("a revision");
    let rotated = NewSecret { retire_others_at: Some(NOW), ..new_secret("new") };
    let new = store.add_secret(rotated, &tester()).await.expect("added");
    let change = delta(store, before).await;
    assert_eq!((change.secrets, change.removed.secrets), (vec![new.clone()], vec![old.no]));
    let at = Change { at: now, ..tester() };
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    let revoked = store.revoke_secret(&acme, &stripe, &secret_id("new"), &at).await.expect("revoked");
    let change = delta(store, Revision(before.0 + 1)).await;
    assert_eq!(
        (change.secrets, change.removed.secrets),
        (vec![revoked], vec![]),
        "it is over since just now"
    );
}

pub async fn what_is_too_old_or_of_another_history_is_answered_with_everything(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let acme = tenant_id("acme");
    for n in 0..3 {
        store.create_source(new_source("acme", &format!("s{n}")), &tester()).await.expect("created");
    }
    let start = store.revision().await.expect("a revision");
    store.delete_source(&acme, &source_id("s0"), &tester()).await.expect("deleted");
    let middle = store.revision().await.expect("a revision");
    assert_eq!(delta(store, start).await.removed.sources.len(), 1);
    database.execute("UPDATE config_tombstones SET deleted_at = deleted_at - 86401000000").await;
    store.delete_source(&acme, &source_id("s1"), &tester()).await.expect("deleted");

    let everything = async |since| match store.changes(since).await.expect("read") {
        ConfigChanges::Full(snapshot) => snapshot,
        ConfigChanges::Delta(_) => panic!("what changed since {since:?} is no longer known"),
    };
    let present = comparable(store.snapshot().await.expect("read"));
    assert_eq!(comparable(everything(start).await), present, "the first tombstone is gone");
    assert_eq!(delta(store, middle).await.removed.sources.len(), 1, "the second one is there");
    let future = Revision(middle.0 + 1_000);
    assert_eq!(comparable(everything(future).await), present, "the database was restored");
}
