//! What a recipe says for people, and what it asks of a source.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Recipe, Strength};

/// Longest value of a setting, bytes.
pub const SETTING_BYTES_MAX: usize = 1024;
/// Shortest value of a secret setting, bytes. Providers let people choose them, so no more is asked.
pub const SECRET_SETTING_BYTES_MIN: usize = 8;

/// What a recipe says for people.
#[derive(Clone, Debug, Default)]
pub struct Info {
    /// The name, such as `Stripe`.
    pub title: String,
    /// A sentence or two: what it covers.
    pub about: String,
    /// The provider's own documentation.
    pub links: Vec<String>,
    /// Under what it is listed.
    pub category: Option<Category>,
    /// Where the facts come from, one sentence.
    pub evidence: String,
    /// Whether no request signed by the vendor was at hand when the recipe was written.
    pub unproven: bool,
    /// What to paste where, step by step, in the provider's own words for its settings.
    pub setup: Vec<String>,
    /// Where the secret is found.
    pub secret_about: String,
    /// The longest time after which the provider sends an event again, where known.
    pub redelivery: Option<Duration>,
    /// How soon the provider wants an answer, where known.
    pub answer_within: Option<Duration>,
}

/// Under what a preset is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Payments and billing.
    Payments,
    /// Developer platforms and identity.
    Developer,
    /// Messaging, mail, telephony.
    Messaging,
    /// Commerce, customers, documents.
    Commerce,
    /// Clouds and general specifications.
    Cloud,
}

impl Category {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 5] =
        [Self::Payments, Self::Developer, Self::Messaging, Self::Commerce, Self::Cloud];

    /// The word in recipes and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Payments => "payments",
            Self::Developer => "developer",
            Self::Messaging => "messaging",
            Self::Commerce => "commerce",
            Self::Cloud => "cloud",
        }
    }

    /// The words for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Payments => "Payments and billing",
            Self::Developer => "Developer platforms and identity",
            Self::Messaging => "Messaging, mail, telephony",
            Self::Commerce => "Commerce, customers, documents",
            Self::Cloud => "Clouds and general specifications",
        }
    }
}

impl Strength {
    /// The word in recipes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Token => "token",
            Self::Fields => "fields",
            Self::Body => "body",
        }
    }

    /// What it means, as a clause.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::None => "nothing is verified",
            Self::Token => "a token does not cover the body",
            Self::Fields => "the signature covers only parts of the body",
            Self::Body => "the signature covers the body",
        }
    }
}

/// What is signed when a request has a `Content-Encoding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Compressed {
    /// The bytes as sent.
    AsSent,
    /// The bytes after the encoding was undone.
    Inflated,
}

/// What a source says beside its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is and where it is found.
    pub about: String,
    /// Whether requests are refused without it.
    pub required: bool,
    /// The values that it may have; empty: any.
    pub one_of: Vec<String>,
    /// Whether it is a secret: it is stored sealed and never shown.
    pub secret: bool,
    /// What it begins with.
    pub(crate) prefix: String,
    /// The bytes that it may hold.
    pub(crate) characters: Vec<u8>,
}

/// Why a source's settings do not fit its recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("settings.{name}: {reason}")]
pub struct InvalidSetting {
    /// Which.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Recipe {
    /// What it says for people.
    #[must_use]
    pub const fn info(&self) -> &Info {
        &self.info
    }

    /// What a source may or must say beside its secret, by name.
    #[must_use]
    pub const fn settings(&self) -> &BTreeMap<String, Setting> {
        &self.settings
    }

    /// Checks a source's settings. One that is required may still be missing, since some are known only after the URL was
    /// registered: see [`Self::missing_settings`].
    ///
    /// # Errors
    /// [`InvalidSetting`] for a name that the recipe does not know, or a value that is empty, longer than
    /// [`SETTING_BYTES_MAX`] or has characters that it must not have; for a secret one also when it is shorter than
    /// [`SECRET_SETTING_BYTES_MIN`] or has a space at an end. It never holds a value.
    pub fn check_settings(&self, settings: &BTreeMap<String, String>) -> Result<(), InvalidSetting> {
        for (name, value) in settings {
            let invalid = |reason: String| Err(InvalidSetting { name: name.clone(), reason });
            let Some(setting) = self.settings.get(name) else {
                let known: Vec<_> = self.settings.keys().map(String::as_str).collect();
                return invalid(match known.as_slice() {
                    [] => "this recipe has no settings".to_owned(),
                    known => format!("this recipe has no such setting; it has: {}", known.join(", ")),
                });
            };
            if value.is_empty() || value.len() > SETTING_BYTES_MAX {
                return invalid(format!("it has 1 to {SETTING_BYTES_MAX} bytes"));
            }
            if !setting.one_of.is_empty() && !setting.one_of.contains(value) {
                return invalid(format!("it is one of: {}", setting.one_of.join(", ")));
            }
            if !value.starts_with(&setting.prefix) {
                return invalid(format!("it begins with '{}': {}", setting.prefix, setting.about));
            }
            if !value.bytes().all(|byte| setting.characters.contains(&byte)) {
                return invalid(format!("it holds a character that it never has: {}", setting.about));
            }
            if setting.secret && value.len() < SECRET_SETTING_BYTES_MIN {
                return invalid(format!(
                    "it is a secret, so it has at least {SECRET_SETTING_BYTES_MIN} bytes: choose a longer one"
                ));
            }
            if setting.secret && value.trim() != value {
                return invalid(
                    "it has a space at its beginning or end: copy it again, and nothing but it".to_owned(),
                );
            }
        }
        Ok(())
    }

    /// Whether this is a setting that is kept as a secret.
    #[must_use]
    pub fn is_secret_setting(&self, name: &str) -> bool {
        self.settings.get(name).is_some_and(|setting| setting.secret)
    }

    /// The names of required settings that are not given: without them every request is refused.
    pub fn missing_settings<'a>(&'a self, given: &BTreeMap<String, String>) -> Vec<&'a str> {
        (self.settings.iter())
            .filter(|(name, setting)| setting.required && !given.contains_key(*name))
            .map(|(name, _)| name.as_str())
            .collect()
    }
}
