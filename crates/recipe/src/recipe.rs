//! The compiled recipe and the presets.

use std::sync::Arc;

use crate::Reply;

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
    id_scope: IdScope,
    accepted: Option<Reply>,
    rejected: Option<Reply>,
    kept_headers: Vec<String>,
}

/// A recipe that ships with Portero.
#[derive(Clone, Debug)]
pub struct Preset {
    /// The name, such as `stripe`; also the provider name of its events.
    pub name: &'static str,
    /// The name for people, such as `Stripe`.
    pub title: String,
    /// A sentence or two: what it covers and where the secret is found.
    pub about: String,
    /// The provider's own documentation.
    pub links: Vec<String>,
    /// The recipe.
    pub recipe: Arc<Recipe>,
}

impl Recipe {
    /// The preset of that name.
    #[must_use]
    pub fn preset(name: &str) -> Option<Arc<Self>> {
        Self::presets().find(|preset| preset.name == name).map(|preset| Arc::clone(&preset.recipe))
    }

    /// All presets, in a fixed order.
    pub fn presets() -> impl Iterator<Item = &'static Preset> {
        std::iter::empty()
    }

    /// Reads and validates a recipe of at most [`RECIPE_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`InvalidRecipe`] with the field and the reason.
    pub fn from_json(text: &str) -> Result<Self, InvalidRecipe> {
        let _ = text;
        Err(InvalidRecipe { path: ".".into(), reason: "not yet".into() })
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

    /// Headers worth keeping with the event beyond those that are always kept; lower-case names.
    #[must_use]
    pub fn kept_headers(&self) -> &[String] {
        &self.kept_headers
    }

    /// Whether a handshake of this recipe uses `method` (upper case), so that the edge must let it through to
    /// [`crate::handshake()`]. POST always may.
    #[must_use]
    pub fn answers_method(&self, method: &str) -> bool {
        method == "POST"
    }
}
