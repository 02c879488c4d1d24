//! Endpoints: a tenant's source, its recipe, and what it needs to verify.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portero_keyring::secret_aad;
use portero_recipe::Recipe;
use portero_store::{
    Actor, Change, ConfigStore as _, Limits, NewSecret, NewSource, NewTenant, SchemaStore as _, Sealed,
    SealedSettings,
};
use portero_store_sqlite::SqliteStore;
use portero_types::{IngestKey, ProviderName, SecretId, SourceId, TenantId, Timestamp};
use sha2::{Digest as _, Sha256};

use super::{NOW, data_key, keyring, tenant_keys};

/// One endpoint of one tenant.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) tenant: String,
    pub(crate) name: String,
    /// A preset's name, or a recipe.
    pub(crate) recipe: String,
    /// All active, oldest first.
    pub(crate) secrets: Vec<String>,
    pub(crate) urls: Vec<String>,
    pub(crate) settings: BTreeMap<String, String>,
    /// Whether a handshake is to bring its secret.
    pub(crate) waits: bool,
}

impl Endpoint {
    /// The tenant `acme`'s endpoint, named after its preset; `recipe` may be a recipe too.
    pub(crate) fn new(recipe: &str, secret: &str) -> Self {
        Self {
            tenant: "acme".to_owned(),
            name: if recipe.starts_with('{') { "own".to_owned() } else { recipe.to_owned() },
            recipe: recipe.to_owned(),
            secrets: Some(secret)
                .filter(|secret| !secret.is_empty())
                .map(str::to_owned)
                .into_iter()
                .collect(),
            urls: Vec::new(),
            settings: BTreeMap::new(),
            waits: false,
        }
    }

    pub(crate) fn of(self, tenant: &str) -> Self {
        Self { tenant: tenant.to_owned(), ..self }
    }

    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    pub(crate) fn url(mut self, url: &str) -> Self {
        self.urls.push(url.to_owned());
        self
    }

    /// One more active secret.
    pub(crate) fn and(mut self, secret: &str) -> Self {
        self.secrets.push(secret.to_owned());
        self
    }

    pub(crate) fn path(&self) -> String {
        format!("/in/{}", self.key())
    }

    /// The key in its URL.
    pub(crate) fn key(&self) -> IngestKey {
        let digest = Sha256::digest(format!("{}/{}", self.tenant, self.name));
        IngestKey::from_bytes(digest[..16].try_into().expect("16 bytes"))
    }

    pub(crate) fn provider(&self) -> ProviderName {
        let name = if self.recipe.starts_with('{') { "own" } else { self.recipe.as_str() };
        ProviderName::new(name).expect("valid")
    }

    pub(crate) fn parsed(&self) -> Arc<Recipe> {
        match Recipe::from_json(&self.recipe) {
            Ok(recipe) => Arc::new(recipe),
            Err(_) => Recipe::preset(&self.recipe).unwrap_or_else(|| panic!("no preset '{}'", self.recipe)),
        }
    }

    fn new_source(&self) -> NewSource {
        let is_preset = !self.recipe.starts_with('{');
        NewSource {
            tenant: TenantId::new(&self.tenant).expect("valid"),
            id: SourceId::new(&self.name).expect("valid"),
            provider: self.provider(),
            preset: if is_preset { self.recipe.clone() } else { String::new() },
            recipe: if is_preset { String::new() } else { self.recipe.clone() },
            ingest_key: self.key(),
            public_urls: self.urls.clone(),
            settings: self.settings.clone(),
            sealed_settings: SealedSettings::default(),
            secret_expected_until: self.waits.then(|| NOW.plus(Duration::from_secs(60))),
            limits: Limits::default(),
            created_at: NOW,
        }
    }
}

/// A new database with these endpoints.
pub(crate) async fn create(path: &Path, endpoints: &[Endpoint]) {
    let store = SqliteStore::open(path).await.expect("opens");
    store.migrate().await.expect("migrates");
    let change = Change::new(Actor::local("test"), "req-1", NOW);
    let mut tenants: Vec<&str> = Vec::new();
    for endpoint in endpoints {
        let tenant = TenantId::new(&endpoint.tenant).expect("valid");
        if !tenants.contains(&endpoint.tenant.as_str()) {
            let key = keyring().wrap(&data_key(), &tenant, [5; 12]);
            let new = NewTenant {
                key,
                id: tenant.clone(),
                display_name: String::new(),
                limits: Limits::default(),
                created_at: NOW,
            };
            store.create_tenant(new, &change).await.expect("created");
            tenants.push(&endpoint.tenant);
        }
        let new = endpoint.new_source();
        let source = new.id.clone();
        store.create_source(new, &change).await.expect("created");
        for (n, secret) in endpoint.secrets.iter().enumerate() {
            let new = new_secret(&tenant, &source, &format!("secret-{n}"), secret, Timestamp::EPOCH);
            store.add_secret(new, &change).await.expect("added");
        }
    }
    store.close().await;
}

pub(super) fn new_secret(
    tenant: &TenantId,
    source: &SourceId,
    id: &str,
    value: &str,
    not_before: Timestamp,
) -> NewSecret {
    let id = SecretId::new(id).expect("valid");
    let sealed = Sealed(tenant_keys().seal(&secret_aad(tenant, source, &id), value.as_bytes(), [3; 12]));
    NewSecret {
        tenant: tenant.clone(),
        source: source.clone(),
        id,
        sealed,
        not_before,
        retire_others_at: None,
        created_at: NOW,
    }
}
