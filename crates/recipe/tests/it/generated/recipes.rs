//! Recipes made at random: every place, list form, algorithm, encoding, key form and unit, and messages of many parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_recipe::{Recipe, generate_secret};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

/// Key pairs by algorithm: the private and the public key.
const PAIRS: [(&str, &str, &str); 3] = [
    ("ed25519", include_str!("../keys/ed25519.private.pem"), include_str!("../keys/ed25519.public.pem")),
    ("ecdsa-p256-sha256", include_str!("../keys/p256.private.pem"), include_str!("../keys/p256.public.pem")),
    ("rsa-sha256", include_str!("../keys/rsa.private.pem"), include_str!("../keys/rsa.public.pem")),
];

/// Where a signature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Header,
    Headers,
    Numbered,
    Query,
    Form,
    Json,
    Item,
}

/// A valid recipe and secrets for both sides.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) recipe: Value,
    pub(super) place: Place,
    /// What is signed, as templates.
    pub(super) parts: Vec<String>,
    pub(super) has_time: bool,
    /// The secret itself is sent.
    pub(super) is_token: bool,
    pub(super) signing: String,
    pub(super) verifying: String,
}

impl Made {
    pub(super) fn compiled(&self) -> Recipe {
        Recipe::from_json(&self.recipe.to_string()).unwrap_or_else(|error| panic!("{error}: {}", self.recipe))
    }

    pub(super) fn covers(&self, part: &str) -> bool {
        self.parts.iter().any(|have| have.contains(part))
    }
}

/// The choices that make a recipe.
#[derive(Clone, Debug)]
struct Choices {
    place: Place,
    list: &'static str,
    algorithm: &'static str,
    encoding: &'static str,
    /// Chooses among the key forms that fit.
    key: usize,
    prefix: &'static str,
    separator: &'static str,
    parts: Vec<&'static str>,
    glue: &'static str,
    unit: &'static str,
    has_time: bool,
    seed: [u8; 32],
}

pub(super) fn recipes() -> impl Strategy<Value = Made> {
    use Place::{Form, Header, Headers, Item, Json, Numbered, Query};
    let place = select(&[Header, Headers, Numbered, Query, Form, Json, Item][..]);
    let list = select(&["plain", "pairs", "standard", "named", "positional"][..]);
    let algorithm = prop_oneof![
        8 => select(&["hmac-sha1", "hmac-sha256", "hmac-sha512", "sha256", "equal", "basic"][..]),
        3 => select(&["ed25519", "ecdsa-p256-sha256", "rsa-sha256"][..]),
    ];
    let parts = subsequence(
        &[
            "{method}",
            "{header:X-Extra}",
            "{url}",
            "{query:q}",
            "{setting:extra}",
            "[{header:X-Absent}!]",
            "{header?:X-Gone}",
        ][..],
        0..=7,
    );
    let form = (place, list, algorithm, select(&["hex", "base64"][..]), any::<usize>());
    let text = (
        select(&["", "sha256=", "v1="][..]),
        select(&[",", ";"][..]),
        select(&[".", ":", "\n", "", "\\{\\}"][..]),
    );
    let rest =
        (parts.prop_shuffle(), select(&["s", "ms", "rfc3339", "auto"][..]), any::<bool>(), any::<[u8; 32]>());
    (form, text, rest).prop_map(|(form, text, rest)| {
        let (place, list, algorithm, encoding, key) = form;
        let (prefix, separator, glue) = text;
        let (parts, unit, has_time, seed) = rest;
        made(&Choices {
            place,
            list,
            algorithm,
            encoding,
            key,
            prefix,
            separator,
            parts,
            glue,
            unit,
            has_time,
            seed,
        })
    })
}

fn made(choices: &Choices) -> Made {
    let is_token = matches!(choices.algorithm, "equal" | "basic");
    let is_public = PAIRS.iter().any(|(name, ..)| *name == choices.algorithm);
    // Lists that cannot go with the algorithm become plain ones.
    let list = match choices.list {
        "standard" | "positional" if is_token => "plain",
        "named" if is_public || is_token => "plain",
        "positional" if !carries_time(choices.place) => "plain",
        list => list,
    };
    let is_whole = carries_time(choices.place);
    let has_time = !is_token && is_whole && (choices.has_time || list == "positional");
    let in_list = list == "positional" || (list == "pairs" && has_time);
    let parts = if is_token { Vec::new() } else { parts(choices, has_time) };
    let mut scheme = json!({
        "signature": signature(choices, list, in_list),
        "encoding": choices.encoding,
        "id": ["{json:id}"],
    });
    match list {
        "standard" => scheme["algorithms"] = json!({ "v1": choices.algorithm }),
        _ => scheme["algorithm"] = choices.algorithm.into(),
    }
    if !is_token {
        scheme["message"] = parts.join(choices.glue).into();
    }
    if has_time {
        scheme["time"] = json!({ "unit": choices.unit, "past_s": 300 });
        if !in_list {
            scheme["time"]["source"] = "{header:X-Time}".into();
        }
    }
    if choices.place == Place::Item {
        scheme["items"] = json!(["items.*"]);
    }
    let key_form = key_form(choices, list, is_public, is_token);
    scheme["keys"] = json!([key_form]);
    let mut recipe = json!({ "version": 1, "weakest": "token", "schemes": [scheme] });
    recipe["settings"] = json!({ "extra": { "about": "A part of the message.", "required": true } });
    if choices.place == Place::Form {
        recipe["document"] = json!({ "form": "payload" });
    }
    let (signing, verifying) = secrets(&recipe, choices, key_form);
    Made { recipe, place: choices.place, parts, has_time, is_token, signing, verifying }
}

/// Whether one time goes with the request.
fn carries_time(place: Place) -> bool {
    matches!(place, Place::Header | Place::Headers | Place::Query | Place::Form)
}

fn signature(choices: &Choices, list: &str, in_list: bool) -> Value {
    let mut signature = match choices.place {
        Place::Header => json!({ "header": "X-Signature" }),
        Place::Headers => json!({ "header": ["X-First", "X-Second"] }),
        Place::Numbered => json!({ "numbered": "X-Signature-" }),
        Place::Query => json!({ "query": "signature" }),
        Place::Form => json!({ "form": "signature" }),
        Place::Json => json!({ "json": "meta.signature" }),
        Place::Item => json!({ "item": "meta.signature" }),
    };
    signature["list"] = list.into();
    match list {
        "plain" => signature["prefix"] = choices.prefix.into(),
        "pairs" => {
            signature["separator"] = choices.separator.into();
            signature["tag"] = "v1".into();
            if in_list {
                signature["time"] = "t".into();
            }
        }
        "positional" => signature["separator"] = choices.separator.into(),
        _ => {}
    }
    signature
}

fn parts(choices: &Choices, has_time: bool) -> Vec<String> {
    let place = choices.place;
    let own: &[&str] = match place {
        Place::Header | Place::Headers | Place::Numbered | Place::Query => &["{body}"],
        Place::Form => &["{form:payload}"],
        Place::Json => &["{json:a}", "{json:b.c}"],
        Place::Item => &["{item:a}", "{item?:b.c}", "{outer:batch}"],
    };
    // A signature in the query is part of every URL that it could be a signature of.
    let fits = |part: &&&str| **part != "{url}" || place != Place::Query;
    let mut parts: Vec<String> = choices.parts.iter().filter(fits).map(|part| (*part).to_owned()).collect();
    let middle = parts.len() / 2;
    let own = own.iter().map(|part| (*part).to_owned());
    parts.splice(middle..middle, own);
    if has_time {
        parts.insert(0, "{ts}".to_owned());
    }
    if choices.algorithm == "sha256" {
        parts.push("{secret}".to_owned());
    }
    parts
}

fn key_form(choices: &Choices, list: &str, is_public: bool, is_token: bool) -> &'static str {
    let forms: &[&str] = match (list, choices.algorithm) {
        ("named", _) => &["named_sha1"],
        (_, "ed25519") => &["hex", "base64", "whsec", "pem", "spki"],
        _ if is_public => &["pem", "spki"],
        _ if is_token => &["text"],
        _ => &["text", "hex", "base64", "whsec"],
    };
    forms[choices.key % forms.len()]
}

/// What the sender and the receiver are given.
fn secrets(recipe: &Value, choices: &Choices, key_form: &str) -> (String, String) {
    let seed = choices.seed;
    let pair = PAIRS.iter().find(|(name, ..)| *name == choices.algorithm);
    let both = |text: String| (text.clone(), text);
    match (key_form, pair) {
        ("pem", Some((_, private, public))) => ((*private).to_owned(), (*public).to_owned()),
        ("spki", Some((_, private, public))) => {
            let lines = public.lines().filter(|line| !line.starts_with('-'));
            ((*private).to_owned(), lines.collect())
        }
        ("named_sha1", _) => both(format!("name|{}", hex::encode(seed))),
        _ if choices.algorithm == "basic" => both(format!("user:{}", hex::encode(seed))),
        (_, None) => both(generated(recipe, seed)),
        (form, Some(_)) => {
            let private = match form {
                "hex" => hex::encode(seed),
                "base64" => STANDARD.encode(seed),
                _ => format!("whsk_{}", STANDARD.encode(seed)),
            };
            (private, generated(recipe, seed))
        }
    }
}

fn generated(recipe: &Value, seed: [u8; 32]) -> String {
    let compiled = Recipe::from_json(&recipe.to_string()).unwrap_or_else(|error| panic!("{error}: {recipe}"));
    generate_secret(&compiled, seed).expect("this key form can be generated")
}
