//! What a recipe may say about requests that are answered at once.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::algorithm::Algorithm;
use crate::encoding::Encoding;

/// A request answered at once.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Handshake {
    /// How it is recognised; all that is given must hold.
    pub(crate) when: Match,
    /// Whether it is signed as events are, and must verify first.
    pub(crate) verify: bool,
    /// A value that must equal a setting or the secret.
    pub(crate) token: Option<Token>,
    /// A value that must have a harmless shape.
    pub(crate) guard: Option<Guard>,
    /// A MAC of the guarded value under the secret, available as `{computed}`.
    pub(crate) compute: Option<Compute>,
    /// A template whose value becomes the source's secret, while the source waits for one.
    pub(crate) store_secret: Option<String>,
    /// The answer.
    pub(crate) reply: ReplyTemplate,
}

/// How a handshake is recognised.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Match {
    /// The method, in capitals.
    pub(crate) method: String,
    /// Headers that are present.
    #[serde(default)]
    pub(crate) headers: Vec<String>,
    /// Headers that are absent.
    #[serde(default)]
    pub(crate) headers_absent: Vec<String>,
    /// Headers with their values.
    #[serde(default)]
    pub(crate) header_equals: BTreeMap<String, String>,
    /// Whether the body must be empty.
    #[serde(default)]
    pub(crate) body_empty: bool,
    /// Query fields that are present.
    #[serde(default)]
    pub(crate) queries: Vec<String>,
    /// JSON values by path, as text. Needs `verify`.
    #[serde(default)]
    pub(crate) json_equals: BTreeMap<String, String>,
    /// JSON paths at which something is. Needs `verify` or `store_secret`.
    #[serde(default)]
    pub(crate) json_present: Vec<String>,
    /// JSON paths at which nothing is. Needs `verify`.
    #[serde(default)]
    pub(crate) json_absent: Vec<String>,
}

/// A value that the provider was told beforehand.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The value, a template such as `{query:hub.verify_token}`.
    pub(crate) value: String,
    /// The setting that it must equal; an active secret when the source has no such setting.
    pub(crate) setting: Option<String>,
}

/// The shape of a harmless value.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Guard {
    /// The value, a template such as `{query:challenge}`.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Compute {
    /// The algorithm.
    pub(crate) algorithm: Algorithm,
    /// How the result is written.
    pub(crate) encoding: Encoding,
}

/// An answer made from the request.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
