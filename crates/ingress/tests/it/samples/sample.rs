//! The samples, and what is expected of each.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_recipe::{Extracted, Preset, Recipe, Request, Secret, Strength, Verified, extract, verify};
use portero_types::{SecretNo, Timestamp};
use serde_json::Value;

use crate::support::{Endpoint, Message, NOW};

const FILES: [&str; 4] = [
    include_str!("../../../../../tests/cases/signed-samples.jsonl"),
    include_str!("../../../../../tests/cases/samples-payments.jsonl"),
    include_str!("../../../../../tests/cases/samples-developer.jsonl"),
    include_str!("../../../../../tests/cases/samples-messaging.jsonl"),
];

/// One request, and the source that it is sent to.
pub(super) struct Sample {
    pub(super) preset: &'static Preset,
    pub(super) name: String,
    /// The name of its tenant and of its source, which nothing else uses.
    pub(super) source: String,
    pub(super) method: String,
    pub(super) query: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) url: String,
    pub(super) settings: BTreeMap<String, String>,
    /// What the provider's own server would give when it is asked.
    pub(super) fetched: Option<String>,
    /// Empty: the source has none.
    pub(super) secret: String,
    pub(super) expect: Value,
}

/// All samples.
pub(super) fn samples() -> Vec<Sample> {
    let lines = FILES.iter().flat_map(|file| file.lines()).filter(|line| !line.trim().is_empty());
    lines.enumerate().map(|(n, line)| sample(n, line)).collect()
}

fn sample(n: usize, line: &str) -> Sample {
    let sample: Value = serde_json::from_str(line).expect("a sample is JSON");
    let text = |name: &str| sample[name].as_str().unwrap_or_default().to_owned();
    let texts = |name: &str| -> Vec<(String, String)> {
        let pairs = sample[name].as_object().into_iter().flatten();
        pairs.map(|(k, v)| (k.clone(), v.as_str().expect("a text").to_owned())).collect()
    };
    let provider = text("provider");
    let preset = Recipe::presets()
        .find(|preset| preset.name == provider)
        .unwrap_or_else(|| panic!("there is no preset '{provider}'"));
    let mut settings: BTreeMap<String, String> = texts("settings").into_iter().collect();
    if let Some(id) = sample["expect"]["webhook_id"].as_str() {
        settings.insert("webhook_id".to_owned(), id.to_owned());
    }
    if provider == "aws-sns" {
        let topic = "arn:aws:sns:us-east-1:123456789012:T".to_owned();
        settings.entry("topic_arn".to_owned()).or_insert(topic);
    }
    let needs_secret = preset.recipe.needs_secret();
    let fetched = sample["fetched"].as_str().map(str::to_owned);
    let (url, query) = match text("url").split_once('?') {
        Some((url, query)) => (url.to_owned(), query.to_owned()),
        None => (text("url"), String::new()),
    };
    Sample {
        name: format!("{provider}/{}", text("case")),
        source: format!("s{n}"),
        method: text("method"),
        query,
        headers: texts("headers"),
        body: STANDARD.decode(text("body_base64")).expect("base64"),
        url,
        settings,
        fetched: fetched.or_else(|| (!needs_secret).then(|| text("secret"))),
        secret: if needs_secret { text("secret") } else { String::new() },
        expect: sample["expect"].clone(),
        preset,
    }
}

/// What the other endpoint of a sample adds to its name.
const OTHER: &str = "-other";

impl Sample {
    /// Where it is sent to.
    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint {
            waits: self.secret.is_empty() && self.preset.recipe.writes_secret(),
            settings: self.settings.clone(),
            ..Endpoint::new(self.preset.name, &self.secret)
                .of(&self.source)
                .named(&self.source)
                .url(&self.url)
        }
    }

    /// The same under another secret, where the recipe knows one of this form.
    pub(super) fn other_endpoint(&self) -> Option<Endpoint> {
        let secret = self.another_secret()?;
        let name = format!("{}{OTHER}", self.source);
        Some(Endpoint { secrets: vec![secret], waits: false, ..self.endpoint() }.named(&name))
    }

    /// Another secret in a form that the recipe knows.
    fn another_secret(&self) -> Option<String> {
        let name = self.secret.split_once('|').map_or("", |(name, _)| name);
        let rsa = include_str!("../../../../recipe/tests/it/keys/rsa.public.pem");
        let p256 = include_str!("../../../../recipe/tests/it/keys/p256.public.pem");
        let spki = p256.lines().filter(|line| !line.starts_with("---")).collect();
        let ed25519 = include_str!("../../../../recipe/tests/it/keys/ed25519.public.pem");
        let candidates = [
            format!("{name}|another-private-key-0"),
            "user:another password".to_owned(),
            "whsec_YW5vdGhlciBzZWNyZXQgYWx0b2dldGhlcg==".to_owned(),
            // RFC 8032, section 7.1, test 1.
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".to_owned(),
            rsa.to_owned(),
            p256.to_owned(),
            ed25519.to_owned(),
            spki,
        ];
        candidates.into_iter().find(|text| portero_recipe::clean_secret(&self.preset.recipe, text).is_ok())
    }

    /// The sample as a message, with another body perhaps. A host that it names is where it was sent to, not we.
    pub(super) fn message(&self, body: &[u8]) -> Message {
        let headers = self.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        Message {
            method: self.method.clone(),
            query: self.query.clone(),
            headers: headers.cloned().collect(),
            body: body.to_vec(),
        }
    }

    pub(super) fn is_handshake(&self) -> bool {
        self.expect["handshake"] == Value::Bool(true)
    }

    /// Whether it is to be accepted. Words mean: after trimming the secret, which is done; and upper-case hexadecimal,
    /// which is accepted.
    pub(super) fn is_good(&self) -> bool {
        match &self.expect["verified"] {
            Value::Bool(verified) => *verified,
            Value::String(word) => matches!(word.as_str(), "after trimming" | "policy"),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                self.is_handshake() && self.expect["response_status"] != 401
            }
        }
    }

    /// Whether a secret of the source's decides; where a key is fetched it only opens the way there.
    pub(super) fn needs_secret(&self) -> bool {
        !self.secret.is_empty() && self.fetched.is_none()
    }

    pub(super) fn is_timed(&self) -> bool {
        self.preset.json.contains("\"time\": {")
            && !self.preset.json.contains("\"record\"")
            && !matches!(self.preset.name, "gitlab" | "http-signatures")
    }

    /// A word of the body that is signed where not all of it is.
    pub(super) fn signed_word(&self) -> Option<&'static str> {
        match self.preset.name {
            "mailgun" => Some("a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0"),
            _ => None,
        }
    }

    pub(super) fn strength(&self) -> Strength {
        self.preset.recipe.strength_of(&self.verified())
    }

    pub(super) fn extracted(&self) -> Vec<Extracted> {
        let verified = self.verified();
        self.with(|request| extract(&self.preset.recipe, request, &verified)).expect("readable")
    }

    fn verified(&self) -> Verified {
        let secrets: Vec<Secret> =
            Secret::new(&self.preset.recipe, SecretNo(1), &self.secret, Timestamp::EPOCH, None)
                .into_iter()
                .collect();
        self.with(|request| verify(&self.preset.recipe, request, &secrets, NOW))
            .unwrap_or_else(|rejection| panic!("{}: {rejection}", self.name))
    }

    fn with<T>(&self, use_it: impl FnOnce(&Request<'_>) -> T) -> T {
        let headers: Vec<(String, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_bytes())).collect();
        let headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        use_it(&Request {
            public_urls: std::slice::from_ref(&self.url),
            settings: &self.settings,
            fetched: self.fetched.as_deref().map(str::as_bytes),
            ..Request::new(&self.method, &self.query, &headers, &self.body)
        })
    }
}
