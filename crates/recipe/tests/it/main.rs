//! Behaviour of recipes as the edge and the command line see it.

mod attacks;
mod batches;
mod covered;
mod explanations;
mod extraction;
mod generated;
mod handshakes;
mod kept_file;
mod keys;
mod language;
mod providers_page;
mod round_trip;
mod samples;
mod verification;

use std::collections::BTreeMap;
use std::sync::Arc;

use portero_recipe::{
    Extracted, Reason, Recipe, Rejection, Request, Secret, SignOptions, SignedRequest, extract, sign, verify,
};
use portero_types::{SecretNo, Timestamp};

/// The moment at which everything here is signed.
const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

fn preset(name: &str) -> Arc<Recipe> {
    Recipe::preset(name).unwrap_or_else(|| panic!("no preset '{name}'"))
}

fn secret(recipe: &Recipe, text: &str) -> Secret {
    numbered(recipe, 1, text)
}

fn numbered(recipe: &Recipe, no: i64, text: &str) -> Secret {
    Secret::new(recipe, SecretNo(no), text, Timestamp::EPOCH, None).expect("a usable secret")
}

/// A request that owns its parts, so that tests can bend them.
#[derive(Clone)]
struct Owned {
    method: String,
    query: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    urls: Vec<String>,
    settings: BTreeMap<String, String>,
    fetched: Option<Vec<u8>>,
}

impl Owned {
    fn post(headers: &[(&str, &str)], body: &[u8]) -> Self {
        Self {
            method: "POST".to_owned(),
            query: String::new(),
            headers: headers.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect(),
            body: body.to_vec(),
            urls: Vec::new(),
            settings: BTreeMap::new(),
            fetched: None,
        }
    }

    fn signed(request: SignedRequest) -> Self {
        let headers = request.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        Self { headers, query: request.query, body: request.body, ..Self::post(&[], b"") }
    }

    fn with<T>(&self, use_it: impl FnOnce(&Request<'_>) -> T) -> T {
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        use_it(&Request {
            method: &self.method,
            query: &self.query,
            headers: &headers,
            body: &self.body,
            public_urls: &self.urls,
            settings: &self.settings,
            fetched: self.fetched.as_deref(),
        })
    }

    fn header_mut(&mut self, name: &str) -> &mut Vec<u8> {
        &mut self.headers.iter_mut().find(|(have, _)| have == name).expect("the header").1
    }

    fn verify_at(&self, recipe: &Recipe, secrets: &[Secret], now: Timestamp) -> Result<Option<i64>, Reason> {
        self.with(|request| verify(recipe, request, secrets, now))
            .map(|verified| verified.secret().map(|no| no.0))
            .map_err(|rejection| rejection.reason())
    }

    fn verify(&self, recipe: &Recipe, text: &str) -> Result<Option<i64>, Reason> {
        self.verify_at(recipe, &[secret(recipe, text)], NOW)
    }

    fn events(&self, recipe: &Recipe, text: &str) -> Result<Vec<Extracted>, Rejection> {
        self.events_of(recipe, &[secret(recipe, text)])
    }

    fn events_of(&self, recipe: &Recipe, secrets: &[Secret]) -> Result<Vec<Extracted>, Rejection> {
        self.with(|request| {
            let verified = verify(recipe, request, secrets, NOW)?;
            extract(recipe, request, &verified)
        })
    }

    fn event(&self, recipe: &Recipe, text: &str) -> Extracted {
        let mut events = self.events(recipe, text).expect("verified");
        assert_eq!(events.len(), 1);
        events.remove(0)
    }
}

const SECRET: &str = "a secret of the tests, long enough";

/// Signs a body with [`SECRET`] by the preset's first fitting scheme.
fn signed(recipe: &Recipe, body: &[u8]) -> Owned {
    let options =
        SignOptions { id: Some("id-1"), event_type: "thing.done", now: NOW, ..SignOptions::default() };
    Owned::signed(sign(recipe, SECRET, body, options).expect("signs"))
}
