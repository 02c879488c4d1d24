//! Configuration that measurements begin with, written as the admin API writes it.

use std::collections::BTreeMap;

use portero_directory::open_tenant_keys;
use portero_keyring::{Keyring, secret_aad};
use portero_store::{
    Actor, Change, ConfigStore as _, KeyStore as _, Limits, NewSecret, NewSource, NewTenant, Sealed,
    SealedSettings, Source,
};
use portero_store_postgres::PostgresStore;
use portero_types::{IngestKey, ProviderName, SecretId, SourceId, TenantId, Timestamp};

/// Writes configuration.
pub(crate) struct Setup<'a> {
    pub(crate) store: &'a PostgresStore,
    pub(crate) keyring: &'a Keyring,
    pub(crate) now: Timestamp,
}

impl Setup<'_> {
    /// Who makes changes here.
    pub(crate) fn change(&self) -> Change {
        Change::new(Actor::local("bench"), "setup", self.now)
    }

    /// A tenant without limits.
    pub(crate) async fn tenant(&self, id: &TenantId) -> anyhow::Result<()> {
        let tenant = NewTenant {
            id: id.clone(),
            display_name: "Bench".to_owned(),
            key: self.keyring.new_data_key(1, id, rand::random(), rand::random()),
            limits: Limits::default(),
            created_at: self.now,
        };
        self.store.create_tenant(tenant, &self.change()).await?;
        Ok(())
    }

    /// A source of Stripe's preset, without a secret.
    pub(crate) async fn stripe(&self, tenant: &TenantId, id: &SourceId) -> anyhow::Result<Source> {
        let source = NewSource {
            tenant: tenant.clone(),
            id: id.clone(),
            provider: ProviderName::new("stripe")?,
            preset: "stripe".to_owned(),
            recipe: String::new(),
            ingest_key: IngestKey::from_bytes(rand::random()),
            public_urls: Vec::new(),
            settings: BTreeMap::new(),
            sealed_settings: SealedSettings::default(),
            secret_expected_until: None,
            limits: Limits::default(),
            created_at: self.now,
        };
        Ok(self.store.create_source(source, &self.change()).await?)
    }

    /// A source's only secret.
    pub(crate) async fn secret(&self, source: &Source, value: &str) -> anyhow::Result<()> {
        let id = SecretId::new("only")?;
        let aad = secret_aad(&source.tenant, &source.id, &id);
        let keys = open_tenant_keys(&self.store.tenant_keys(&source.tenant).await?, self.keyring)?;
        let secret = NewSecret {
            tenant: source.tenant.clone(),
            source: source.id.clone(),
            id,
            sealed: Sealed(keys.seal(&aad, value.as_bytes(), rand::random())),
            not_before: self.now,
            retire_others_at: None,
            created_at: self.now,
        };
        self.store.add_secret(secret, &self.change()).await?;
        Ok(())
    }
}
