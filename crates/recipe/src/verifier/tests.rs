//! What the tests of all verifiers share: requests that can be bent, and recipes around a verifier.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_types::{SecretNo, Timestamp};
use serde_json::Value;

use crate::request::Fetch;
use crate::{Reason, Recipe, Rejection, Request, Secret, fetch_needed, follow_up, verify};

/// The moment of the vendors' samples.
pub(super) const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

/// A recipe that verifies by code.
pub(super) fn recipe(verifier: &str) -> Recipe {
    try_recipe(verifier).expect("a recipe")
}

/// The same, or the field that is wrong.
pub(super) fn try_recipe(verifier: &str) -> Result<Recipe, String> {
    let text = format!(r#"{{"version":1,"weakest":"none","schemes":[{{"verifier":{verifier}}}]}}"#);
    Recipe::from_json(&text).map_err(|error| error.path)
}

/// A request that owns its parts.
#[derive(Clone, Default)]
pub(super) struct Owned {
    pub(super) query: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    pub(super) urls: Vec<String>,
    pub(super) settings: BTreeMap<String, String>,
    pub(super) fetched: Option<Vec<u8>>,
}

impl Owned {
    pub(super) fn with<T>(&self, use_it: impl FnOnce(&Request<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        use_it(&Request {
            public_urls: &self.urls,
            settings: &self.settings,
            fetched: self.fetched.as_deref(),
            ..Request::new("POST", &self.query, &headers, &self.body)
        })
    }

    pub(super) fn verify(
        &self,
        recipe: &Recipe,
        secrets: &[&str],
        now: Timestamp,
    ) -> Result<Option<i64>, Rejection> {
        let secrets = numbered(recipe, secrets);
        let verified = self.with(|request| verify(recipe, request, &secrets, now))?;
        Ok(verified.secret().map(|no| no.0))
    }

    /// Why it is refused; `None`: it is not.
    pub(super) fn refused(&self, recipe: &Recipe, secrets: &[&str], now: Timestamp) -> Option<Reason> {
        self.verify(recipe, secrets, now).err().map(|rejection| rejection.reason())
    }

    pub(super) fn fetch(&self, recipe: &Recipe, secrets: &[&str]) -> Result<Option<Fetch>, Rejection> {
        let secrets = numbered(recipe, secrets);
        self.with(|request| fetch_needed(recipe, request, &secrets, NOW))
    }

    /// Why nothing may be fetched for it.
    pub(super) fn unfetched(&self, recipe: &Recipe, secrets: &[&str]) -> Option<Reason> {
        self.fetch(recipe, secrets).err().map(|rejection| rejection.reason())
    }

    /// The follow-up of a request that verifies without secrets.
    pub(super) fn follow_up(&self, recipe: &Recipe) -> Option<Fetch> {
        self.with(|request| {
            let verified = verify(recipe, request, &[], NOW).expect("verified");
            follow_up(recipe, request, &verified)
        })
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.headers.retain(|(have, _)| have != name);
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn setting(&mut self, name: &str, value: &str) {
        self.settings.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn header(&self, name: &str) -> &str {
        &self.headers.iter().find(|(have, _)| have == name).expect("the header").1
    }
}

fn numbered(recipe: &Recipe, texts: &[&str]) -> Vec<Secret> {
    let secret = |(no, text): (i64, &&str)| {
        Secret::new(recipe, SecretNo(no), text, Timestamp::EPOCH, None).expect("a usable secret")
    };
    (1..).zip(texts).map(secret).collect()
}

/// A request signed by the vendor's formula, with the certificate that its verifier would fetch.
pub(super) fn sample(provider: &str, case: &str) -> Owned {
    let lines = include_str!("../../../../tests/cases/signed-samples.jsonl").lines();
    let mut samples = lines.map(|line| serde_json::from_str::<Value>(line).expect("a sample is JSON"));
    let sample = samples
        .find(|sample| sample["provider"] == provider && sample["case"] == case)
        .unwrap_or_else(|| panic!("no sample {provider}/{case}"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let headers = sample["headers"].as_object().expect("headers").iter();
    Owned {
        headers: headers.map(|(name, value)| (name.to_ascii_lowercase(), text(value))).collect(),
        body: STANDARD.decode(text(&sample["body_base64"])).expect("base64"),
        urls: vec![text(&sample["url"])],
        fetched: Some(text(&sample["secret"]).into_bytes()),
        ..Owned::default()
    }
}
