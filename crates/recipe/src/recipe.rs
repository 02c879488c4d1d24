//! The compiled recipe and the presets.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::compile::compile;
use crate::info::{Info, Setting};
use crate::schema::{self, Wrapped};
use crate::scheme::{Check, Handshake, Scheme};
use crate::template::Source;
use crate::{Compressed, Reply, Request, Strength, Verified};

/// Largest recipe text, bytes.
pub const RECIPE_BYTES_MAX: usize = 64 * 1024;

/// Why a text is not a recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct InvalidRecipe {
    /// Where, such as `schemes[0].message`; `.` for the whole.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
}

/// Within what an event id is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IdScope {
    /// Everywhere at that provider.
    Global,
    /// Within the account that the event names.
    Account,
    /// Within the source (the endpoint).
    Source,
}

/// How to verify and read one provider's requests: compiled, validated, immutable.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub(crate) info: Info,
    pub(crate) settings: BTreeMap<String, Setting>,
    pub(crate) id_scope: IdScope,
    pub(crate) accepted: Option<Reply>,
    pub(crate) rejected: Option<Reply>,
    pub(crate) kept_headers: Vec<String>,
    pub(crate) document: Option<Wrapped>,
    pub(crate) compressed: Option<Compressed>,
    pub(crate) secret_prefix: String,
    pub(crate) secret_bytes_min: usize,
    pub(crate) entity_texts: Vec<String>,
    pub(crate) sample: Option<schema::Sample>,
    pub(crate) schemes: Vec<Scheme>,
    pub(crate) handshakes: Vec<Handshake>,
}

/// A recipe that ships with Portero.
#[derive(Clone, Debug)]
pub struct Preset {
    /// The name, such as `stripe`; also the provider name of its events.
    pub name: &'static str,
    /// The recipe's JSON, a model for recipes of one's own.
    pub json: &'static str,
    /// The recipe.
    pub recipe: Arc<Recipe>,
}

/// Name and JSON of each preset, by name.
const SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/presets.rs"));

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let load = |(name, json): &(&'static str, &'static str)| {
        let recipe = Recipe::from_json(json)
            .unwrap_or_else(|error| panic!("the preset {name}, which a test compiles: {error}"));
        Preset { name, json, recipe: Arc::new(recipe) }
    };
    SOURCES.iter().map(load).collect()
});

impl Recipe {
    /// The preset of that name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Arc<Self>> {
        Self::presets().find(|preset| preset.name == name).map(|preset| Arc::clone(&preset.recipe))
    }

    /// All presets, in the order of their names.
    pub fn presets() -> impl Iterator<Item = &'static Preset> {
        PRESETS.iter()
    }

    /// Reads and validates a recipe of at most [`RECIPE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`InvalidRecipe`] with the field and the reason.
    pub fn from_json(text: &str) -> Result<Self, InvalidRecipe> {
        let invalid = |path: String, reason: String| InvalidRecipe { path, reason };
        if text.len() > RECIPE_BYTES_MAX {
            return Err(invalid(".".to_owned(), format!("a recipe has at most {RECIPE_BYTES_MAX} bytes")));
        }
        // The reader would take one for an object whose names are left out.
        if text.trim_start().starts_with('[') {
            return Err(invalid(".".to_owned(), "this is an array, not an object".to_owned()));
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let data = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| invalid(error.path().to_string(), error.inner().to_string()))?;
        deserializer.end().map_err(|error| invalid(".".to_owned(), error.to_string()))?;
        compile(data)
    }

    /// Within what its event ids are unique.
    #[must_use]
    pub const fn id_scope(&self) -> IdScope {
        self.id_scope
    }

    /// The reply that the provider wants on success; `None`: any 2xx will do.
    #[must_use]
    pub const fn accepted_reply(&self) -> Option<&Reply> {
        self.accepted.as_ref()
    }

    /// The reply that the provider wants when verification fails; `None`: any with [`Self::rejected_status`] will do.
    #[must_use]
    pub const fn rejected_reply(&self) -> Option<&Reply> {
        self.rejected.as_ref()
    }

    /// The status that says "verification failed"; 401 unless the provider wants another.
    #[must_use]
    pub fn rejected_status(&self) -> u16 {
        self.rejected.as_ref().map_or(401, |reply| reply.status)
    }

    /// Headers worth keeping with the event beyond those that are always kept; lower-case names, never credentials.
    #[must_use]
    pub fn kept_headers(&self) -> &[String] {
        &self.kept_headers
    }

    /// Whether a handshake of this recipe uses `method` (upper case), so that the edge must let it through to
    /// [`crate::handshake()`]. POST always may.
    #[must_use]
    pub fn answers_method(&self, method: &str) -> bool {
        method == "POST" || self.handshakes.iter().any(|handshake| handshake.method == method)
    }

    /// How much the weakest of its schemes proves: below [`Strength::Body`] an operator should be warned.
    #[must_use]
    pub fn strength(&self) -> Strength {
        self.schemes.iter().map(|scheme| scheme.strength).min().unwrap_or(Strength::None)
    }

    /// What is signed when a request has a `Content-Encoding`; `None`: such requests are refused.
    #[must_use]
    pub const fn compressed(&self) -> Option<Compressed> {
        self.compressed
    }

    /// Whether the source's public URL takes part in what is signed.
    #[must_use]
    pub fn signs_url(&self) -> bool {
        self.schemes.iter().any(|scheme| match &scheme.check {
            Check::Nothing => false,
            Check::Proof(proof) => proof.message.as_ref().is_some_and(|message| message.uses(&Source::Url)),
            Check::Code(verifier, _) => verifier.signs_url(),
        })
    }

    /// Whether one of its handshakes brings the source's secret.
    #[must_use]
    pub fn writes_secret(&self) -> bool {
        self.handshakes.iter().any(|handshake| handshake.store_secret.is_some())
    }

    /// Whether verifying may need a secret at all; without one every request is refused then.
    #[must_use]
    pub fn needs_secret(&self) -> bool {
        self.schemes.iter().any(|scheme| !scheme.key_forms().is_empty())
    }

    /// Whether its secrets are public keys, whose private halves only the provider has: then none can be made here.
    #[must_use]
    pub fn only_public_keys(&self) -> bool {
        let mut with_keys = self.schemes.iter().filter(|scheme| !scheme.key_forms().is_empty()).peekable();
        with_keys.peek().is_some() && with_keys.all(Scheme::only_public)
    }

    /// Least key material of a secret that a person gives, bytes after decoding.
    #[must_use]
    pub const fn secret_bytes_min(&self) -> usize {
        self.secret_bytes_min
    }

    /// The templates of which the first that gives a text is the entity, as written.
    #[must_use]
    pub fn entity_templates(&self) -> &[String] {
        &self.entity_texts
    }

    /// How much a verification proves.
    #[must_use]
    pub fn strength_of(&self, verified: &Verified) -> Strength {
        self.schemes.get(verified.scheme()).map_or(Strength::None, |scheme| scheme.strength)
    }

    /// Whether somebody who has seen a request can send it again as a new event: its body is signed, but neither a time nor
    /// the event's id is. An operator should be told.
    #[must_use]
    pub fn is_replayable(&self) -> bool {
        self.schemes.iter().filter(|scheme| scheme.strength == Strength::Body).any(Scheme::is_replayable)
    }

    /// The scheme that applies to a request, by what is present in it, and its number.
    pub(crate) fn scheme_for(&self, request: &Request<'_>) -> Option<(usize, &Scheme)> {
        self.schemes.iter().enumerate().find(|(_, scheme)| {
            let header = scheme.when_header.as_ref();
            let query = scheme.when_query.as_ref();
            header.is_none_or(|name| request.header_values(name).next().is_some())
                && query.is_none_or(|name| request.has_query(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a preset should say and does not.
    fn unsaid(name: &str, json: &str) -> Vec<String> {
        let recipe = Recipe::from_json(json).expect("compiles");
        let info = recipe.info();
        let sentence = |text: &str| text.ends_with('.');
        let says = [
            ("title", !info.title.is_empty()),
            ("about", sentence(&info.about)),
            ("links", name == "custom" || !info.links.is_empty()),
            ("links", info.links.iter().all(|link| link.starts_with("https://"))),
            ("category", info.category.is_some()),
            ("evidence", sentence(&info.evidence)),
            ("setup", !info.setup.is_empty()),
            ("secret_about", !recipe.needs_secret() || sentence(&info.secret_about)),
            ("sample", recipe.sample.is_some()),
        ];
        says.iter().filter(|(_, said)| !said).map(|(field, _)| format!("{name}: {field}")).collect()
    }

    #[test]
    fn every_preset_compiles_and_says_what_it_is() {
        let mistakes: Vec<_> = (SOURCES.iter())
            .filter_map(|(name, json)| Recipe::from_json(json).err().map(|error| format!("{name}: {error}")))
            .collect();
        assert!(mistakes.is_empty(), "{mistakes:#?}");
        let silent: Vec<_> = SOURCES.iter().flat_map(|(name, json)| unsaid(name, json)).collect();
        assert!(silent.is_empty(), "{silent:#?}");
        assert!(Recipe::preset("nobody").is_none());
    }
}
