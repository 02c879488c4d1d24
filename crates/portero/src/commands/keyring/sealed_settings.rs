//! Sources' secret settings under a new data key.

use anyhow::Context as _;
use portero_keyring::{TenantKeys, setting_aad};
use portero_store::{ResealedSettings, Sealed, TenantKey};

use super::Site;
use crate::{entropy, print};

impl Site {
    /// Seals a tenant's secret settings with its newest key. Of how many sources; `failed` gets how many settings cannot be
    /// opened.
    pub(super) async fn reseal_settings_of(
        &self,
        of: &TenantKey,
        keys: &TenantKeys,
        failed: &mut u64,
    ) -> anyhow::Result<u64> {
        let found =
            self.store.sealed_settings_of(of.tenant_no).await.context("the settings cannot be read")?;
        let named = std::mem::take(failed);
        let mut again = Vec::new();
        for (no, source, from) in found {
            let mut to = from.clone();
            for (name, setting) in &mut to.0 {
                if TenantKeys::version_of(&setting.sealed.0) == Some(keys.newest()) {
                    continue;
                }
                let aad = setting_aad(&of.tenant, &source, name);
                match keys.open(&aad, &setting.sealed.0) {
                    Ok(value) => setting.sealed = Sealed(keys.seal(&aad, &value, entropy::random())),
                    Err(error) => {
                        *failed += 1;
                        if named == 0 {
                            print::note(&format!(
                                "the setting {name} of tenants/{}/sources/{source} stays as it is: {error}",
                                of.tenant
                            ));
                        }
                    }
                }
            }
            if to != from {
                again.push(ResealedSettings { source: no, from, to });
            }
        }
        if again.is_empty() {
            return Ok(0);
        }
        self.store.reseal_settings(again).await.context("the settings cannot be written")
    }
}
