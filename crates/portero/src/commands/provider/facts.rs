//! A preset in the words of the command line.

use portero_recipe::told::IdOrigin;
use portero_recipe::{Category, IdScope, Preset, Strength, told};
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
    /// What each way of signing proves, weakest first, in words.
    pub(super) proves_each: Vec<&'static str>,
    /// Whether a time takes part in what is signed.
    pub(super) time_signed: bool,
    /// How far it may lie off, in words.
    pub(super) time: String,
    /// Whether the provider sends every event's id.
    pub(super) id_sent: bool,
    /// Where ids come from: `sent`, `parts`, `bytes` or `none`.
    pub(super) id_from: Vec<&'static str>,
    #[serde(skip)]
    pub(super) id_origins: Vec<IdOrigin>,
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
    pub(super) answer_within_ms: Option<u64>,
    pub(super) warnings: Vec<String>,
}

/// A setting that a source may or must have.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SettingFacts {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) secret: bool,
    pub(super) about: String,
}

impl Facts {
    /// Of a preset.
    pub(super) fn of(preset: &Preset) -> Self {
        let (recipe, info) = (&preset.recipe, preset.recipe.info());
        let written: Value = serde_json::from_str(preset.json).unwrap_or_default();
        let schemes = written["schemes"].as_array().map_or(&[][..], Vec::as_slice);
        let id_origins = told::id_origins(schemes);
        let mut weakest_first: Vec<&Value> = schemes.iter().collect();
        weakest_first.sort_by_key(|scheme| told::strength(scheme));
        let mut proves_each: Vec<_> = weakest_first.into_iter().map(told::proves).collect();
        proves_each.dedup();
        let settings = recipe.settings().iter().map(|(name, setting)| SettingFacts {
            name: name.clone(),
            required: setting.required,
            secret: setting.secret,
            about: setting.about.clone(),
        });
        Self {
            name: preset.name,
            title: info.title.clone(),
            category: info.category.map(Category::name),
            about: info.about.clone(),
            proves: recipe.strength().name(),
            proves_each,
            time_signed: schemes.iter().any(|scheme| told::window(scheme) != "none"),
            time: told::of_each(schemes, told::time),
            id_sent: id_origins == [IdOrigin::Sent],
            id_from: id_origins.iter().map(|origin| origin.name()).collect(),
            id_origins,
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
            answer_within_ms: info.answer_within.and_then(|span| span.as_millis().try_into().ok()),
            warnings: warnings(schemes, info.unproven),
        }
    }
}

fn warnings(schemes: &[Value], unproven: bool) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for scheme in schemes {
        let warning = told::gap(scheme).or(match told::strength(scheme) {
            Strength::Body => None,
            Strength::Fields => Some(
                "the signature covers only some fields: the rest of the body may have been changed by whoever saw it",
            ),
            Strength::Token => {
                Some("the provider sends a secret and signs nothing: whoever sees one request can send any other")
            }
            Strength::None => Some("nothing is verified: anybody who knows the URL can send events"),
        });
        warnings.extend(warning.map(str::to_owned).filter(|warning| !warnings.contains(warning)));
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
