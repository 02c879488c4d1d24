//! A preset in the words of the command line.

use portero_recipe::{Category, IdScope, Preset, Strength};
use serde::Serialize;
use serde_json::Value;

/// What is told about a preset. Its serialised form is what `--output json` promises.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) category: Option<&'static str>,
    pub(super) about: String,
    /// `body`, `fields`, `token` or `none`.
    pub(super) proves: &'static str,
    /// Whether a time takes part in what is signed.
    pub(super) time_signed: bool,
    /// Whether the provider sends event ids; else they are derived from the bytes.
    pub(super) id_sent: bool,
    /// `source`, `account` or `global`.
    pub(super) id_scope: &'static str,
    pub(super) proven: bool,
    pub(super) evidence: String,
    pub(super) links: Vec<String>,
    pub(super) setup: Vec<String>,
    pub(super) secret: Option<String>,
    pub(super) secret_from_handshake: bool,
    pub(super) public_url_signed: bool,
    pub(super) settings: Vec<SettingFacts>,
    /// The templates of which the first that gives a text is the ordering key.
    pub(super) ordering_key: Vec<String>,
    pub(super) redelivery_s: Option<u64>,
    pub(super) answer_within_ms: Option<u128>,
    pub(super) warnings: Vec<String>,
}

/// A setting that a source may or must have.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SettingFacts {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) about: String,
}

impl Facts {
    /// Of a preset.
    pub(super) fn of(preset: &Preset) -> Self {
        let (recipe, info) = (&preset.recipe, preset.recipe.info());
        let written: Value = serde_json::from_str(preset.json).unwrap_or_default();
        let settings = recipe.settings().iter().map(|(name, setting)| SettingFacts {
            name: name.clone(),
            required: setting.required,
            about: setting.about.clone(),
        });
        Self {
            name: preset.name,
            title: info.title.clone(),
            category: info.category.map(Category::name),
            about: info.about.clone(),
            proves: recipe.strength().name(),
            time_signed: schemes(&written).any(signs_time),
            id_sent: schemes(&written).any(has_id),
            id_scope: scope(recipe.id_scope()),
            proven: !info.unproven,
            evidence: info.evidence.clone(),
            links: info.links.clone(),
            setup: info.setup.clone(),
            secret: recipe.needs_secret().then(|| info.secret_about.clone()),
            secret_from_handshake: recipe.writes_secret(),
            public_url_signed: recipe.signs_url(),
            settings: settings.collect(),
            ordering_key: recipe.entity_templates().to_vec(),
            redelivery_s: info.redelivery.map(|span| span.as_secs()),
            answer_within_ms: info.answer_within.map(|span| span.as_millis()),
            warnings: warnings(recipe.strength(), info.unproven),
        }
    }
}

fn warnings(strength: Strength, unproven: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    match strength {
        Strength::Body => {}
        Strength::Fields => warnings.push(
            "the signature covers only some fields: the rest of the body may have been changed by whoever saw it"
                .to_owned(),
        ),
        Strength::Token => warnings.push(
            "the provider sends a secret and signs nothing: whoever sees one request can send any other".to_owned(),
        ),
        Strength::None => warnings.push("nothing is verified: anybody who knows the URL can send events".to_owned()),
    }
    if unproven {
        warnings.push(
            "no request signed by the provider itself was at hand: try it before you rely on it".to_owned(),
        );
    }
    warnings
}

const fn scope(scope: IdScope) -> &'static str {
    match scope {
        IdScope::Global => "global",
        IdScope::Account => "account",
        IdScope::Source => "source",
    }
}

fn schemes(recipe: &Value) -> impl Iterator<Item = &Value> {
    recipe["schemes"].as_array().into_iter().flatten()
}

/// Whether a scheme signs a time; those in code all do but for what their kind says.
fn signs_time(scheme: &Value) -> bool {
    match scheme["verifier"]["kind"].as_str() {
        Some(_) => true,
        None => scheme.get("time").is_some(),
    }
}

fn has_id(scheme: &Value) -> bool {
    let filled = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    filled(&scheme["id"])
        || scheme["events"].as_array().into_iter().flatten().any(|reading| filled(&reading["id"]))
}
