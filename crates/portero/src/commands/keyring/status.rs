//! What each key holds.

use std::collections::BTreeMap;

use anyhow::Context as _;
use portero_keyring::{KeyId, Keyring, UNPROTECTED};
use portero_store::{KeyUse, Replica};
use serde::Serialize;

use super::Site;
use crate::cli::{ConfigArgs, Output};
use crate::commands::exit::Failure;
use crate::commands::present::{Listing, Record};
use crate::gateway::{Opened, name_in, require_current, require_no_namesake};
use crate::print;

/// A key-encryption key.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Key {
    key: String,
    /// `active`, `kept`, `missing` from the keyring, or `unprotected`.
    state: &'static str,
    data_keys: u64,
    tenants: u64,
}

impl Record for Key {
    const COLUMNS: &'static [&'static str] = &["KEY", "STATE", "DATA KEYS", "TENANTS"];

    fn row(&self) -> Vec<String> {
        vec![self.key.clone(), self.state.to_owned(), self.data_keys.to_string(), self.tenants.to_string()]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        Self::COLUMNS.iter().copied().zip(self.row()).collect()
    }
}

pub(super) async fn run(args: &ConfigArgs, output: Output) -> anyhow::Result<()> {
    let site = Site::open(args).await?;
    let uses = site.store.key_uses().await.context("the data keys cannot be read")?;
    let keys = keys(&site.keyring, &uses);
    site.close().await;
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
        .map(|(key, (data_keys, tenants))| Key { state: state(&key), key, data_keys, tenants })
        .collect()
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
}
