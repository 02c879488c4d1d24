//! All configuration at one revision, made ready for use.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use portero_keyring::{OpenError, TenantKeys};
use portero_recipe::{Recipe, Secret};
use portero_store::{Grant, Limits, Revision, Subscription, Tenant, TenantKey};
use portero_types::{
    GrantNo, IngestKey, ProviderName, SecretId, SecretNo, SourceId, SourceNo, SubscriptionId, SubscriptionNo,
    TenantId, TenantNo, Timestamp,
};

use crate::grants::Grants;
use crate::keys::Held;
use crate::map::SharedMap;
use crate::secrets::{self, Unreadable};
use crate::settings::Settings;

/// All configuration at one revision. Immutable; a later one shares with it what did not change.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub(crate) revision: Revision,
    pub(crate) sources_by_key: SharedMap<IngestKey, Arc<Source>>,
    pub(crate) sources_by_no: SharedMap<SourceNo, Arc<Source>>,
    pub(crate) sources_by_id: SharedMap<SourceId, Arc<BTreeSet<SourceNo>>>,
    pub(crate) source_of_secret: SharedMap<SecretNo, SourceNo>,
    pub(crate) keys: SharedMap<TenantNo, Arc<Held>>,
    /// The tenants of which not every data key could be opened.
    pub(crate) unopened: BTreeSet<TenantNo>,
    /// The secrets that cannot be read, of all sources.
    pub(crate) unreadable: BTreeSet<SecretNo>,
    pub(crate) tenants: SharedMap<TenantId, Arc<Tenant>>,
    pub(crate) tenants_by_no: SharedMap<TenantNo, Arc<Tenant>>,
    pub(crate) subscriptions: SharedMap<SubscriptionId, Arc<Subscription>>,
    pub(crate) subscriptions_by_no: SharedMap<SubscriptionNo, Arc<Subscription>>,
    pub(crate) grants_by_no: SharedMap<GrantNo, Arc<Grant>>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) freed_tenants: SharedMap<TenantId, Timestamp>,
    pub(crate) freed_subscriptions: SharedMap<SubscriptionId, Timestamp>,
}

/// One inbound endpoint of a tenant, ready to verify.
#[derive(Debug)]
pub struct Source {
    /// Row number.
    pub no: SourceNo,
    /// Name.
    pub id: SourceId,
    /// The tenant's row number.
    pub tenant_no: TenantNo,
    /// The tenant's name.
    pub tenant: TenantId,
    /// Scopes event ids.
    pub provider: ProviderName,
    /// Last part of its URL.
    pub ingest_key: IngestKey,
    /// The URL as configured at the provider, for recipes that sign it; several while it moves.
    pub public_urls: Vec<String>,
    /// What the recipe wants to know beside the secrets; nothing when there is a fault.
    pub settings: Settings,
    /// Until when a handshake may bring its secret, once.
    pub secret_expected_until: Option<Timestamp>,
    /// How much it may send.
    pub limits: Limits,
    /// How to verify, or why that is impossible.
    pub verification: Result<Verification, Fault>,
    /// The rows that this was made of, to see whether they changed.
    pub(crate) origin: Origin,
    /// The keys that it was made with.
    pub(crate) held: Option<Arc<Held>>,
}

/// What verifies a source's requests.
#[derive(Debug)]
pub struct Verification {
    /// How to verify and read them.
    pub recipe: Arc<Recipe>,
    /// Every secret, including those whose time has not come or is over: ask each with the present time. Those that cannot be
    /// read are among them, so that nobody is refused for good whom they may have proven.
    pub secrets: Vec<Secret>,
    /// Which secrets cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// What seals what they bring.
    pub keys: Arc<TenantKeys>,
}

/// Why a source cannot verify anything. Its requests are answered 503 until someone acts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// This program has no such preset.
    #[error("there is no preset of that name")]
    PresetUnknown,
    /// The recipe no longer compiles.
    #[error("the recipe cannot be used: {0}")]
    RecipeInvalid(String),
    /// The tenant's data key cannot be opened.
    #[error("the tenant's data key cannot be opened: {0}")]
    DataKey(OpenError),
    /// The tenant's data keys cannot open a secret setting.
    #[error("the tenant's data key does not open the setting {0}")]
    SettingSealed(String),
}

/// The rows of a source and of its secrets, these in the order of their numbers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) source: portero_store::Source,
    pub(crate) secrets: Vec<portero_store::Secret>,
}

impl Snapshot {
    /// The revision that this shows.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The source of a URL.
    #[must_use]
    pub fn source_by_ingest_key(&self, key: &IngestKey) -> Option<&Arc<Source>> {
        self.sources_by_key.get(key)
    }

    /// A source by row number. Deleted ones are not here, though receipts and the log may still name them.
    #[must_use]
    pub fn source_by_no(&self, no: SourceNo) -> Option<&Arc<Source>> {
        self.sources_by_no.get(&no)
    }

    /// A tenant by row number.
    #[must_use]
    pub fn tenant_by_no(&self, no: TenantNo) -> Option<&Arc<Tenant>> {
        self.tenants_by_no.get(&no)
    }

    /// What a tenant's events, secrets and rejections are sealed with, or why that cannot be opened. Deleted tenants have it too:
    /// their events are delivered. An erased one has none.
    #[must_use]
    pub fn keys_of(&self, no: TenantNo) -> Option<Result<&Arc<TenantKeys>, &Fault>> {
        self.keys.get(&no).map(|held| held.keys.as_ref())
    }

    /// How many secrets cannot be read, of all sources that could use them.
    #[must_use]
    pub fn secrets_unreadable(&self) -> usize {
        self.unreadable.len()
    }

    /// Tenants of which not every data key could be opened.
    #[must_use]
    pub fn tenants_unopened(&self) -> usize {
        self.unopened.len()
    }

    /// Tenants of which not every data key could be opened, by number, after one of them.
    pub(crate) fn unopened_after(&self, after: Option<TenantNo>) -> impl Iterator<Item = TenantNo> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.unopened.range((first, Bound::Unbounded)).copied()
    }

    /// This without the data keys that are not those of these rows. In another line of history a number and a version may
    /// stand for another key, and what is sealed with the former one could never be opened.
    pub(crate) fn with_keys_of(&self, rows: &[TenantKey]) -> Self {
        let mut stored: HashMap<TenantNo, Vec<TenantKey>> = HashMap::new();
        for row in rows {
            stored.entry(row.tenant_no).or_default().push(row.clone());
        }
        let mut kept = self.clone();
        for (no, rows) in stored {
            if self.keys.get(&no).is_some_and(|held| !held.is_of(&rows)) {
                kept.keys.remove(&no);
            }
        }
        kept
    }

    /// A tenant by name.
    #[must_use]
    pub fn tenant(&self, id: &TenantId) -> Option<&Arc<Tenant>> {
        self.tenants.get(id)
    }

    /// A subscription by name.
    #[must_use]
    pub fn subscription(&self, id: &SubscriptionId) -> Option<&Arc<Subscription>> {
        self.subscriptions.get(id)
    }

    /// A subscription by row number.
    #[must_use]
    pub fn subscription_by_no(&self, no: SubscriptionNo) -> Option<&Arc<Subscription>> {
        self.subscriptions_by_no.get(&no)
    }

    /// Every subscription, in no order.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Arc<Subscription>> {
        self.subscriptions.values()
    }

    /// The stored grants of a subject that an issuer vouches for, in no order.
    pub fn grants_of(&self, issuer: &str, subject: &str) -> impl Iterator<Item = &Arc<Grant>> {
        self.grants.of(issuer, subject)
    }

    /// When a tenant of this name was last deleted or erased, whether there is another one of it by now or not.
    #[must_use]
    pub fn tenant_name_freed_at(&self, id: &TenantId) -> Option<Timestamp> {
        self.freed_tenants.get(id).copied()
    }

    /// When a subscription of this name was last deleted, whether there is another one of it by now or not.
    #[must_use]
    pub fn subscription_name_freed_at(&self, id: &SubscriptionId) -> Option<Timestamp> {
        self.freed_subscriptions.get(id).copied()
    }

    /// The sources of a name, at most one of each tenant, in no order.
    pub fn sources_named(&self, id: &SourceId) -> impl Iterator<Item = &Arc<Source>> {
        let numbers = self.sources_by_id.get(id).into_iter().flat_map(|numbers| numbers.iter());
        numbers.filter_map(|no| self.sources_by_no.get(no))
    }

    /// Every source, in no order.
    pub fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.sources_by_no.values()
    }
}

impl Source {
    /// Whether it was made with these data keys.
    pub(crate) fn is_held_by(&self, held: Option<&Arc<Held>>) -> bool {
        match (&self.held, held) {
            (Some(mine), Some(held)) => Arc::ptr_eq(mine, held),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Its secrets that cannot be read. A source with a fault tells of the fault alone.
    #[must_use]
    pub fn unreadable(&self) -> &[Unreadable] {
        self.verification.as_ref().map_or(&[], |verification| &verification.unreadable)
    }

    /// The name of one of its secrets.
    #[must_use]
    pub fn secret_id(&self, no: SecretNo) -> Option<&SecretId> {
        self.origin.secrets.iter().find(|secret| secret.no == no).map(|secret| &secret.id)
    }

    /// Whether it was made with the recipe of this row.
    #[must_use]
    pub fn has_recipe_of(&self, row: &portero_store::Source) -> bool {
        (&self.origin.source.preset, &self.origin.source.recipe) == (&row.preset, &row.recipe)
    }

    pub(crate) fn build(origin: Origin, held: Option<Arc<Held>>) -> Self {
        let row = &origin.source;
        let built = Verification::build(&origin, held.as_deref()).and_then(|verification| {
            let settings = Settings::open(row, &verification.recipe, &verification.keys)?;
            Ok((settings, verification))
        });
        let (settings, verification) = match built {
            Ok((settings, verification)) => (settings, Ok(verification)),
            Err(fault) => (Settings::default(), Err(fault)),
        };
        if let Err(fault) = &verification {
            tracing::error!(
                tenant.id = %row.tenant, source.id = %row.id, %fault,
                "a source is disabled: it answers 503 until its recipe, secrets and tenant's key can be used"
            );
        }
        Self {
            no: row.no,
            id: row.id.clone(),
            tenant_no: row.tenant_no,
            tenant: row.tenant.clone(),
            provider: row.provider.clone(),
            ingest_key: row.ingest_key,
            public_urls: row.public_urls.clone(),
            settings,
            secret_expected_until: row.secret_expected_until,
            limits: row.limits,
            verification,
            origin,
            held,
        }
    }
}

impl Verification {
    fn build(origin: &Origin, held: Option<&Held>) -> Result<Self, Fault> {
        let row = &origin.source;
        let keys = held.map_or(Err(Fault::DataKey(OpenError::NoKeySet)), |held| held.keys.clone())?;
        let recipe = if row.preset.is_empty() {
            Arc::new(Recipe::from_json(&row.recipe).map_err(|error| Fault::RecipeInvalid(error.to_string()))?)
        } else {
            Recipe::preset(&row.preset).ok_or(Fault::PresetUnknown)?
        };
        let (secrets, unreadable) = secrets::read(row, &origin.secrets, &recipe, &keys);
        Ok(Self { recipe, secrets, unreadable, keys })
    }
}
