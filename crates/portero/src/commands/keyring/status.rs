//! What each key holds.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use portero_keyring::{KeyId, Keyring, OpenError, UNPROTECTED};
use portero_store::{DynStore, KeyUse, Replica, TenantKey};
use portero_types::TenantId;
use serde::Serialize;

use super::Site;
use crate::cli::{ConfigArgs, Output};
use crate::commands::exit::Failure;
use crate::commands::present::{Listing, Record};
use crate::gateway::{Opened, name_in, require_current, require_no_namesake};
use crate::print;

/// Data keys that are read at once.
const PAGE: u32 = 1_000;
/// Most tenants that are named.
const NAMED_MAX: usize = 20;

/// A key-encryption key.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Key {
    key: String,
    /// `active`, `kept`, `missing` from the keyring, or `unprotected`.
    state: &'static str,
    data_keys: u64,
    tenants: u64,
    /// Data keys that it should open and does not: they are damaged, or wrapped by another key of this name.
    unopened: u64,
}

impl Record for Key {
    const COLUMNS: &'static [&'static str] = &["KEY", "STATE", "DATA KEYS", "TENANTS", "UNOPENED"];

    fn row(&self) -> Vec<String> {
        let counts = [self.data_keys, self.tenants, self.unopened].map(|count| count.to_string());
        [self.key.clone(), self.state.to_owned()].into_iter().chain(counts).collect()
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        Self::COLUMNS.iter().copied().zip(self.row()).collect()
    }
}

pub(super) async fn run(args: &ConfigArgs, output: Output) -> anyhow::Result<()> {
    let site = Site::open(args).await?;
    let uses = site.store.key_uses().await.context("the data keys cannot be read")?;
    let mut keys = keys(&site.keyring, &uses);
    let found = unopened(&site.store, &site.keyring).await;
    site.close().await;
    let (names, left_out) = count_unopened(&mut keys, &found?);
    let mut listing = Listing::new(output);
    for key in &keys {
        listing.push(key)?;
    }
    listing.finish()?;
    let of = |state| keys.iter().filter(|key| key.state == state).map(|key| key.data_keys).sum::<u64>();
    if of("missing") > 0 {
        print::note(
            "Some data keys need keys that this keyring does not have: `portero serve` refuses to start with it.",
        );
    }
    if !names.is_empty() {
        let others = if left_out > 0 { format!(" and {left_out} more") } else { String::new() };
        print::note(&format!(
            "Data keys of these tenants cannot be opened, though their key is here; restore their rows of tenant_keys: {}{others}",
            names.join(", ")
        ));
    }
    if of("kept") + of("unprotected") > 0 {
        print::note("`portero keyring rewrap` wraps all data keys under the active key.");
    }
    Ok(())
}

fn keys(keyring: &Keyring, uses: &[KeyUse]) -> Vec<Key> {
    let mut all: BTreeMap<String, (u64, u64)> = keyring.ids().map(|id| (id.to_string(), (0, 0))).collect();
    all.extend(uses.iter().map(|used| (used.key_id.clone(), (used.data_keys, used.tenants))));
    let state = |key: &str| match key {
        UNPROTECTED => "unprotected",
        key if key == keyring.active().as_str() => "active",
        key if keyring.opens(key) => "kept",
        _ => "missing",
    };
    all.into_iter()
        .map(|(key, (data_keys, tenants))| Key { state: state(&key), key, data_keys, tenants, unopened: 0 })
        .collect()
}

/// The data keys that a key of this keyring should open and does not: whose, and which key. Reads all of them, a page at a time.
async fn unopened(store: &DynStore, keyring: &Keyring) -> anyhow::Result<Vec<(TenantId, String)>> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        // No key has an empty name: these are all.
        let page = store.keys_not_under("", after, PAGE).await.context("the data keys cannot be read")?;
        let Some(last) = page.last().map(|row| (row.tenant_no, row.key.version)) else { return Ok(found) };
        after = Some(last);
        let is_damaged = |row: &TenantKey| match keyring.unwrap(&row.key, &row.tenant) {
            // Shown as the key's state.
            Ok(_) | Err(OpenError::UnknownKey { .. } | OpenError::Unprotected) => false,
            Err(_) => true,
        };
        found.extend(page.into_iter().filter(is_damaged).map(|row| (row.tenant, row.key.key_id.clone())));
    }
}

/// Counts them by key; the tenants to name, and how many more there are.
fn count_unopened(keys: &mut [Key], found: &[(TenantId, String)]) -> (Vec<String>, usize) {
    for (_, id) in found {
        for key in keys.iter_mut().filter(|key| &key.key == id) {
            key.unopened += 1;
        }
    }
    let tenants: BTreeSet<_> = found.iter().map(|(tenant, _)| tenant.to_string()).collect();
    let left_out = tenants.len().saturating_sub(NAMED_MAX);
    (tenants.into_iter().take(NAMED_MAX).collect(), left_out)
}

impl Site {
    /// Refuses while a gateway runs that has another active key than this keyring: it may not know this one at all, and could
    /// not open what is wrapped under it.
    pub(super) async fn require_restarted(&self) -> anyhow::Result<()> {
        let replicas = self.store.replicas().await.context("the gateways that run cannot be read")?;
        let (active, mark) = (self.keyring.active(), self.keyring.active_mark());
        let others = wrapping(&replicas, |key| key != mark);
        if self.keyring.is_unprotected() {
            return Ok(());
        }
        if others.is_empty() {
            return require_no_namesake(&self.keyring, &self.store).await;
        }
        let problem = format!(
            "these gateways have another active key than {active}, and might not open what is wrapped under it: {}. \
             Restart them with this keyring first; one that was killed counts for a minute",
            others.join(", ")
        );
        Err(Failure::usage(problem).into())
    }
}

/// Refuses when the settings' database has data keys under this key, when a gateway may make more of them, or when it cannot be
/// asked.
pub(super) async fn require_unused(args: &ConfigArgs, id: &KeyId) -> anyhow::Result<()> {
    let unseen = "whether data keys still need the key cannot be seen here; give the settings of the database, or say --force \
                  when `portero keyring status` says elsewhere that it holds none";
    let config = crate::commands::load(args)?;
    let opened = Opened::open(&config.database).await.context(unseen)?;
    let store = opened.store();
    require_current(&store).await.context(unseen)?;
    let uses = store.key_uses().await.context(unseen)?;
    let replicas = store.replicas().await.context(unseen)?;
    opened.close().await;
    let wrapping = wrapping(&replicas, |key| name_in(key) == id.as_str());
    if !wrapping.is_empty() {
        let problem = format!(
            "these gateways wrap new data keys under {id}, and what they wrapped could not be opened any more: {}. \
             Restart them with another active key, and `portero keyring rewrap` first",
            wrapping.join(", ")
        );
        return Err(Failure::usage(problem).into());
    }
    match uses.iter().find(|used| used.key_id == id.as_str()) {
        Some(KeyUse { data_keys, tenants, .. }) => Err(Failure::usage(format!(
            "{data_keys} data keys of {tenants} tenants are still wrapped under {id}: `portero keyring rewrap` first"
        ))
        .into()),
        None => Ok(()),
    }
}

/// The gateways that run and wrap new data keys under such a key.
fn wrapping(replicas: &[Replica], such: impl Fn(&str) -> bool) -> Vec<&str> {
    let wraps = |replica: &&Replica| replica.live && such(&replica.key_id);
    replicas.iter().filter(wraps).map(|replica| replica.instance.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_shown_with_what_it_holds() {
        let mut ring = Keyring::generate(KeyId::new("v1").expect("valid"), [1; 32]).expect("made");
        ring.rotate(KeyId::new("v2").expect("valid"), [2; 32]).expect("rotated");
        let used =
            |key_id: &str, data_keys, tenants| KeyUse { key_id: key_id.to_owned(), data_keys, tenants };
        let shown = keys(&ring, &[used("lost", 1, 1), used("none", 2, 2), used("v1", 3, 2)]);
        let states: Vec<_> =
            shown.iter().map(|key| (key.key.as_str(), key.state, key.data_keys, key.tenants)).collect();
        assert_eq!(
            states,
            [
                ("lost", "missing", 1, 1),
                ("none", "unprotected", 2, 2),
                ("v1", "kept", 3, 2),
                ("v2", "active", 0, 0)
            ]
        );
    }

    #[test]
    fn what_a_key_should_open_and_does_not_is_counted_and_its_tenants_are_named_once() {
        let ring = Keyring::generate(KeyId::new("v1").expect("valid"), [1; 32]).expect("made");
        let mut shown = keys(&ring, &[KeyUse { key_id: "v1".to_owned(), data_keys: 60, tenants: 30 }]);
        let tenant = |n: usize| TenantId::new(format!("t{:02}", n / 2)).expect("valid");
        let found: Vec<_> = (0..50).map(|n| (tenant(n), "v1".to_owned())).collect();
        let (named, left_out) = count_unopened(&mut shown, &found);
        assert_eq!((shown[0].unopened, named.len(), left_out), (50, NAMED_MAX, 5));
        assert_eq!(named[..2], ["t00", "t01"]);
    }
}
