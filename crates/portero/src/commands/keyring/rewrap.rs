//! Wrapping every data key under the active key.

use anyhow::Context as _;
use portero_keyring::Keyring;
use portero_store::{DynStore, Rewrapped, TenantKey};
use portero_types::TenantNo;
use serde::Serialize;

use super::{Site, change};
use crate::cli::{ConfigArgs, Output};
use crate::{entropy, print};

/// Gateways may wrap new data keys under another key meanwhile; after so many rounds they are told of instead.
const ROUNDS_MAX: u32 = 10;

#[derive(Debug, Default, Serialize)]
struct Done {
    key: String,
    rewrapped: u64,
    failed: u64,
}

pub(super) async fn run(args: &ConfigArgs, batch: u32, output: Output) -> anyhow::Result<()> {
    let site = Site::open(args).await?;
    site.require_restarted().await?;
    let done = all(&site.store, &site.keyring, batch).await?;
    site.close().await;
    match output {
        Output::Json => print::json(&done)?,
        Output::Text => {
            print::line(&format!("{} data keys were wrapped under {}", done.rewrapped, done.key))?;
        }
    }
    anyhow::ensure!(
        done.failed == 0,
        "{} data keys could not be opened and stay as they are; all others are done",
        done.failed
    );
    Ok(())
}

async fn all(store: &DynStore, keyring: &Keyring, batch: u32) -> anyhow::Result<Done> {
    let active = keyring.active().as_str();
    anyhow::ensure!(!keyring.is_unprotected(), "there is no key to wrap with: set keyring.path");
    let mut done = Done { key: active.to_owned(), ..Done::default() };
    let total = left(store, active).await?;
    for _ in 0..ROUNDS_MAX {
        let before = done.rewrapped;
        done.failed = 0;
        let mut after = None;
        while let Some(last) = some(store, keyring, after, batch, &mut done).await? {
            after = Some(last);
            print::note(&format!("wrapped {} of {} data keys", done.rewrapped, total.max(done.rewrapped)));
        }
        if done.rewrapped == before {
            break;
        }
    }
    Ok(done)
}

/// How many data keys are wrapped under another key.
async fn left(store: &DynStore, active: &str) -> anyhow::Result<u64> {
    let uses = store.key_uses().await.context("the data keys cannot be read")?;
    Ok(uses.iter().filter(|used| used.key_id != active).map(|used| used.data_keys).sum())
}

/// Wraps the next ones, in one transaction; the last one that was looked at.
async fn some(
    store: &DynStore,
    keyring: &Keyring,
    after: Option<(TenantNo, u16)>,
    batch: u32,
    done: &mut Done,
) -> anyhow::Result<Option<(TenantNo, u16)>> {
    let found = store.keys_not_under(keyring.active().as_str(), after, batch).await;
    let found = found.context("the data keys cannot be read")?;
    let Some(last) = found.last().map(|row| (row.tenant_no, row.key.version)) else { return Ok(None) };
    let mut again = Vec::with_capacity(found.len());
    for TenantKey { tenant_no, tenant, key, .. } in found {
        match keyring.unwrap(&key, &tenant) {
            Ok(opened) => {
                let to = keyring.wrap(&opened, &tenant, entropy::random());
                again.push(Rewrapped { tenant_no, from: key, to });
            }
            Err(error) => {
                done.failed += 1;
                print::note(&format!("tenants/{tenant}, version {}: {error}", key.version));
            }
        }
    }
    done.rewrapped += store.rewrap(again, &change()).await.context("the data keys cannot be written")?;
    Ok(Some(last))
}
