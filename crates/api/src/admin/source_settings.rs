//! A source's settings as calls give and show them. Secret ones are sealed before they reach the store, and never shown.

use std::collections::BTreeMap;

use portero_keyring::setting_aad;
use portero_recipe::Recipe;
use portero_store::{Sealed, SealedSetting, SealedSettings, SealedSettingsChange, Source};
use portero_types::{Redacted, SourceId, TenantId};
use tonic::Status;

use super::Admin;
use crate::error::invalid;

/// What becomes of a source's settings.
pub(super) struct SettingsChange {
    /// Those that everybody may see who sees the source; `None`: they stay.
    pub(super) plain: Option<BTreeMap<String, String>>,
    /// The secret ones that are set or, with `None`, taken away.
    secret: BTreeMap<String, Option<Redacted<String>>>,
}

impl SettingsChange {
    /// Of a new source. `named` are the secret ones that it is said to have.
    pub(super) fn at_creation(
        recipe: &Recipe,
        given: BTreeMap<String, String>,
        named: &[String],
    ) -> Result<Self, Status> {
        check(recipe, &given)?;
        let (plain, secret) = told_apart(recipe, given);
        require_set(named, |name| secret.contains_key(name))?;
        Ok(Self { plain: Some(plain), secret })
    }

    /// Of a source that is `row` and gets, or has, this recipe. `given` takes the place of all settings but of secret ones that it
    /// does not name; with `named`, the secret ones that neither has are taken away.
    pub(super) fn of_update(
        row: &Source,
        recipe: &Recipe,
        given: Option<BTreeMap<String, String>>,
        named: Option<&[String]>,
    ) -> Result<Self, Status> {
        let is_kept = |name: &String| named.is_none_or(|named| named.contains(name));
        let is_given = given.is_some();
        let mut all = given.unwrap_or_default();
        for (name, value) in &row.settings {
            // What a recipe did not keep as a secret and this one does is there, and moves.
            let stays = if recipe.is_secret_setting(name) { is_kept(name) } else { !is_given };
            if stays && !all.contains_key(name) {
                all.insert(name.clone(), value.clone());
            }
        }
        // A new recipe must know the settings that stay.
        check(recipe, &all)?;
        let (plain, mut secret) = told_apart(recipe, all);
        for name in row.sealed_settings.0.keys().filter(|name| !secret.contains_key(*name)) {
            if plain.contains_key(name) || !is_kept(name) {
                continue;
            }
            if !recipe.is_secret_setting(name) {
                let rule = "is kept as a secret, which this recipe does not do: take it away by an update that names \
                            secret_settings without it";
                return Err(invalid(&field(name), rule));
            }
        }
        let is_set = |name: &str| secret.contains_key(name) || row.sealed_settings.0.contains_key(name);
        require_set(named.unwrap_or_default(), is_set)?;
        let gone = row.sealed_settings.0.keys().filter(|name| plain.contains_key(*name) || !is_kept(name));
        for name in gone {
            secret.entry(name.clone()).or_insert(None);
        }
        let plain = Some(plain).filter(|plain| *plain != row.settings);
        Ok(Self { plain, secret })
    }
}

impl Admin {
    /// Seals what is secret of a change.
    pub(super) async fn seal_settings(
        &self,
        (tenant, source): (&TenantId, &SourceId),
        change: &SettingsChange,
    ) -> Result<SealedSettingsChange, Status> {
        if change.secret.is_empty() {
            return Ok(SealedSettingsChange::new());
        }
        let (keys, given_at) = (self.keys_of(tenant).await?, self.now());
        let seal = |(name, value): (&String, &Option<Redacted<String>>)| {
            let setting = value.as_ref().map(|value| {
                let aad = setting_aad(tenant, source, name);
                let sealed = keys.seal(&aad, value.expose_secret().as_bytes(), self.nonce());
                SealedSetting { given_at, sealed: Sealed(sealed) }
            });
            (name.clone(), setting)
        };
        Ok(change.secret.iter().map(seal).collect())
    }
}

/// The settings of a source that may be shown, and the names of those that are set and may not.
pub(super) fn shown(source: &Source, recipe: Option<&Recipe>) -> (BTreeMap<String, String>, Vec<String>) {
    let is_secret = |name: &str| recipe.is_some_and(|recipe| recipe.is_secret_setting(name));
    let (hidden, plain): (BTreeMap<_, _>, _) =
        source.settings.clone().into_iter().partition(|(name, _)| is_secret(name));
    let mut names: Vec<String> = hidden.into_keys().chain(source.sealed_settings.0.keys().cloned()).collect();
    names.sort_unstable();
    (plain, names)
}

/// The settings that a source lacks though its recipe needs them, each with what it is.
pub(super) fn missing<'r>(source: &Source, recipe: &'r Recipe) -> impl Iterator<Item = (&'r str, &'r str)> {
    let SealedSettings(sealed) = &source.sealed_settings;
    let missing = recipe.missing_settings(&source.settings).into_iter();
    missing.filter(|name| !sealed.contains_key(*name)).map(|name| {
        (name, recipe.settings().get(name).map(|setting| setting.about.as_str()).unwrap_or_default())
    })
}

/// Settings that the recipe knows. Required ones may be missing.
fn check(recipe: &Recipe, settings: &BTreeMap<String, String>) -> Result<(), Status> {
    recipe
        .check_settings(settings)
        .map_err(|error| invalid(&field(&error.name), format!("cannot be used: {}", error.reason)))
}

/// A name that is unknown may be anything: it is quoted, and only so long.
fn field(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("source.settings[{name:?}]")
}

type Apart = (BTreeMap<String, String>, BTreeMap<String, Option<Redacted<String>>>);

fn told_apart(recipe: &Recipe, settings: BTreeMap<String, String>) -> Apart {
    let (mut plain, mut secret) = Apart::default();
    for (name, value) in settings {
        if recipe.is_secret_setting(&name) {
            secret.insert(name, Some(Redacted::new(value)));
        } else {
            plain.insert(name, value);
        }
    }
    (plain, secret)
}

fn require_set(named: &[String], is_set: impl Fn(&str) -> bool) -> Result<(), Status> {
    match named.iter().position(|name| !is_set(name)) {
        None => Ok(()),
        Some(n) => Err(invalid(
            &format!("source.secret_settings[{n}]"),
            "is no secret setting that the source has: give its value in settings",
        )),
    }
}
