//! Where the signature was looked for, and what is there: lengths and counts, never the text.

use std::borrow::Cow;

use portero_types::limits::{EVENTS_PER_REQUEST_MAX, JSON_DEPTH_MAX};

use super::steps::{Steps, count};
use crate::Request;
use crate::encoding::Encoding;
use crate::form::{self, Field};
use crate::json::{Document, Lookup, Scalar};
use crate::path::Path;
use crate::scheme::{Place, Proof, Scheme};
use crate::signature_list::{List, Reader};

const STEP: &str = "signature";
/// What providers put in front of signatures.
const PREFIXES: [&str; 11] = [
    "sha256=",
    "sha1=",
    "sha512=",
    "hmac-sha256=",
    "hmac-sha1=",
    "v0=",
    "v1=",
    "v1,",
    "Bearer ",
    "Basic ",
    "HMAC ",
];
/// Most names of other headers that are told.
const NAMES_MAX: usize = 6;
/// Longest key of a pair that is told, bytes: longer ones may be parts of a signature.
const KEY_BYTES_MAX: usize = 6;

/// Looks where the scheme says. Answers the time that the list carries.
pub(super) fn look(
    scheme: &Scheme,
    proof: &Proof,
    request: &Request<'_>,
    steps: &mut Steps,
) -> Option<Vec<u8>> {
    let reader = &proof.reader;
    match &proof.place {
        Place::Headers(names) => {
            let mut time = None;
            let mut is_there = false;
            for name in names {
                let values: Vec<&[u8]> = request.header_values(name).collect();
                let at = format!("the header '{name}'");
                match values.as_slice() {
                    [] => continue,
                    [value] => time = time.or(read(reader, &at, value, steps)),
                    several => {
                        steps.failed(STEP, format!("{at} came {} times; it must come once", several.len()));
                    }
                }
                is_there = true;
            }
            if !is_there {
                let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
                steps.failed(STEP, format!("no header {}{}", names.join(" or "), others(request)));
            }
            time
        }
        Place::Numbered(prefix) => {
            numbered(reader, prefix, request, steps);
            None
        }
        Place::Query(name) => {
            let found = form::field(request.query.as_bytes(), name);
            field(reader, &format!("the query field '{name}'"), found, steps)
        }
        Place::Form(name) => {
            field(reader, &format!("the form field '{name}'"), form::field(request.body, name), steps)
        }
        Place::Json(path) => {
            let at = format!("the body's field '{}'", path.as_str());
            let Ok(document) = Document::parse(request.body.into(), JSON_DEPTH_MAX) else {
                steps.failed(STEP, format!("{at} cannot be read: the body is not JSON"));
                return None;
            };
            match text_at(&document, document.root(), path) {
                Found::Text(text) => read(reader, &at, &text, steps),
                Found::Missing => failed(steps, format!("{at} is missing or no text")),
                Found::Duplicate => failed(steps, format!("{at} is there more than once")),
            }
        }
        Place::Item(path) => {
            items(scheme, reader, path, request, steps);
            None
        }
    }
}

fn failed(steps: &mut Steps, detail: String) -> Option<Vec<u8>> {
    steps.failed(STEP, detail);
    None
}

fn numbered(reader: &Reader, prefix: &str, request: &Request<'_>, steps: &mut Steps) {
    let is_one = |name: &str| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|n| (1..=3).contains(&n.len()) && n.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut is_there = false;
    for (name, value) in request.headers.iter().filter(|(name, _)| is_one(name)) {
        read(reader, &format!("the header '{name}'"), value, steps);
        is_there = true;
    }
    if !is_there {
        steps.failed(STEP, format!("no header '{prefix}1', '{prefix}2' …{}", others(request)));
    }
}

fn field(reader: &Reader, at: &str, found: Field<'_>, steps: &mut Steps) -> Option<Vec<u8>> {
    match found {
        Field::Found(text) => read(reader, at, &text, steps),
        Field::Missing => failed(steps, format!("{at} is missing")),
        Field::Duplicate => failed(steps, format!("{at} is there more than once")),
    }
}

fn items(scheme: &Scheme, reader: &Reader, path: &Path, request: &Request<'_>, steps: &mut Steps) {
    let Ok(document) = Document::parse(request.body.into(), JSON_DEPTH_MAX) else {
        steps.failed(STEP, "the items' signatures cannot be read: the body is not JSON");
        return;
    };
    let list = scheme.readings.first().and_then(|reading| reading.items.first());
    let Some(items) = list.and_then(|list| document.items(list, EVENTS_PER_REQUEST_MAX).ok()) else {
        steps.failed(STEP, "the body does not hold the list of items that the recipe names");
        return;
    };
    let signed = items.iter().filter(|item| {
        let found = text_at(&document, item.at.clone(), path);
        matches!(&found, Found::Text(text) if reader.read(text).is_ok())
    });
    let (signed, all) = (signed.count(), items.len());
    let text = format!("{signed} of {} at '{}' can be read", count(all, "item's signature"), path.as_str());
    if signed == all { steps.passed(STEP, text) } else { steps.failed(STEP, text) }
}

enum Found<'a> {
    Text(Cow<'a, [u8]>),
    Missing,
    Duplicate,
}

fn text_at<'a>(document: &'a Document<'_>, from: std::ops::Range<usize>, path: &Path) -> Found<'a> {
    match document.lookup(from, path) {
        Lookup::Duplicate => Found::Duplicate,
        Lookup::Missing => Found::Missing,
        Lookup::Found(at) => match document.scalar(at) {
            Scalar::Text(Cow::Borrowed(text)) => Found::Text(Cow::Borrowed(text.as_bytes())),
            Scalar::Text(Cow::Owned(text)) => Found::Text(Cow::Owned(text.into_bytes())),
            Scalar::None | Scalar::NotUnicode => Found::Missing,
        },
    }
}

/// Reads one text. Answers the time in it.
fn read(reader: &Reader, at: &str, text: &[u8], steps: &mut Steps) -> Option<Vec<u8>> {
    let length = count(text.len(), "character");
    match reader.read(text) {
        Ok(parsed) => {
            let read = count(parsed.candidates.len(), "signature");
            let form = if is_token(reader) { "" } else { form_of(reader.encoding) };
            steps.passed(STEP, format!("{at} is there, {length}; {read} read{form}"));
            if let Some(hint) = other_encoding(reader, text, true) {
                steps.noted(STEP, hint);
            }
            parsed.ts.map(<[u8]>::to_vec)
        }
        Err(rejection) => {
            let mut detail = format!("{at} is there, {length}: {}", rejection.detail());
            let hints = [prefix(reader, text), tags(reader, text), other_encoding(reader, text, false)];
            for hint in hints.into_iter().flatten() {
                detail.push_str("; ");
                detail.push_str(&hint);
            }
            failed(steps, detail)
        }
    }
}

fn is_token(reader: &Reader) -> bool {
    reader.algorithms.iter().any(|(_, algorithm)| algorithm.is_token())
}

const fn form_of(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Hex => " as hexadecimal",
        Encoding::Base64 => " as base64",
    }
}

const fn name_of(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Hex => "hexadecimal",
        Encoding::Base64 => "base64",
    }
}

/// Whether the other encoding fits. Hexadecimal digits are base64 too, so where both fit only hexadecimal is told.
fn other_encoding(reader: &Reader, text: &[u8], fits: bool) -> Option<String> {
    let other = match reader.encoding {
        Encoding::Hex => Encoding::Base64,
        Encoding::Base64 => Encoding::Hex,
    };
    if is_token(reader) || (fits && reader.encoding == Encoding::Hex) {
        return None;
    }
    let reads = Reader { encoding: other, ..reader.clone() }.read(text).is_ok();
    reads.then(|| format!("it looks like {}, the recipe says {}", name_of(other), name_of(reader.encoding)))
}

/// What stands in front and should not, or does not and should.
fn prefix(reader: &Reader, text: &[u8]) -> Option<String> {
    let List::Plain { prefix, .. } = &reader.list else { return None };
    let begins = |prefix: &str| {
        text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    let have = PREFIXES.iter().find(|prefix| begins(prefix));
    if prefix.is_empty() {
        return have.map(|have| format!("it begins with '{have}', which the recipe does not expect"));
    }
    if text.starts_with(prefix.as_bytes()) {
        return None;
    }
    let instead = have.map(|have| format!(" but with '{have}'")).unwrap_or_default();
    Some(format!("it does not begin with '{prefix}' as the recipe expects{instead}"))
}

/// The keys or tags that are there, where the wanted one is not.
fn tags(reader: &Reader, text: &[u8]) -> Option<String> {
    let (separator, mark) = match &reader.list {
        List::Pairs { separator, .. } => (*separator, b'='),
        List::Standard => (' ', b','),
        List::Plain { .. } | List::Named | List::Positional { .. } => return None,
    };
    let mut keys: Vec<&str> = Vec::new();
    for part in text.split(|byte| char::from(*byte) == separator) {
        let part = part.trim_ascii();
        let key =
            part.iter().position(|byte| *byte == mark).and_then(|at| std::str::from_utf8(&part[..at]).ok());
        let Some(key) = key else { continue };
        let is_short = key.len() <= KEY_BYTES_MAX && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_short && !keys.contains(&key) && keys.len() < NAMES_MAX {
            keys.push(key);
        }
    }
    (!keys.is_empty()).then(|| format!("it holds {}", keys.join(", ")))
}

/// Headers that may hold a signature all the same, by their names.
fn others(request: &Request<'_>) -> String {
    const WORDS: [&str; 7] = ["signature", "hmac", "sign", "token", "authorization", "secret", "digest"];
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in request.headers {
        let is_like_one = name.len() <= 64 && WORDS.iter().any(|word| name.contains(word));
        if is_like_one && !names.contains(name) && names.len() < NAMES_MAX {
            names.push(name);
        }
    }
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}
