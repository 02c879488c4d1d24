//! A new data key for every tenant.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use portero_directory::open_tenant_keys;
use portero_keyring::{TenantKeys, secret_aad};
use portero_store::{ErrorKind, Resealed, Sealed, TenantKey};
use portero_types::{Clock as _, TenantNo, Timestamp};
use serde::Serialize;

use super::{Site, change};
use crate::cli::{ConfigArgs, Output};
use crate::clock::SystemClock;
use crate::commands::exit::Failure;
use crate::{entropy, print};

/// After everything that can have been made.
const END: Timestamp = Timestamp::from_micros(i64::MAX);
/// Secrets may be added meanwhile with an older key; after so many rounds they may stay so.
const ROUNDS_MAX: u32 = 5;

#[derive(Debug, Default, Serialize)]
struct Done {
    tenants: u64,
    secrets: u64,
    /// Sources of which secret settings were sealed again.
    settings: u64,
    /// Tenants, secrets and settings that stay as they are, because what is stored of them cannot be opened, or because a tenant has as
    /// many keys as it can have.
    failed: u64,
}

pub(super) async fn run(
    before: Option<&str>,
    args: &ConfigArgs,
    batch: u32,
    output: Output,
) -> anyhow::Result<()> {
    let before = match before {
        Some(text) => time(text)?,
        None => SystemClock::default().now(),
    };
    let site = Site::open(args).await?;
    site.require_restarted().await?;
    print::note(&format!(
        "If this is interrupted, go on with: portero keyring rotate-data-keys --before {}",
        shown(before)
    ));
    let mut done = Done::default();
    let mut after = None;
    while let Some(last) = site.renew(before, after, batch, &mut done).await? {
        after = Some(last);
        print::note(&format!("gave {} tenants a new data key", done.tenants));
    }
    let mut after = None;
    while let Some(last) = site.reseal(after, batch, &mut done).await? {
        after = Some(last);
        print::note(&format!("sealed {} secrets again", done.secrets));
    }
    site.close().await;
    match output {
        Output::Json => print::json(&done)?,
        Output::Text => print::line(&format!(
            "{} tenants have a new data key; {} secrets and the secret settings of {} sources were sealed again",
            done.tenants, done.secrets, done.settings
        ))?,
    }
    anyhow::ensure!(
        done.failed == 0,
        "{} data keys, secrets and secret settings stay as they are, for the reasons above; all others are done",
        done.failed
    );
    Ok(())
}

impl Site {
    /// Gives the next tenants a new key; the last one that was looked at.
    async fn renew(
        &self,
        before: Timestamp,
        after: Option<TenantNo>,
        batch: u32,
        done: &mut Done,
    ) -> anyhow::Result<Option<TenantNo>> {
        let found = self.store.newest_keys_before(before, after, batch).await;
        let found = found.context("the data keys cannot be read")?;
        for TenantKey { tenant_no, tenant, key, .. } in &found {
            if let Err(error) = self.keyring.unwrap(key, tenant) {
                // A newer key would hide what is wrong.
                print::note(&format!("tenants/{tenant} keeps its data key, which cannot be opened: {error}"));
                done.failed += 1;
                continue;
            }
            let version = key.version.checked_add(1).context("a tenant has used up all versions")?;
            let new = self.keyring.new_data_key(version, tenant, entropy::random(), entropy::random());
            match self.store.add_tenant_key(*tenant_no, new, &change()).await {
                Ok(()) => done.tenants += 1,
                // Another run was faster, or the tenant is gone.
                Err(error) if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {}
                // What one tenant cannot have keeps nobody else from a new key.
                Err(error) if error.kind() == ErrorKind::FailedPrecondition => {
                    print::note(&format!("tenants/{tenant} keeps its data key: {error}"));
                    done.failed += 1;
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("tenants/{tenant} keeps its data key"));
                }
            }
        }
        Ok(found.last().map(|row| row.tenant_no))
    }

    /// Seals the secrets of the next tenants with their newest key; the last one that was looked at.
    async fn reseal(
        &self,
        after: Option<TenantNo>,
        batch: u32,
        done: &mut Done,
    ) -> anyhow::Result<Option<TenantNo>> {
        let found = self.store.newest_keys_before(END, after, batch).await;
        let found = found.context("the data keys cannot be read")?;
        for row in &found {
            let keys = self.store.tenant_keys(&row.tenant).await.context("the data keys cannot be read")?;
            let Ok(keys) = open_tenant_keys(&keys, &self.keyring) else {
                // It was named above.
                continue;
            };
            let (mut failed, mut unopened) = (0, 0);
            for _ in 0..ROUNDS_MAX {
                let secrets = self.reseal_of(row, &keys, &mut failed).await?;
                let settings = self.reseal_settings_of(row, &keys, &mut unopened).await?;
                done.secrets += secrets;
                done.settings += settings;
                if secrets + settings == 0 {
                    break;
                }
            }
            done.failed += failed + unopened;
        }
        Ok(found.last().map(|row| row.tenant_no))
    }

    /// How many were sealed again; `failed` gets how many cannot be opened.
    async fn reseal_of(&self, of: &TenantKey, keys: &TenantKeys, failed: &mut u64) -> anyhow::Result<u64> {
        let secrets = self.store.secrets_of(of.tenant_no).await.context("the secrets cannot be read")?;
        let mut again = Vec::new();
        let named = std::mem::take(failed);
        for (source, secret) in secrets {
            if TenantKeys::version_of(&secret.sealed.0) == Some(keys.newest()) {
                continue;
            }
            let aad = secret_aad(&of.tenant, &source, &secret.id);
            match keys.open(&aad, &secret.sealed.0) {
                Ok(value) => {
                    let to = Sealed(keys.seal(&aad, &value, entropy::random()));
                    again.push(Resealed { no: secret.no, from: secret.sealed, to });
                }
                // It verifies nothing any more: nothing is lost with it.
                Err(_) if secret.revoked_at.is_some() => {}
                Err(error) => {
                    *failed += 1;
                    if named == 0 {
                        print::note(&format!(
                            "tenants/{}/sources/{source}/secrets/{} stays as it is: {error}. Restore its row, or revoke it",
                            of.tenant, secret.id
                        ));
                    }
                }
            }
        }
        if again.is_empty() {
            return Ok(0);
        }
        self.store.reseal(again).await.context("the secrets cannot be written")
    }
}

fn time(text: &str) -> Result<Timestamp, Failure> {
    let wrong = || Failure::usage("--before must be a time such as 2026-03-01T12:00:00Z");
    let since = humantime::parse_rfc3339(text).ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let micros = since.and_then(|since| i64::try_from(since.as_micros()).ok());
    micros.map(Timestamp::from_micros).ok_or_else(wrong)
}

fn shown(time: Timestamp) -> String {
    let since = Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(0));
    humantime::format_rfc3339_micros(UNIX_EPOCH + since).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_to_the_microsecond() {
        let moment = Timestamp::from_micros(1_750_000_000_123_456);
        assert_eq!(time(&shown(moment)), Ok(moment));
        assert!(time("yesterday").is_err());
    }
}
