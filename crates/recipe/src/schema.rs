//! The recipe language: what a recipe's JSON may say. `compile` gives it meaning and enforces its rules.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::IdScope;
use crate::algorithm::Algorithm;
use crate::encoding::Encoding;
use crate::window::Unit;

/// A whole recipe.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// Version of the language: 1.
    pub(crate) version: u32,
    /// Name for people.
    #[serde(default)]
    pub(crate) title: String,
    /// What it covers, where the secret is found.
    #[serde(default)]
    pub(crate) about: String,
    /// The provider's documentation.
    #[serde(default)]
    pub(crate) links: Vec<String>,
    /// Within what ids are unique.
    #[serde(default = "source_scope")]
    pub(crate) id_scope: IdScope,
    /// The weakest proof that the operator accepts; stated whenever a scheme proves less than the whole body.
    #[serde(default)]
    pub(crate) weakest: Strength,
    /// The form field that holds the JSON when the body is form-encoded.
    pub(crate) form_json: Option<String>,
    /// Headers to keep with the event.
    #[serde(default)]
    pub(crate) keep_headers: Vec<String>,
    /// What generated secrets start with.
    #[serde(default)]
    pub(crate) secret_prefix: String,
    /// No sample signed by the vendor has been seen.
    #[serde(default)]
    pub(crate) unproven: bool,
    /// Ways in which the provider signs; the first whose `when` holds is the one.
    pub(crate) schemes: Vec<Scheme>,
    /// Requests answered at once.
    #[serde(default)]
    pub(crate) handshakes: Vec<Handshake>,
    /// Reply to an accepted event.
    pub(crate) accepted: Option<StaticReply>,
    /// Reply to a refused request.
    pub(crate) rejected: Option<StaticReply>,
}

const fn source_scope() -> IdScope {
    IdScope::Source
}

/// How much a successful verification proves, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
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

/// One way of signing, and where events made so are read from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scheme {
    /// When this scheme applies; only the last may leave it out.
    pub(crate) when: Option<Presence>,
    /// Where the signature is.
    pub(crate) signature: Option<Signature>,
    /// The algorithm, where there is one.
    pub(crate) algorithm: Option<Algorithm>,
    /// The algorithm by tag, for the `standard` list.
    #[serde(default)]
    pub(crate) algorithms: BTreeMap<String, Algorithm>,
    /// How signatures are written; hexadecimal unless said.
    pub(crate) encoding: Option<Encoding>,
    /// How secrets become keys; each form is tried.
    #[serde(default)]
    pub(crate) keys: Vec<KeyForm>,
    /// What is signed.
    pub(crate) message: Option<String>,
    /// The signed time.
    pub(crate) time: Option<Time>,
    /// Paths to a batch's elements; the first that leads to a list is the one.
    #[serde(default)]
    pub(crate) items: Vec<String>,
    /// Event id: the first template that gives a text.
    #[serde(default)]
    pub(crate) id: Vec<String>,
    /// Event type.
    #[serde(default, rename = "type")]
    pub(crate) event_type: Vec<String>,
    /// Entity.
    #[serde(default)]
    pub(crate) entity: Vec<String>,
    /// Account.
    #[serde(default)]
    pub(crate) account: Vec<String>,
}

/// What must be present for a scheme to apply.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Presence {
    /// A header.
    pub(crate) header: Option<String>,
    /// A query field.
    pub(crate) query: Option<String>,
}

/// Where the signature is and in what form. Exactly one of the four places is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signature {
    /// In this header.
    pub(crate) header: Option<String>,
    /// In headers of this name followed by 1, 2, 3 …
    pub(crate) numbered: Option<String>,
    /// In each item of the batch, at this path.
    pub(crate) item: Option<String>,
    /// In the JSON body, at this path.
    pub(crate) json: Option<String>,
    /// The form of the text.
    #[serde(default)]
    pub(crate) list: ListForm,
    /// `plain`: what stands in front of a signature.
    #[serde(default)]
    pub(crate) prefix: String,
    /// `plain`, `pairs`: what separates several.
    pub(crate) separator: Option<char>,
    /// `pairs`: the key of signatures.
    pub(crate) tag: Option<String>,
    /// `pairs`: the key of the time.
    pub(crate) time: Option<String>,
}

/// The form of a signature text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListForm {
    /// Signatures with a prefix.
    #[default]
    Plain,
    /// `key=value` pairs.
    Pairs,
    /// Standard Webhooks.
    Standard,
}

/// How a secret's text becomes a key. Never guessed: `whsec_` is text at one provider and base64 at the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyForm {
    /// The text itself.
    Text,
    /// Hexadecimal.
    Hex,
    /// Base64.
    Base64,
    /// `whsec_` (shared) or `whpk_` (public) and base64, perhaps with `v1,` or `v1a,` in front; bare base64 is shared.
    Whsec,
}

/// The signed time and how far it may be off.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Time {
    /// Where it is; left out: in the signature list.
    pub(crate) source: Option<String>,
    /// Its unit.
    pub(crate) unit: Unit,
    /// Seconds that it may lie back.
    #[serde(default = "five_minutes")]
    pub(crate) past_s: u32,
    /// Seconds that it may lie ahead; as far as back unless said.
    pub(crate) future_s: Option<u32>,
}

const fn five_minutes() -> u32 {
    300
}

/// A request answered at once.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Handshake {
    /// How it is recognised; all that is given must hold.
    pub(crate) when: Match,
    /// Whether it is signed as events are, and must verify first.
    pub(crate) verify: bool,
    /// A value that must have a harmless shape.
    pub(crate) guard: Option<Guard>,
    /// A MAC of the guarded value under the secret, available as `{computed}`.
    pub(crate) compute: Option<Compute>,
    /// The answer.
    pub(crate) reply: ReplyTemplate,
}

/// How a handshake is recognised.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Match {
    /// The method.
    pub(crate) method: String,
    /// Headers that are present.
    #[serde(default)]
    pub(crate) headers: Vec<String>,
    /// Headers with their values.
    #[serde(default)]
    pub(crate) header_equals: BTreeMap<String, String>,
    /// Query fields that are present.
    #[serde(default)]
    pub(crate) queries: Vec<String>,
    /// JSON values by path, as text. Needs `verify`.
    #[serde(default)]
    pub(crate) json_equals: BTreeMap<String, String>,
    /// JSON paths at which nothing is. Needs `verify`.
    #[serde(default)]
    pub(crate) json_absent: Vec<String>,
}

/// The shape of a harmless value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guard {
    /// The value.
    pub(crate) value: String,
    /// The characters that it may hold, such as `A-Za-z0-9_-`.
    pub(crate) characters: String,
    /// Least length, bytes.
    pub(crate) length_min: usize,
    /// Greatest length, bytes.
    pub(crate) length_max: usize,
}

/// A computed answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Compute {
    /// The algorithm.
    pub(crate) algorithm: Algorithm,
    /// How the result is written.
    pub(crate) encoding: Encoding,
}

/// An answer made from the request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyTemplate {
    /// Status code.
    #[serde(default = "ok")]
    pub(crate) status: u16,
    /// Headers, values are templates.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// A text body, sent as `text/plain`.
    pub(crate) text: Option<String>,
    /// A JSON body, its strings are templates.
    pub(crate) json: Option<serde_json::Value>,
}

const fn ok() -> u16 {
    200
}

/// A fixed answer.
#[derive(Debug, Deserialize)]
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
