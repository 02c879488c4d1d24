//! Recipes made at random: what is signed by one verifies, and nothing that its signature covers can be changed.

mod recipes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portero_recipe::{Reason, Request, Secret, SignOptions, SignedRequest, sign, verify};
use portero_types::{SecretNo, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::NOW;
use recipes::{Made, Place, recipes};

const URL: &str = "https://hooks.example.com/t/acme/source";

/// A request with everything around it that takes part.
#[derive(Clone, Debug)]
struct Sent {
    query: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    url: String,
    settings: BTreeMap<String, String>,
}

/// What the signed parts hold.
#[derive(Clone, Debug)]
struct Content {
    body: Vec<u8>,
    extra: String,
    texts: [String; 3],
}

fn content() -> impl Strategy<Value = Content> {
    let body = proptest::collection::vec(any::<u8>(), 0..200);
    (body, "[!-~]{1,20}", ["\\PC{1,12}", "\\PC{1,12}", "[a-z0-9]{1,12}"])
        .prop_map(|(body, extra, texts)| Content { body, extra, texts })
}

fn percent_encoded(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// The body in the shape that the place of the signature needs.
fn body(made: &Made, content: &Content) -> Vec<u8> {
    let [a, b, c] = &content.texts;
    match made.place {
        Place::Header | Place::Headers | Place::Numbered | Place::Query => content.body.clone(),
        Place::Form => format!("x=1&payload={}", percent_encoded(&content.body)).into_bytes(),
        Place::Json => json!({ "a": a, "b": { "c": b }, "id": c }).to_string().into_bytes(),
        Place::Item => {
            let items = [json!({ "a": a, "b": { "c": b } }), json!({ "a": c, "meta": { "signature": "" } })];
            json!({ "batch": c, "items": items }).to_string().into_bytes()
        }
    }
}

impl Sent {
    fn signed(made: &Made, content: &Content) -> Self {
        let settings = BTreeMap::from([("extra".to_owned(), content.extra.clone())]);
        let query = format!("q={}", content.texts[2]);
        let options = SignOptions {
            now: NOW,
            url: Some(URL),
            query: &query,
            settings: &settings,
            headers: &[("X-Extra", &content.extra)],
            ..SignOptions::default()
        };
        let signed = sign(&made.compiled(), &made.signing, &body(made, content), options);
        let SignedRequest { headers, query, body, .. } =
            signed.unwrap_or_else(|error| panic!("{error}: {}", made.recipe));
        let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        Self { query, headers, body, url: URL.to_owned(), settings }
    }

    fn verify(&self, made: &Made, secret: &str) -> Result<Option<SecretNo>, Reason> {
        self.verify_at(made, secret, NOW)
    }

    fn verify_at(&self, made: &Made, secret: &str, now: Timestamp) -> Result<Option<SecretNo>, Reason> {
        let recipe = made.compiled();
        let headers: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let urls = [self.url.clone()];
        let request = Request {
            public_urls: &urls,
            settings: &self.settings,
            ..Request::new("POST", &self.query, &headers, &self.body)
        };
        let secret =
            Secret::new(&recipe, SecretNo(7), secret, Timestamp::EPOCH, None).expect("a usable secret");
        verify(&recipe, &request, &[secret], now)
            .map(|verified| verified.secret())
            .map_err(|rejection| rejection.reason())
    }

    fn header_mut(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        self.headers.iter_mut().find(|(have, _)| have == name).map(|(_, value)| value)
    }

    /// Flips a bit of a header; false when there is no such header.
    fn flip_header(&mut self, name: &str, at: Index, bit: u32) -> bool {
        self.header_mut(name).is_some_and(|value| flip(value, at, bit))
    }
}

fn flip(bytes: &mut [u8], at: Index, bit: u32) -> bool {
    if bytes.is_empty() {
        return false;
    }
    let at = at.index(bytes.len());
    bytes[at] ^= 1 << bit;
    true
}

fn flip_text(text: &mut String, at: Index, bit: u32) -> bool {
    let mut bytes = text.clone().into_bytes();
    // Texts stay ASCII.
    let flipped = flip(&mut bytes, at, bit % 7);
    *text = String::from_utf8(bytes).expect("ASCII");
    flipped
}

/// Every change of one bit to something that the signature covers.
fn bent(made: &Made, good: &Sent, at: Index, bit: u32) -> Vec<(&'static str, Sent)> {
    let mut all = Vec::new();
    let mut add = |what: &'static str, change: &dyn Fn(&mut Sent) -> bool| {
        let mut sent = good.clone();
        if change(&mut sent) {
            all.push((what, sent));
        }
    };
    if made.covers("{body}") {
        add("body", &|sent| flip(&mut sent.body, at, bit));
    }
    if made.covers("{header:X-Extra}") {
        add("header", &|sent| sent.flip_header("x-extra", at, bit));
    }
    if made.covers("X-Absent") {
        add("absent header", &|sent| {
            sent.headers.push(("x-absent".to_owned(), b"there".to_vec()));
            true
        });
    }
    if made.covers("X-Gone") {
        add("missing header", &|sent| {
            sent.headers.push(("x-gone".to_owned(), b"there".to_vec()));
            true
        });
    }
    if made.covers("{url}") {
        add("URL", &|sent| flip_text(&mut sent.url, at, bit));
        add("query", &|sent| flip_text(&mut sent.query, at, bit));
    } else if made.covers("{query:q}") {
        add("query field", &|sent| {
            let (name, value) = sent.query.split_at("q=".len());
            let (value, rest) = value.split_at(value.find('&').unwrap_or(value.len()));
            let mut value = value.to_owned();
            let flipped = flip_text(&mut value, at, bit);
            sent.query = format!("{name}{value}{rest}");
            flipped
        });
    }
    if made.covers("{setting:extra}") {
        add("setting", &|sent| flip_text(sent.settings.get_mut("extra").expect("set"), at, bit));
    }
    if made.has_time {
        add("time", &|sent| sent.flip_header("x-time", at, bit));
    }
    if made.place == Place::Header {
        add("signature", &|sent| sent.flip_header("x-signature", at, bit) && !is_case(made, good, sent));
    }
    all
}

/// Whether the signature differs only in the case of a hexadecimal digit, which carries nothing.
fn is_case(made: &Made, good: &Sent, sent: &Sent) -> bool {
    let scheme = &made.recipe["schemes"][0];
    let is_hex = scheme["encoding"] == "hex" && !made.is_token;
    is_hex
        && good
            .headers
            .iter()
            .zip(&sent.headers)
            .all(|((_, good), (_, bent))| good.eq_ignore_ascii_case(bent))
}

/// Tests above would hold of few kinds of recipes as well: see that there are all.
#[test]
fn recipes_of_every_kind_are_made_and_bent_in_every_way() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let strategy = (recipes(), content(), any::<Index>());
    for _ in 0..600 {
        let (made, content, at) = strategy.new_tree(&mut runner).expect("a value").current();
        let scheme = &made.recipe["schemes"][0];
        let mut see = |what, value: &str| seen.entry(what).or_default().insert(value.to_owned());
        let tagged = scheme["algorithms"]["v1"].as_str();
        see("places", &format!("{:?}", made.place));
        see("lists", scheme["signature"]["list"].as_str().expect("a list"));
        see("algorithms", scheme["algorithm"].as_str().or(tagged).expect("an algorithm"));
        see("keys", scheme["keys"][0].as_str().expect("a key form"));
        see("units", scheme["time"]["unit"].as_str().unwrap_or("none"));
        // Signing costs much with key pairs, and they are bent like others.
        if scheme["keys"][0] == "text" {
            for (what, _) in bent(&made, &Sent::signed(&made, &content), at, 1) {
                see("bent", what);
            }
        }
    }
    let counts: Vec<_> = seen.iter().map(|(what, values)| (*what, values.len())).collect();
    let all = [("algorithms", 9), ("bent", 10), ("keys", 7), ("lists", 5), ("places", 7), ("units", 5)];
    assert_eq!(counts, all, "{seen:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 16_384, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn what_any_recipe_signs_it_verifies(made in recipes(), content in content()) {
        let sent = Sent::signed(&made, &content);
        prop_assert_eq!(sent.verify(&made, &made.verifying), Ok(Some(SecretNo(7))), "{} {:?}", made.recipe, sent);
    }

    #[test]
    fn nothing_that_a_signature_covers_can_be_changed(
        made in recipes(), content in content(), at in any::<Index>(), bit in 0..8_u32,
    ) {
        let good = Sent::signed(&made, &content);
        for (what, sent) in bent(&made, &good, at, bit) {
            let verdict = sent.verify(&made, &made.verifying);
            prop_assert!(verdict.is_err(), "{what}: {} {good:?} {sent:?}", made.recipe);
        }
    }

    #[test]
    fn no_other_secret_verifies(made in recipes(), other in recipes(), content in content()) {
        prop_assume!(made.verifying != other.verifying);
        let same_form = made.recipe["schemes"][0]["keys"] == other.recipe["schemes"][0]["keys"];
        prop_assume!(same_form && !made.verifying.starts_with("-----"));
        let good = Sent::signed(&made, &content);
        let recipe = made.compiled();
        prop_assume!(Secret::new(&recipe, SecretNo(7), &other.verifying, Timestamp::EPOCH, None).is_ok());
        prop_assert_eq!(good.verify(&made, &other.verifying), Err(Reason::SignatureMismatch), "{}", made.recipe);
    }

    #[test]
    fn a_signed_time_outside_the_window_is_refused_and_says_so(made in recipes(), content in content()) {
        prop_assume!(made.has_time);
        let sent = Sent::signed(&made, &content);
        let seconds = Duration::from_secs;
        let verdict = |now| sent.verify_at(&made, &made.verifying, now);
        prop_assert_eq!(verdict(NOW.plus(seconds(300))), Ok(Some(SecretNo(7))));
        prop_assert_eq!(verdict(NOW.plus(seconds(301))), Err(Reason::TimestampTooOld));
        prop_assert_eq!(verdict(NOW.minus(seconds(300))), Ok(Some(SecretNo(7))));
        prop_assert_eq!(verdict(NOW.minus(seconds(301))), Err(Reason::TimestampInFuture));
    }
}
