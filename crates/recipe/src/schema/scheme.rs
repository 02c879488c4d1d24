//! What a recipe may say about one way of signing, and about where its events are read from.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::OneOrMany;
use crate::algorithm::Algorithm;
use crate::encoding::Encoding;
use crate::verifier::Verifier;
use crate::window::Unit;

/// One way of signing, and where events made so are read from.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Code for what data cannot say, instead of signature and algorithm.
    pub(crate) verifier: Option<Verifier>,
    /// How signatures are written; hexadecimal unless said.
    pub(crate) encoding: Option<Encoding>,
    /// How secrets become keys; each form is tried.
    #[serde(default)]
    pub(crate) keys: Vec<KeyForm>,
    /// What is signed, a template such as `{ts}.{body}`.
    pub(crate) message: Option<String>,
    /// The forms of the public URL that are tried.
    #[serde(default)]
    pub(crate) urls: Vec<UrlForm>,
    /// A digest of the body that the signature covers instead of the body.
    pub(crate) body_digest: Option<BodyDigest>,
    /// The signed time.
    pub(crate) time: Option<Time>,
    /// Paths to a batch's elements; the first that leads to a list is the one.
    #[serde(default)]
    pub(crate) items: Vec<String>,
    /// Event id, such as `{json:id}`: the first template that gives a text. Where none does, the digest of the event's bytes.
    #[serde(default)]
    pub(crate) id: Vec<String>,
    /// Event type, such as `{json:type}`: the first template that gives a text.
    #[serde(default, rename = "type")]
    pub(crate) event_type: Vec<String>,
    /// What the event is about, such as `{json:data.id}`: the default ordering key.
    #[serde(default)]
    pub(crate) entity: Vec<String>,
    /// The account that the event belongs to, where the provider serves several by one URL.
    #[serde(default)]
    pub(crate) account: Vec<String>,
    /// What an event without an id gets.
    #[serde(default)]
    pub(crate) no_id: NoId,
    /// The same by the body's shape, instead of the six before.
    #[serde(default)]
    pub(crate) events: Vec<Reading>,
}

/// Where the events of bodies of one shape are read from.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Reading {
    /// A path that must be in the JSON; only the last may leave it out.
    pub(crate) when: Option<String>,
    /// Paths to a batch's elements; the first that leads to a list is the one.
    #[serde(default)]
    pub(crate) items: Vec<String>,
    /// Event id: the first template that gives a text.
    #[serde(default)]
    pub(crate) id: Vec<String>,
    /// Event type: the first template that gives a text.
    #[serde(default, rename = "type")]
    pub(crate) event_type: Vec<String>,
    /// What the event is about: the first template that gives a text.
    #[serde(default)]
    pub(crate) entity: Vec<String>,
    /// The account that the event belongs to: the first template that gives a text.
    #[serde(default)]
    pub(crate) account: Vec<String>,
    /// What an event without an id gets.
    #[serde(default)]
    pub(crate) no_id: NoId,
}

/// What an event gets whose provider sends no id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum NoId {
    /// The digest of its bytes: what comes again with the same bytes is the same event.
    #[default]
    Digest,
    /// An id of its own each time: two events may well have the same bytes, so none may be dropped for that.
    Distinct,
}

/// What must be present for a scheme to apply.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Presence {
    /// A header.
    pub(crate) header: Option<String>,
    /// A query field.
    pub(crate) query: Option<String>,
}

/// Where the signature is and in what form. Exactly one of the six places is given.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Signature {
    /// In this header, or in those of these headers that are there.
    pub(crate) header: Option<OneOrMany>,
    /// In headers of this name followed by 1, 2, 3 …
    pub(crate) numbered: Option<String>,
    /// In this query field.
    pub(crate) query: Option<String>,
    /// In this field of a form-encoded body.
    pub(crate) form: Option<String>,
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
    /// `plain`, `pairs`, `positional`: what separates several.
    pub(crate) separator: Option<char>,
    /// `pairs`: the key of signatures.
    pub(crate) tag: Option<String>,
    /// `pairs`: the key of the time.
    pub(crate) time: Option<String>,
}

/// The form of a signature text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum ListForm {
    /// Signatures with a prefix.
    #[default]
    Plain,
    /// `key=value` pairs.
    Pairs,
    /// Standard Webhooks.
    Standard,
    /// `name|signature` between `&`.
    Named,
    /// The time, then signatures.
    Positional,
}

/// How a secret's text becomes a key. Never guessed: `whsec_` is text at one provider and base64 at the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// `name|text`: the SHA-1 digest of the text, known by the name.
    NamedSha1,
    /// A public key or certificate as PEM.
    Pem,
    /// A public key (`SubjectPublicKeyInfo`) as base64.
    Spki,
}

/// A form of the public URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum UrlForm {
    /// As configured.
    AsConfigured,
    /// With the scheme's own port.
    WithPort,
    /// Without the scheme's own port.
    WithoutPort,
    /// With some escapes decoded, as `HubSpot` does.
    Hubspot,
}

/// A digest of the body.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct BodyDigest {
    /// Where it is, a template such as `{query:bodySHA256}`.
    pub(crate) of: String,
    /// How it is written.
    pub(crate) encoding: Encoding,
}

/// The signed time and how far it may be off.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Time {
    /// Where it is, a template such as `{header:X-Timestamp}`; left out: in the signature list.
    pub(crate) source: Option<String>,
    /// Its unit.
    pub(crate) unit: Unit,
    /// Seconds that it may lie back.
    #[serde(default = "five_minutes")]
    pub(crate) past_s: u32,
    /// Seconds that it may lie ahead; as far as back unless said.
    pub(crate) future_s: Option<u32>,
    /// What happens outside the window.
    #[serde(default)]
    pub(crate) check: TimeCheck,
}

/// What happens to a request whose signed time lies outside the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimeCheck {
    /// It is refused.
    #[default]
    Reject,
    /// It is accepted: the provider may keep the first time when it sends again.
    Record,
}

const fn five_minutes() -> u32 {
    300
}
