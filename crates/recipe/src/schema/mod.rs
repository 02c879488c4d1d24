//! The recipe language: what a recipe's JSON may say. `compile` gives it meaning and enforces its rules.

mod handshake;
#[cfg(test)]
mod json_schema;
mod one_or_many;
mod scheme;

use std::collections::BTreeMap;

use serde::Deserialize;

pub(crate) use handshake::{Guard, Handshake, Match, ReplyTemplate, Token};
pub(crate) use one_or_many::OneOrMany;
pub(crate) use scheme::{KeyForm, ListForm, NoId, Reading, Scheme, Signature, TimeCheck, UrlForm};

use crate::{Category, Compressed, IdScope};

/// A whole recipe.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// Version of the language: 1.
    pub(crate) version: u32,
    /// Name for people.
    #[serde(default)]
    pub(crate) title: String,
    /// What it covers, in a sentence or two.
    #[serde(default)]
    pub(crate) about: String,
    /// The provider's documentation.
    #[serde(default)]
    pub(crate) links: Vec<String>,
    /// Under what it is listed.
    pub(crate) category: Option<Category>,
    /// Where the facts come from, one sentence.
    #[serde(default)]
    pub(crate) evidence: String,
    /// No sample signed by the vendor has been seen.
    #[serde(default)]
    pub(crate) unproven: bool,
    /// What to paste where, step by step, in the provider's own words for its settings.
    #[serde(default)]
    pub(crate) setup: Vec<String>,
    /// The longest time after which the provider sends an event again, seconds.
    pub(crate) redelivery_s: Option<u32>,
    /// How soon the provider wants an answer, milliseconds.
    pub(crate) answer_within_ms: Option<u32>,
    /// What a source must say beside its secret.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, Setting>,
    /// Within what ids are unique.
    #[serde(default = "source_scope")]
    pub(crate) id_scope: IdScope,
    /// The weakest proof that the operator accepts; stated whenever a scheme proves less than the whole body.
    #[serde(default)]
    pub(crate) weakest: Strength,
    /// Where the JSON is when the body is not JSON itself.
    pub(crate) document: Option<Wrapped>,
    /// What is signed when the request has a `Content-Encoding`.
    pub(crate) compressed: Option<Compressed>,
    /// Headers to keep with the event.
    #[serde(default)]
    pub(crate) keep_headers: Vec<String>,
    /// Where the secret is found.
    #[serde(default)]
    pub(crate) secret_about: String,
    /// What generated secrets start with.
    #[serde(default)]
    pub(crate) secret_prefix: String,
    /// Least key material of a secret, bytes after decoding, where the provider's own are shorter than 16: 8 to 64.
    pub(crate) secret_bytes_min: Option<u32>,
    /// Ways in which the provider signs; the first whose `when` holds is the one.
    pub(crate) schemes: Vec<Scheme>,
    /// Requests answered at once.
    #[serde(default)]
    pub(crate) handshakes: Vec<Handshake>,
    /// Reply to an accepted event.
    pub(crate) accepted: Option<StaticReply>,
    /// Reply to a refused request.
    pub(crate) rejected: Option<StaticReply>,
    /// An event to send for a try.
    pub(crate) sample: Option<Sample>,
}

const fn source_scope() -> IdScope {
    IdScope::Source
}

/// How much a successful verification proves, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Nothing.
    None,
    /// The sender knows a token; anybody who has seen one request can send any body.
    Token,
    /// The sender signed some fields; the rest of the body may be changed.
    Fields,
    /// The sender signed the whole body.
    #[default]
    Body,
}

/// A setting of a source.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    /// What it is and where it is found.
    pub(crate) about: String,
    /// Whether requests are refused without it.
    #[serde(default)]
    pub(crate) required: bool,
    /// The characters that it may hold, such as `A-Za-z0-9_-`; any printable ASCII unless said.
    pub(crate) characters: Option<String>,
    /// What it begins with.
    #[serde(default)]
    pub(crate) prefix: String,
    /// The values that it may have; any unless said.
    #[serde(default)]
    pub(crate) one_of: Vec<String>,
    /// Whether nobody may read it who does not know it: it is stored sealed and never shown.
    #[serde(default)]
    pub(crate) secret: bool,
}

/// Where the JSON is when the body is not JSON itself.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Wrapped {
    /// In this form field; the whole body unless said.
    pub(crate) form: Option<String>,
    /// Whether it is written in base64.
    #[serde(default)]
    pub(crate) base64: bool,
    /// Whether it is XML, which is read as if it were JSON.
    #[serde(default)]
    pub(crate) xml: bool,
}

/// A fixed answer.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct StaticReply {
    /// Status code.
    pub(crate) status: u16,
    /// Content type; `text/plain` when there is a body and none is said.
    pub(crate) content_type: Option<String>,
    /// The body.
    #[serde(default)]
    pub(crate) body: String,
}

/// An event to send for a try. `$id`, `$entity` and `$now` in its strings are filled in.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Sample {
    /// The event's type, as it will be found.
    #[serde(rename = "type")]
    pub(crate) event_type: String,
    /// The entity when the caller names none.
    pub(crate) entity: String,
    /// Headers beside those of the signature.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The query, without `?`.
    #[serde(default)]
    pub(crate) query: String,
    /// The body as JSON.
    pub(crate) json: Option<serde_json::Value>,
    /// The body as a form.
    pub(crate) form: Option<BTreeMap<String, String>>,
    /// The text that the recipe's `document` wraps.
    pub(crate) wrapped: Option<String>,
}

/// The templates of the entity, as written, each once.
pub(crate) fn entity_texts(schemes: &[Scheme]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for scheme in schemes {
        for text in scheme.entity.iter().chain(scheme.events.iter().flat_map(|reading| &reading.entity)) {
            if !texts.contains(text) {
                texts.push(text.clone());
            }
        }
    }
    texts
}
