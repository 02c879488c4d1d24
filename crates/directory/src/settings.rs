//! What a source says beside its secrets, with its secret settings opened.

use std::collections::BTreeMap;
use std::fmt;

use portero_keyring::{TenantKeys, setting_aad};
use portero_recipe::Recipe;
use portero_store::Sealed;
use portero_types::Redacted;

use crate::Fault;

/// A source's settings. The secret ones among them are wiped from memory when it is dropped; Debug shows names alone.
#[derive(Default)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// All of them, by name.
    #[must_use]
    pub const fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Those of a source. What it keeps sealed is given to a recipe only that keeps it a secret, too.
    pub(crate) fn open(
        source: &portero_store::Source,
        recipe: &Recipe,
        keys: &TenantKeys,
    ) -> Result<Self, Fault> {
        let mut settings = Self(source.settings.clone());
        for (name, setting) in &source.sealed_settings.0 {
            let value = open_setting(source, name, &setting.sealed, keys)?;
            if recipe.is_secret_setting(name) {
                settings.0.insert(name.clone(), value.expose_secret().clone());
            }
        }
        Ok(settings)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for value in std::mem::take(&mut self.0).into_values() {
            drop(Redacted::new(value));
        }
    }
}

/// Opens one of a source's secret settings.
///
/// # Errors
/// [`Fault::SettingSealed`].
pub fn open_setting(
    source: &portero_store::Source,
    name: &str,
    sealed: &Sealed,
    keys: &TenantKeys,
) -> Result<Redacted<String>, Fault> {
    let aad = setting_aad(&source.tenant, &source.id, name);
    let value = keys.open(&aad, &sealed.0).ok().and_then(|value| String::from_utf8(value.to_vec()).ok());
    value.map(Redacted::new).ok_or_else(|| Fault::SettingSealed(name.to_owned()))
}
