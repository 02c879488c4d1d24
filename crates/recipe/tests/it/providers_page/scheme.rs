//! A way of signing, and where its events are read from, in words.

use portero_recipe::told::{listed, span_s, verifier};
use serde_json::Value;

use super::words::{code, place, places, texts};

/// What is checked, a sentence or a few.
pub(super) fn verified(scheme: &Value) -> String {
    let mut sentence = condition(scheme);
    sentence += &match (verifier(scheme), scheme["algorithm"].as_str()) {
        (Some(kind), _) => verifier_words(kind).to_owned(),
        (None, Some("none")) => "nothing is checked".to_owned(),
        (None, Some("equal")) => format!("{} must equal the secret", signature_place(scheme)),
        (None, Some("basic")) => {
            format!("{} must hold the secret as HTTP basic credentials", signature_place(scheme))
        }
        (None, algorithm) => format!(
            "{} holds {} of {}, written in {}",
            signature_place(scheme),
            algorithms(scheme, algorithm),
            code(scheme["message"].as_str().unwrap_or("{body}")),
            if scheme["encoding"] == "base64" { "base64" } else { "hexadecimal" },
        ),
    };
    sentence += ".";
    if let Some(digest) = scheme["body_digest"]["of"].as_str() {
        sentence += &format!(" The body's SHA-256 must be the one at {}.", place(digest));
    }
    if scheme["time"].is_object() {
        sentence += &time_words(&scheme["time"]);
    }
    if let Some(keys) = keys_words(scheme) {
        sentence += &format!(" Key: {keys}.");
    }
    sentence
}

fn condition(scheme: &Value) -> String {
    let mut conditions = Vec::new();
    if let Some(header) = scheme["when"]["header"].as_str() {
        conditions.push(format!("header {}", code(header)));
    }
    if let Some(query) = scheme["when"]["query"].as_str() {
        conditions.push(format!("query field {}", code(query)));
    }
    if conditions.is_empty() { String::new() } else { format!("With {}: ", listed(&conditions, "and")) }
}

fn signature_place(scheme: &Value) -> String {
    let signature = &scheme["signature"];
    let header = texts(&signature["header"]);
    let named = |field: &str| signature[field].as_str().map(code);
    let place = if !header.is_empty() {
        let names: Vec<String> = header.iter().map(|name| code(name)).collect();
        format!("header {}", listed(&names, "or"))
    } else if let Some(name) = named("numbered") {
        format!("each header {name} with a number behind it")
    } else if let Some(name) = named("query") {
        format!("query field {name}")
    } else if let Some(name) = named("form") {
        format!("form field {name}")
    } else if let Some(path) = named("json") {
        format!("{path} of the body")
    } else if let Some(path) = named("item") {
        format!("{path} of each item")
    } else {
        "the request".to_owned()
    };
    match (signature["list"].as_str(), signature["prefix"].as_str()) {
        (Some("pairs"), _) => {
            format!("{place} (as {})", code(&format!("{}=…", signature["tag"].as_str().unwrap_or_default())))
        }
        (Some("standard"), _) => format!("{place} (a list of `version,signature`)"),
        (Some("named"), _) => format!("{place} (of the pairs `name\\|signature`, the secret's)"),
        (Some("positional"), _) => format!("{place} (behind the time)"),
        (_, Some(prefix)) if !prefix.is_empty() => format!("{place} (behind {})", code(prefix)),
        _ => place,
    }
}

fn algorithms(scheme: &Value, algorithm: Option<&str>) -> String {
    let tagged = scheme["algorithms"].as_object();
    let by_tag = tagged.into_iter().flatten().filter_map(|(tag, algorithm)| {
        Some(format!("{} ({})", algorithm_words(algorithm.as_str()?), code(tag)))
    });
    let by_tag: Vec<String> = by_tag.collect();
    if by_tag.is_empty() {
        algorithm_words(algorithm.unwrap_or_default()).to_owned()
    } else {
        listed(&by_tag, "or")
    }
}

fn algorithm_words(name: &str) -> &'static str {
    match name {
        "hmac-sha1" => "the HMAC-SHA-1",
        "hmac-sha256" => "the HMAC-SHA-256",
        "hmac-sha512" => "the HMAC-SHA-512",
        "sha256" => "the SHA-256 digest",
        "ed25519" => "the Ed25519 signature",
        "ecdsa-p256-sha256" => "the ECDSA P-256 signature",
        "rsa-sha256" => "the RSA (PKCS #1, SHA-256) signature",
        "rsa-sha1" => "the RSA (PKCS #1, SHA-1) signature",
        other => panic!("no words for the algorithm '{other}'"),
    }
}

fn verifier_words(kind: &str) -> &'static str {
    match kind {
        "paypal" => {
            "the RSA signature over transmission id, time, webhook id and the body's CRC-32, by a certificate that PayPal's own \
             hosts serve"
        }
        "aws-sns" => "the message's signature, by a certificate that Amazon SNS's own hosts serve",
        "plaid" => "a signed token that holds the body's SHA-256, by a key that Plaid's API gives",
        "contentful" => "the HMAC-SHA-256 of method, path, the headers that the request lists, and the body",
        "http-signatures" => "an HTTP message signature (RFC 9421), and the body's `Content-Digest`",
        "jira-connect" => {
            "a signed token (HS256) in the `Authorization` header, and its hash of method, path and query"
        }
        other => panic!("no words for the verifier '{other}'"),
    }
}

fn time_words(time: &Value) -> String {
    let unit = match time["unit"].as_str() {
        Some("s") => "seconds",
        Some("ms") => "milliseconds",
        Some("rfc3339") => "RFC 3339",
        Some("auto") => "seconds or milliseconds",
        other => panic!("no words for the unit {other:?}"),
    };
    let source = time["source"].as_str().map_or_else(|| "the same place".to_owned(), place);
    if time["check"] == "record" {
        return format!(" The time ({source}, {unit}) is signed, and may be of any age.");
    }
    let past = time["past_s"].as_u64().unwrap_or(300);
    let future = time["future_s"].as_u64().unwrap_or(past);
    format!(
        " The time ({source}, {unit}) may lie {} in the past and {} in the future.",
        span_s(past),
        span_s(future)
    )
}

fn keys_words(scheme: &Value) -> Option<String> {
    let words = |form: &str| match form {
        "text" => "the secret's text as it is".to_owned(),
        "hex" => "the secret decoded from hexadecimal".to_owned(),
        "base64" => "the secret decoded from base64".to_owned(),
        "whsec" => "`whsec_` or `whpk_` and base64".to_owned(),
        "named_sha1" => "`name\\|key`: the SHA-1 digest of the key".to_owned(),
        "pem" => "a public key or certificate (PEM)".to_owned(),
        "spki" => "a public key (base64)".to_owned(),
        other => panic!("no words for the key form '{other}'"),
    };
    let forms: Vec<String> = texts(&scheme["keys"]).into_iter().map(words).collect();
    (!forms.is_empty()).then(|| listed(&forms, "or"))
}

/// Where an event's parts are found.
pub(super) fn read(reading: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(path) = reading["when"].as_str() {
        parts.push(format!("bodies with {}", code(path)));
    }
    let items = texts(&reading["items"]);
    if !items.is_empty() {
        let paths: Vec<String> = items.iter().map(|path| code(path)).collect();
        parts.push(format!("one event for each of {}", listed(&paths, "or")));
    }
    for (field, name) in [("id", "id"), ("type", "type"), ("entity", "ordering key"), ("account", "account")]
    {
        let templates = texts(&reading[field]);
        match (field, templates.is_empty()) {
            ("id", true) if reading["no_id"] == "distinct" => {
                parts.push("no id: each request is an event of its own".to_owned());
            }
            ("id", true) => parts.push("id derived from the event's bytes".to_owned()),
            (_, true) => {}
            (_, false) => parts.push(format!("{name} from {}", places(&templates))),
        }
    }
    parts.join("; ")
}
