//! Checking how a scheme is verified.

use std::time::Duration;

use super::{Checked, bounded, header, invalid, path, template};
use crate::Strength;
use crate::algorithm::Algorithm;
use crate::encoding::Encoding;
use crate::schema::{self, KeyForm, ListForm, UrlForm};
use crate::scheme::{Check, Place, Proof, Reading};
use crate::signature_list::{List, Reader};
use crate::template::{Source, Template, Value};
use crate::window::Window;

/// Longest window, seconds.
const WINDOW_S_MAX: u32 = 7 * 24 * 3600;
/// Most headers that may hold the signature.
const HEADERS_MAX: usize = 4;
/// Most tags of a list.
const TAGS_MAX: usize = 8;
/// Most ways in which a secret may have signed a request to one URL.
const PASSES_MAX: usize = 8;

/// How much a check proves.
pub(super) fn strength(check: &Check, document: Option<&schema::Wrapped>) -> Strength {
    let proof = match check {
        Check::Nothing => return Strength::None,
        Check::Code(verifier, _) => return verifier.strength(),
        Check::Proof(proof) => proof,
    };
    if proof.is_token() {
        return Strength::Token;
    }
    let requires = |source: &Source| proof.message.as_ref().is_some_and(|message| message.requires(source));
    let covers_body = requires(&Source::Body) || requires(&Source::FormSorted) || proof.body_digest.is_some();
    // Where all that is read is one form field, signing that field is signing everything.
    let field = document.and_then(|document| document.form.clone());
    let covers_document = field.is_some_and(|name| requires(&Source::Form(name)));
    match proof.place {
        Place::Headers(_) | Place::Numbered(_) | Place::Query(_) if covers_body => Strength::Body,
        Place::Form(_) if covers_document => Strength::Body,
        Place::Headers(_)
        | Place::Numbered(_)
        | Place::Query(_)
        | Place::Form(_)
        | Place::Json(_)
        | Place::Item(_) => Strength::Fields,
    }
}

/// How a scheme is verified.
pub(super) fn check(at: &str, data: &schema::Scheme, readings: &[Reading]) -> Checked<Check> {
    if let Some(verifier) = &data.verifier {
        let bare = data.signature.is_none()
            && data.algorithm.is_none()
            && data.algorithms.is_empty()
            && data.message.is_none()
            && data.time.is_none()
            && data.body_digest.is_none();
        if !bare {
            return invalid(
                format!("{at}.verifier"),
                "it stands instead of signature, algorithm, message, time and body_digest",
            );
        }
        if !data.keys.is_empty() {
            return invalid(format!("{at}.keys"), "the verifier knows how its secrets become keys");
        }
        verifier.check(&format!("{at}.verifier"))?;
        let forms = verifier.key_form().into_iter().collect();
        return Ok(Check::Code(Box::new(verifier.clone()), forms));
    }
    let algorithms = match (data.algorithm, data.algorithms.is_empty()) {
        (Some(algorithm), true) => vec![(String::new(), algorithm)],
        (None, false) => data.algorithms.clone().into_iter().collect(),
        _ => return invalid(format!("{at}.algorithm"), "give either 'algorithm' or 'algorithms'"),
    };
    if algorithms.iter().any(|(_, algorithm)| *algorithm == Algorithm::None) {
        let bare = data.signature.is_none() && data.message.is_none() && data.time.is_none();
        return if bare && algorithms.len() == 1 {
            Ok(Check::Nothing)
        } else {
            invalid(format!("{at}.algorithm"), "'none' goes with no signature, message or time")
        };
    }
    proof(at, data, algorithms, readings).map(|proof| Check::Proof(Box::new(proof)))
}

fn proof(
    at: &str,
    data: &schema::Scheme,
    algorithms: Vec<(String, Algorithm)>,
    readings: &[Reading],
) -> Checked<Proof> {
    let uses = |algorithm| algorithms.iter().any(|(_, have)| *have == algorithm);
    let is_token = algorithms.iter().any(|(_, algorithm)| algorithm.is_token());
    let (place, list) = match &data.signature {
        Some(signature) => {
            let at = format!("{at}.signature");
            (place(&at, signature, readings)?, list(&at, signature)?)
        }
        // RFC 7617, section 2.
        None if uses(Algorithm::Basic) => (
            Place::Headers(vec!["authorization".to_owned()]),
            List::Plain { prefix: "Basic ".to_owned(), separator: None },
        ),
        None => return invalid(format!("{at}.signature"), "say where the signature is"),
    };
    if matches!(list, List::Standard) == data.algorithms.is_empty() {
        return invalid(
            format!("{at}.algorithms"),
            "the 'standard' list, and only it, has algorithms by tag",
        );
    }
    bounded(&format!("{at}.algorithms"), algorithms.len(), TAGS_MAX)?;
    let message = match &data.message {
        None if is_token && algorithms.len() == 1 => None,
        None => return invalid(format!("{at}.message"), "say what is signed"),
        Some(_) if is_token => {
            return invalid(format!("{at}.message"), "a token that is compared signs no message");
        }
        Some(text) => Some(message(&format!("{at}.message"), data, text, &place, &algorithms)?),
    };
    let keys = match (&data.keys[..], is_token) {
        ([], true) => vec![KeyForm::Text],
        ([], false) => return invalid(format!("{at}.keys"), "say how secrets become keys"),
        (forms, _) => forms.to_vec(),
    };
    bounded(&format!("{at}.keys"), keys.len(), 4)?;
    if (1..keys.len()).any(|n| keys[..n].contains(&keys[n])) {
        return invalid(format!("{at}.keys"), "each form once");
    }
    fitting_keys(&format!("{at}.keys"), &keys, &algorithms)?;
    if matches!(list, List::Named) != keys.contains(&KeyForm::NamedSha1) {
        return invalid(format!("{at}.keys"), "'named' lists and 'named_sha1' keys go together");
    }
    let window = window(at, data, &list, message.as_ref())?;
    let urls = url_forms(at, data, message.as_ref())?;
    let body_digest = body_digest(at, data, message.as_ref())?;
    // Basic authentication is base64 by its standard.
    let basic = if uses(Algorithm::Basic) { Encoding::Base64 } else { Encoding::Hex };
    let encoding = data.encoding.unwrap_or(basic);
    let reader = Reader { list, algorithms, encoding };
    if reader.distinct().count() * keys.len() * urls.len() > PASSES_MAX {
        return invalid(
            at,
            format!(
                "algorithms, keys and urls may be combined in at most {PASSES_MAX} ways: each is a pass over the body"
            ),
        );
    }
    Ok(Proof {
        place,
        reader,
        keys,
        message,
        message_text: data.message.clone().unwrap_or_default(),
        urls,
        body_digest,
        window,
        answered: Vec::new(),
    })
}

fn fitting_keys(at: &str, keys: &[KeyForm], algorithms: &[(String, Algorithm)]) -> Checked<()> {
    let all = |test: fn(Algorithm) -> bool| algorithms.iter().all(|(_, algorithm)| test(*algorithm));
    let pem = keys.iter().any(|form| matches!(form, KeyForm::Pem | KeyForm::Spki));
    if algorithms.iter().any(|(_, algorithm)| algorithm.is_public()) && keys.contains(&KeyForm::Text) {
        return invalid(at, "a public key is written in hexadecimal, base64, as 'whsec', 'pem' or 'spki'");
    }
    if all(|algorithm| matches!(algorithm, Algorithm::RsaSha256 | Algorithm::EcdsaP256Sha256)) && !pem {
        return invalid(at, "a key of RSA or P-256 is written as 'pem' or 'spki'");
    }
    let mixed = !all(Algorithm::is_public) && !all(|algorithm| !algorithm.is_public());
    if mixed && keys.iter().any(|form| *form != KeyForm::Whsec) {
        return invalid(
            at,
            "only 'whsec' tells a public key from a shared secret, which it must never become",
        );
    }
    if pem && !all(Algorithm::is_public) {
        return invalid(at, "'pem' and 'spki' are public keys, which no shared-secret algorithm takes");
    }
    Ok(())
}

fn place(at: &str, data: &schema::Signature, readings: &[Reading]) -> Checked<Place> {
    let given = [
        data.header.is_some(),
        data.numbered.is_some(),
        data.query.is_some(),
        data.form.is_some(),
        data.item.is_some(),
        data.json.is_some(),
    ];
    if given.iter().filter(|given| **given).count() != 1 {
        return invalid(at, "give exactly one of 'header', 'numbered', 'query', 'form', 'item', 'json'");
    }
    if let Some(names) = &data.header {
        bounded(&format!("{at}.header"), names.0.len(), HEADERS_MAX)?;
        if names.0.is_empty() {
            return invalid(format!("{at}.header"), "name at least one header");
        }
        let names =
            names.0.iter().map(|name| header(&format!("{at}.header"), name)).collect::<Checked<_>>()?;
        return Ok(Place::Headers(names));
    }
    if let Some(name) = &data.numbered {
        return Ok(Place::Numbered(header(&format!("{at}.numbered"), name)?));
    }
    if let Some(name) = &data.query {
        return Ok(Place::Query(name.clone()));
    }
    if let Some(name) = &data.form {
        return Ok(Place::Form(name.clone()));
    }
    if let Some(text) = &data.json {
        return Ok(Place::Json(path(&format!("{at}.json"), text)?));
    }
    match readings {
        [reading] if reading.items.len() == 1 => {
            let text = data.item.as_deref().unwrap_or_default();
            Ok(Place::Item(path(&format!("{at}.item"), text)?))
        }
        _ => invalid(format!("{at}.item"), "signatures in items need exactly one path in 'items'"),
    }
}

fn list(at: &str, data: &schema::Signature) -> Checked<List> {
    if data.separator.is_some_and(|separator| !matches!(separator, ',' | ';' | ' ' | '&' | '|')) {
        return invalid(format!("{at}.separator"), "a separator is one of , ; space & |");
    }
    let pairs_only = data.tag.is_some() || data.time.is_some();
    let plain_only = !data.prefix.is_empty();
    match data.list {
        ListForm::Plain if !pairs_only => {
            Ok(List::Plain { prefix: data.prefix.clone(), separator: data.separator })
        }
        ListForm::Standard if !pairs_only && !plain_only && data.separator.is_none() => Ok(List::Standard),
        ListForm::Named if !pairs_only && !plain_only && data.separator.is_none() => Ok(List::Named),
        ListForm::Positional if !pairs_only && !plain_only => match data.separator {
            Some(separator) => Ok(List::Positional { separator }),
            None => invalid(at, "a positional list needs 'separator'"),
        },
        ListForm::Pairs if !plain_only => match (data.separator, &data.tag) {
            (Some(separator), Some(tag)) => {
                Ok(List::Pairs { separator, tag: tag.clone(), time: data.time.clone() })
            }
            _ => invalid(at, "a list of pairs needs 'separator' and 'tag'"),
        },
        ListForm::Plain | ListForm::Standard | ListForm::Named | ListForm::Positional | ListForm::Pairs => {
            invalid(at, "this form of list does not go with 'prefix', 'separator', 'tag' or 'time'")
        }
    }
}

/// What is signed. The body may be parsed before verification only where the signature itself is in it.
fn message(
    at: &str,
    data: &schema::Scheme,
    text: &str,
    place: &Place,
    algorithms: &[(String, Algorithm)],
) -> Checked<Template> {
    let message = template(at, text)?;
    let digest = algorithms.iter().any(|(_, algorithm)| *algorithm == Algorithm::Sha256);
    for value in message.values() {
        let allowed = match value.source {
            Source::Ts | Source::Body | Source::Method | Source::Url | Source::FormSorted => true,
            Source::Header(_) | Source::Query(_) | Source::Setting(_) => true,
            Source::Secret => digest,
            Source::Form(_) => matches!(place, Place::Form(_)),
            Source::Json(_) => matches!(place, Place::Json(_) | Place::Item(_)),
            Source::Item(_) | Source::Outer(_) => matches!(place, Place::Item(_)),
            Source::JsonKeyExcept(_) | Source::Computed | Source::KeyName => false,
        };
        if !allowed {
            return invalid(at, format!("{} cannot be read before verification", value.source.describe()));
        }
    }
    let is_long = |value: &&&Value| matches!(value.source, Source::Body | Source::FormSorted);
    if message.values().iter().filter(is_long).count() > 1 {
        return invalid(at, "the body or the form takes part once");
    }
    // The query is part of the URL, so a digest in it makes the URL more than a constant.
    let is_constant = |value: &&Value| {
        matches!(value.source, Source::Setting(_) | Source::Secret | Source::Method)
            || (value.source == Source::Url && data.body_digest.is_none())
    };
    if message.values().iter().all(is_constant) {
        return invalid(at, "a constant text proves nothing");
    }
    if matches!(place, Place::Query(_)) && message.uses(&Source::Url) {
        return invalid(at, "the URL holds the signature itself, so it cannot be what is signed");
    }
    if digest && !message.requires(&Source::Secret) {
        return invalid(at, "a plain digest proves nothing without '{secret}' in it");
    }
    Ok(message)
}

fn url_forms(at: &str, data: &schema::Scheme, message: Option<&Template>) -> Checked<Vec<UrlForm>> {
    let signs_url = message.is_some_and(|message| message.uses(&Source::Url));
    if !data.urls.is_empty() && !signs_url {
        return invalid(format!("{at}.urls"), "the message does not hold '{url}'");
    }
    bounded(&format!("{at}.urls"), data.urls.len(), 4)?;
    Ok(if data.urls.is_empty() { vec![UrlForm::AsConfigured] } else { data.urls.clone() })
}

/// A digest counts only where the signature covers the place that it is in.
fn body_digest(
    at: &str,
    data: &schema::Scheme,
    message: Option<&Template>,
) -> Checked<Option<(Template, Encoding)>> {
    let Some(digest) = &data.body_digest else { return Ok(None) };
    let at = format!("{at}.body_digest.of");
    let of = template(&at, &digest.of)?;
    let requires = |source: &Source| message.is_some_and(|message| message.requires(source));
    let signed = |source: &Source| {
        let in_query = matches!(source, Source::Query(_)) && requires(&Source::Url);
        matches!(source, Source::Header(_) | Source::Query(_)) && (requires(source) || in_query)
    };
    if of.values().is_empty() || !of.values().iter().all(|value| signed(&value.source)) {
        return invalid(at, "the digest must be in a header or query field that the signature covers");
    }
    Ok(Some((of, digest.encoding)))
}

fn window(
    at: &str,
    data: &schema::Scheme,
    list: &List,
    message: Option<&Template>,
) -> Checked<Option<Window>> {
    let signs_ts = message.is_some_and(|message| message.requires(&Source::Ts));
    let Some(time) = &data.time else {
        return if signs_ts || matches!(list, List::Positional { .. }) {
            invalid(format!("{at}.time"), "say what the time in front of the signatures or in '{ts}' is")
        } else {
            Ok(None)
        };
    };
    let at = format!("{at}.time");
    let source = match (&time.source, list) {
        (None, List::Pairs { time: Some(_), .. } | List::Positional { .. }) => None,
        (None, _) => return invalid(format!("{at}.source"), "say where the time is"),
        (Some(text), _) => Some(template(&format!("{at}.source"), text)?),
    };
    let in_body = source
        .as_ref()
        .is_some_and(|source| source.values().iter().any(|value| matches!(value.source, Source::Json(_))));
    let only = |source: &Template| {
        source.values().iter().all(|value| matches!(value.source, Source::Header(_) | Source::Json(_)))
    };
    if !source.as_ref().is_none_or(only) {
        return invalid(format!("{at}.source"), "a time is in a header or in the JSON body");
    }
    let signed = signs_ts || (in_body && message.is_some_and(|message| message.requires(&Source::Body)));
    if !signed {
        return invalid(at, "a time that is not signed gives no protection; leave it out");
    }
    if in_body && signs_ts && data.signature.as_ref().is_none_or(|place| place.json.is_none()) {
        return invalid(format!("{at}.source"), "the body cannot be read before verification");
    }
    let future_s = time.future_s.unwrap_or(time.past_s);
    if !(1..=WINDOW_S_MAX).contains(&time.past_s) || future_s > WINDOW_S_MAX {
        return invalid(at, format!("the window is at least 1 and at most {WINDOW_S_MAX} seconds"));
    }
    let seconds = |s: u32| Duration::from_secs(s.into());
    let (past, future) = (seconds(time.past_s), seconds(future_s));
    Ok(Some(Window { source, unit: time.unit, past, future, check: time.check }))
}
