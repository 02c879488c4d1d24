//! Every preset's sample, signed; then each thing that its scheme says is signed is bent at many places, one bit at a time.

use std::collections::BTreeMap;

use portero_recipe::{Preset, Recipe, SignOptions, sample, sign};
use serde_json::Value;

use super::keys::pair;
use super::{NOW, Owned};

const URL: &str = "https://hooks.example.com/in/1";
/// Most places at which one thing is bent.
const PLACES_MAX: usize = 60;

/// A preset's sample as its provider would send it.
struct Sent {
    preset: &'static Preset,
    /// The scheme that applies, as written.
    scheme: Value,
    good: Owned,
    verifying: String,
}

fn settings(recipe: &Recipe) -> BTreeMap<String, String> {
    let required = recipe.settings().iter().filter(|(_, setting)| setting.required);
    required.map(|(name, _)| (name.clone(), "1234567890".to_owned())).collect()
}

fn sent(preset: &'static Preset) -> Option<Sent> {
    let recipe = &preset.recipe;
    let (signing, verifying) = pair(preset.json, recipe)?;
    let sample = sample(recipe, "4277", None, NOW).expect("every preset has a sample");
    let headers: Vec<(&str, &str)> =
        sample.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let settings = settings(recipe);
    let options = SignOptions {
        id: Some("4277"),
        event_type: &sample.event_type,
        now: NOW,
        url: Some(URL),
        query: &sample.query,
        settings: &settings,
        headers: &headers,
        scheme: None,
    };
    let mut good = Owned::signed(sign(recipe, &signing, &sample.body, options).expect("signs"));
    good.urls = vec![URL.to_owned()];
    good.settings = settings;
    let written: Value = serde_json::from_str(preset.json).expect("a preset is JSON");
    let applies = |scheme: &&Value| {
        let when = &scheme["when"];
        let header = when["header"].as_str().map(str::to_lowercase);
        let query = when["query"].as_str();
        header.is_none_or(|name| good.headers.iter().any(|(have, _)| *have == name))
            && query.is_none_or(|name| good.query.contains(name))
    };
    let scheme = written["schemes"].as_array()?.iter().find(applies)?.clone();
    Some(Sent { preset, scheme, good, verifying })
}

impl Sent {
    fn message(&self) -> &str {
        self.scheme["message"].as_str().unwrap_or_default()
    }

    /// The names that the message takes from a source such as `header`.
    fn named(&self, source: &str) -> Vec<&str> {
        let names = self.message().split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let of_source =
            names.filter_map(|value| value.strip_prefix(source)?.trim_start_matches('?').strip_prefix(':'));
        of_source.map(|name| name.split('|').next().unwrap_or_default()).collect()
    }

    fn signs_body(&self) -> bool {
        let whole = ["{body}", "{form-sorted}"].iter().any(|whole| self.message().contains(whole));
        let kind = self.scheme["verifier"]["kind"].as_str();
        whole
            || self.scheme["body_digest"].is_object()
            || matches!(kind, Some("contentful" | "http-signatures"))
    }

    /// Bends one thing in many places: `part` gives the bytes of it.
    fn bend(&self, what: &str, part: impl Fn(&mut Owned) -> Option<&mut [u8]>) -> usize {
        let Some(length) = part(&mut self.good.clone()).map(|bytes| bytes.len()) else { return 0 };
        let step = length.div_ceil(PLACES_MAX).max(1);
        let mut count = 0;
        for at in (0..length).step_by(step) {
            let mut bent = self.good.clone();
            let bytes = part(&mut bent).expect("there as before");
            let before = bytes[at];
            // Texts must stay texts; the case of a letter may carry nothing, as in an escape or a lower-case filter.
            bytes[at] ^= 1 << [0, 1, 2, 3, 4][at % 5];
            let verdict = bent.verify(&self.preset.recipe, &self.verifying);
            assert!(verdict.is_err(), "{}: {what} at {at}, was {:?}", self.preset.name, char::from(before));
            count += 1;
        }
        count
    }

    /// Bends everything that is signed, and says what.
    fn bend_all(&self) -> Vec<String> {
        let mut bent = Vec::new();
        let mut note = |what: String, count: usize| {
            if count > 0 {
                bent.push(what);
            }
        };
        if self.signs_body() {
            note("body".to_owned(), self.bend("body", |sent| Some(&mut sent.body)));
        }
        for name in self.named("header") {
            let name = name.to_lowercase();
            let count = self.bend(&name, |sent| header(sent, &name));
            note(format!("header {name}"), count);
        }
        let time = self.scheme["time"]["source"].as_str().and_then(|text| text.strip_prefix("{header:"));
        if let Some(name) = time.map(|text| text.trim_end_matches('}').to_lowercase()) {
            note("time".to_owned(), self.bend("time", |sent| header(sent, &name)));
        }
        if self.message().contains("{url}") {
            let url = |sent: &mut Owned, bend: &dyn Fn(&mut Vec<u8>)| {
                let mut bytes = sent.urls[0].clone().into_bytes();
                bend(&mut bytes);
                sent.urls[0] = String::from_utf8(bytes).expect("ASCII");
            };
            for at in 0..URL.len() {
                let mut bent = self.good.clone();
                url(&mut bent, &|bytes| bytes[at] ^= 1);
                let verdict = bent.verify(&self.preset.recipe, &self.verifying);
                assert!(verdict.is_err(), "{}: URL at {at}", self.preset.name);
            }
            note("URL".to_owned(), URL.len());
        }
        for path in self.named("json").into_iter().chain(self.named("item")) {
            let Some(value) = self.value(path) else { continue };
            let count = self.bend(path, |sent| {
                let at = sent.body.windows(value.len()).position(|at| at == value.as_bytes())?;
                Some(&mut sent.body[at..at + value.len()])
            });
            note(format!("field {path}"), count);
        }
        bent
    }

    /// A text in the body, by its path in it or in the first item.
    fn value(&self, path: &str) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.good.body).ok()?;
        let items = self.scheme["items"][0].as_str().unwrap_or_default().replace('*', "0");
        let full = format!("{items}.{path}");
        let find = |path: &str| {
            let pointer = path
                .split('.')
                .filter(|name| !name.is_empty())
                .fold(String::new(), |at, name| at + "/" + name);
            body.pointer(&pointer)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        find(&full).or_else(|| find(path))
    }
}

fn header<'s>(sent: &'s mut Owned, name: &str) -> Option<&'s mut [u8]> {
    sent.headers.iter_mut().find(|(have, _)| have == name).map(|(_, value)| value.as_mut_slice())
}

#[test]
fn nothing_that_a_preset_signs_can_be_changed() {
    let mut unbent = Vec::new();
    let mut kinds = std::collections::BTreeSet::new();
    for sent in Recipe::presets().filter_map(sent) {
        let name = sent.preset.name;
        assert!(sent.good.verify(&sent.preset.recipe, &sent.verifying).is_ok(), "{name}");
        let bent = sent.bend_all();
        kinds.extend(bent.iter().map(|what| what.split(' ').next().unwrap_or_default().to_owned()));
        let signs_nothing = matches!(sent.scheme["algorithm"].as_str(), Some("equal" | "basic" | "none"));
        if bent.is_empty() && !signs_nothing {
            unbent.push(name);
        }
    }
    let kinds: Vec<_> = kinds.into_iter().collect();
    assert_eq!(kinds, ["URL", "body", "field", "header", "time"]);
    // Their tokens and forms have tests of their own.
    assert_eq!(unbent, ["braintree", "jira-connect"]);
}
