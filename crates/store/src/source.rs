//! Sources: the inbound endpoints of tenants.

use std::collections::BTreeMap;

use portero_types::{IngestKey, ProviderName, SourceId, SourceNo, TenantId, TenantNo, Timestamp};

use crate::{Error, ErrorKind, Limits, SealedSettings, SealedSettingsChange};

/// Most public URLs of one source.
pub const PUBLIC_URLS_MAX: usize = 4;
/// Longest public URL, bytes.
pub const PUBLIC_URL_BYTES_MAX: usize = 2_000;
/// Most settings of one source, secret ones included.
pub const SETTINGS_MAX: usize = 16;
/// Longest name of a setting, bytes.
pub const SETTING_NAME_BYTES_MAX: usize = 64;
/// Longest value of a setting, bytes.
pub const SETTING_VALUE_BYTES_MAX: usize = 1024;

/// One inbound endpoint of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Row number.
    pub no: SourceNo,
    /// The tenant's row number.
    pub tenant_no: TenantNo,
    /// The tenant's name.
    pub tenant: TenantId,
    /// Name.
    pub id: SourceId,
    /// Scopes event ids.
    pub provider: ProviderName,
    /// The preset's name, or empty when `recipe` holds a custom one.
    pub preset: String,
    /// A custom recipe as JSON text, or empty when `preset` names one.
    pub recipe: String,
    /// Last part of its URL.
    pub ingest_key: IngestKey,
    /// The URL as configured at the provider, for recipes that sign it; several while it moves. See [`PUBLIC_URLS_MAX`].
    pub public_urls: Vec<String>,
    /// What the recipe wants to know beside the secret. See [`SETTINGS_MAX`].
    pub settings: BTreeMap<String, String>,
    /// Those of them that are secrets.
    pub sealed_settings: SealedSettings,
    /// Until when a handshake may bring the source's secret, once; `None` when the source waits for none.
    pub secret_expected_until: Option<Timestamp>,
    /// How much it may send.
    pub limits: Limits,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A source to be created.
#[derive(Clone, Debug)]
pub struct NewSource {
    /// The tenant.
    pub tenant: TenantId,
    /// Name.
    pub id: SourceId,
    /// Scopes event ids.
    pub provider: ProviderName,
    /// See [`Source::preset`].
    pub preset: String,
    /// See [`Source::recipe`].
    pub recipe: String,
    /// Fresh random bits.
    pub ingest_key: IngestKey,
    /// See [`Source::public_urls`].
    pub public_urls: Vec<String>,
    /// See [`Source::settings`].
    pub settings: BTreeMap<String, String>,
    /// See [`Source::sealed_settings`].
    pub sealed_settings: SealedSettings,
    /// See [`Source::secret_expected_until`].
    pub secret_expected_until: Option<Timestamp>,
    /// How much it may send.
    pub limits: Limits,
    /// Now.
    pub created_at: Timestamp,
}

impl NewSource {
    /// Whether every store keeps it. Implementations ask before they write.
    ///
    /// # Errors
    /// `Refused` when a bound is broken.
    pub fn check(&self) -> crate::Result<()> {
        check_urls(&self.public_urls)?;
        self.limits.check()?;
        check_settings(&self.settings)?;
        self.sealed_settings.check(&self.settings)
    }
}

/// A change of a source. What is `None` stays as it is.
#[derive(Clone, Debug)]
pub struct SourceUpdate {
    /// The tenant.
    pub tenant: TenantId,
    /// The source.
    pub id: SourceId,
    /// See [`Source::preset`]. Given together with `recipe`.
    pub preset: Option<String>,
    /// See [`Source::recipe`]. Given together with `preset`.
    pub recipe: Option<String>,
    /// See [`Source::public_urls`].
    pub public_urls: Option<Vec<String>>,
    /// See [`Source::settings`]; replaces all of them, and of the sealed ones none.
    pub settings: Option<BTreeMap<String, String>>,
    /// What becomes of [`Source::sealed_settings`].
    pub sealed_settings: SealedSettingsChange,
    /// See [`Source::secret_expected_until`]; `Some(None)` ends the wait.
    pub secret_expected_until: Option<Option<Timestamp>>,
    /// How much it may send; replaces all three numbers.
    pub limits: Option<Limits>,
}

impl SourceUpdate {
    /// A change that changes nothing yet.
    #[must_use]
    pub const fn new(tenant: TenantId, id: SourceId) -> Self {
        Self {
            tenant,
            id,
            preset: None,
            recipe: None,
            public_urls: None,
            settings: None,
            sealed_settings: SealedSettingsChange::new(),
            secret_expected_until: None,
            limits: None,
        }
    }

    /// Whether every store keeps it. Implementations ask before they write.
    ///
    /// # Errors
    /// `Refused` when a bound is broken, or one of preset and recipe comes without the other.
    pub fn check(&self) -> crate::Result<()> {
        if self.preset.is_some() != self.recipe.is_some() {
            return Err(refused("a source has a preset or a recipe"));
        }
        self.public_urls.as_deref().map_or(Ok(()), check_urls)?;
        self.limits.as_ref().map_or(Ok(()), Limits::check)?;
        self.settings.as_ref().map_or(Ok(()), check_settings)
    }

    /// The sealed settings after the change of a source that is `before`; `None`: they stay as they are. Implementations ask
    /// inside of the change's transaction.
    ///
    /// # Errors
    /// `Refused` when a bound is broken, or a name would be both a secret setting and another one.
    pub fn sealed_after(&self, before: &Source) -> crate::Result<Option<SealedSettings>> {
        let after = before.sealed_settings.changed(&self.sealed_settings);
        after.check(self.settings.as_ref().unwrap_or(&before.settings))?;
        Ok(Some(after).filter(|after| *after != before.sealed_settings))
    }
}

fn check_urls(urls: &[String]) -> crate::Result<()> {
    let fits = |url: &String| (1..=PUBLIC_URL_BYTES_MAX).contains(&url.len()) && !url.contains('\0');
    if urls.len() <= PUBLIC_URLS_MAX && urls.iter().all(fits) {
        return Ok(());
    }
    Err(refused("a source has at most 4 public URLs of at most 2,000 bytes each, without NUL"))
}

fn check_settings(settings: &BTreeMap<String, String>) -> crate::Result<()> {
    let fits = |(name, value): (&String, &String)| {
        (1..=SETTING_NAME_BYTES_MAX).contains(&name.len())
            && value.len() <= SETTING_VALUE_BYTES_MAX
            && !name.contains('\0')
            && !value.contains('\0')
    };
    if settings.len() <= SETTINGS_MAX && settings.iter().all(fits) {
        return Ok(());
    }
    Err(refused(
        "a source has at most 16 settings, names of at most 64 and values of at most 1,024 bytes, without NUL",
    ))
}

fn refused(message: &str) -> Error {
    Error::new(ErrorKind::Refused, message)
}
