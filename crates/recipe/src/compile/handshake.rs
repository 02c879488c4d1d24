//! Checking handshakes: a handshake that answers with a MAC of the caller's text must not become a signing oracle.

use std::collections::BTreeMap;

use super::{Checked, bounded, characters, header, invalid, path, template};
use crate::info::Setting;
use crate::schema;
use crate::scheme::{Answer, AnswerBody, Guard, Handshake, JsonTemplate, Wanted};
use crate::template::{Source, Template};

/// Longest value that a guard may let through, bytes.
const GUARD_LENGTH_MAX: usize = 256;

/// Most members of an answer in JSON.
const MEMBERS_MAX: usize = 64;

/// Headers of an answer that say something to browsers, caches or proxies about the gateway rather than to the provider.
const NOT_TO_SET: [&str; 16] = [
    "alt-svc",
    "clear-site-data",
    "connection",
    "content-encoding",
    "content-length",
    "content-security-policy",
    "content-type",
    "date",
    "link",
    "location",
    "refresh",
    "service-worker-allowed",
    "set-cookie",
    "strict-transport-security",
    "transfer-encoding",
    "x-content-type-options",
];

/// Gives meaning to a handshake's data.
pub(super) fn handshake(
    at: &str,
    data: &schema::Handshake,
    settings: &BTreeMap<String, Setting>,
) -> Checked<Handshake> {
    let when = &data.when;
    recognisable(at, data)?;
    let mut headers = Vec::new();
    for name in &when.headers {
        headers.push((header(&format!("{at}.when.headers"), name)?, None));
    }
    for (name, value) in &when.header_equals {
        headers.push((header(&format!("{at}.when.header_equals"), name)?, Some(value.clone())));
    }
    let headers_absent = (when.headers_absent.iter())
        .map(|name| header(&format!("{at}.when.headers_absent"), name))
        .collect::<Checked<Vec<_>>>()?;
    let json = json(at, when)?;
    let conditions = headers.len() + headers_absent.len() + json.len() + when.queries.len();
    bounded(&format!("{at}.when"), conditions, 16)?;
    let allowed = Allowed {
        body: data.verify || (data.store_secret.is_some() && !json.is_empty()),
        computed: data.compute.is_some(),
    };
    let guard = data.guard.as_ref().map(|data| guard(&format!("{at}.guard"), data, allowed)).transpose()?;
    let compute = match (&data.compute, &guard) {
        (None, _) => None,
        (Some(_), None) => {
            return invalid(
                format!("{at}.compute"),
                "without 'guard' anybody could have any text signed; say which shape is harmless",
            );
        }
        (Some(compute), Some(guard)) => {
            no_oracle(at, guard)?;
            if !compute.algorithm.is_mac() {
                return invalid(format!("{at}.compute.algorithm"), "an HMAC is computed");
            }
            Some((compute.algorithm, compute.encoding))
        }
    };
    let token = data.token.as_ref().map(|data| token(&format!("{at}.token"), data, settings)).transpose()?;
    let store_secret = (data.store_secret.as_ref())
        .map(|text| part(&format!("{at}.store_secret"), text, Allowed { computed: false, ..allowed }))
        .transpose()?;
    let reply = answer(&format!("{at}.reply"), &data.reply, allowed)?;
    Ok(Handshake {
        method: when.method.clone(),
        headers,
        headers_absent,
        body_empty: when.body_empty,
        queries: when.queries.clone(),
        json,
        verify: data.verify,
        token,
        guard,
        compute,
        store_secret,
        reply,
    })
}

/// A handshake must not be taken for an event, nor look into a body that is not to be trusted.
fn recognisable(at: &str, data: &schema::Handshake) -> Checked<()> {
    let when = &data.when;
    if !matches!(when.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "POST") {
        return invalid(format!("{at}.when.method"), "the method is GET, HEAD, OPTIONS or POST");
    }
    let compares_body = !when.json_equals.is_empty() || !when.json_absent.is_empty();
    let looks_into_body = compares_body || !when.json_present.is_empty();
    // What writes a secret is signed by nobody yet; the source decides whether it waits for one.
    if (compares_body && !data.verify) || (looks_into_body && !data.verify && data.store_secret.is_none()) {
        return invalid(format!("{at}.verify"), "the body may be looked into only after verification");
    }
    if when.method == "POST"
        && when.headers.is_empty()
        && when.header_equals.is_empty()
        && when.queries.is_empty()
        && when.json_equals.is_empty()
        && when.json_present.is_empty()
    {
        return invalid(format!("{at}.when"), "it would answer every event; say how it is recognised");
    }
    Ok(())
}

fn json(at: &str, when: &schema::Match) -> Checked<Vec<(crate::path::Path, Wanted)>> {
    let mut json = Vec::new();
    for (text, value) in &when.json_equals {
        json.push((path(&format!("{at}.when.json_equals"), text)?, Wanted::Equal(value.clone())));
    }
    for text in &when.json_present {
        json.push((path(&format!("{at}.when.json_present"), text)?, Wanted::Present));
    }
    for text in &when.json_absent {
        json.push((path(&format!("{at}.when.json_absent"), text)?, Wanted::Absent));
    }
    Ok(json)
}

fn token(
    at: &str,
    data: &schema::Token,
    settings: &BTreeMap<String, Setting>,
) -> Checked<(Template, Option<String>)> {
    if let Some(name) = &data.setting
        && !settings.contains_key(name)
    {
        return invalid(format!("{at}.setting"), format!("'settings' has no '{name}'"));
    }
    let value = part(&format!("{at}.value"), &data.value, Allowed { body: false, computed: false })?;
    Ok((value, data.setting.clone()))
}

/// No signed message may have the guarded shape. Events are JSON, forms or have a time with punctuation in front, so
/// letters, digits, `-` and `_` alone are harmless.
fn no_oracle(at: &str, guard: &Guard) -> Checked<()> {
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if guard.allowed.iter().all(harmless) {
        Ok(())
    } else {
        invalid(
            format!("{at}.guard.characters"),
            "a value that is signed may hold only letters, digits, '-' and '_'",
        )
    }
}

#[derive(Clone, Copy)]
struct Allowed {
    /// Whether the body may be looked into.
    body: bool,
    computed: bool,
}

fn guard(at: &str, data: &schema::Guard, allowed: Allowed) -> Checked<Guard> {
    let value = part(&format!("{at}.value"), &data.value, Allowed { computed: false, ..allowed })?;
    if data.length_min == 0 || data.length_min > data.length_max || data.length_max > GUARD_LENGTH_MAX {
        return invalid(at, format!("lengths are 1 to {GUARD_LENGTH_MAX}, the least first"));
    }
    let Some(characters) = characters::set(&data.characters) else {
        return invalid(format!("{at}.characters"), characters::MISTAKE);
    };
    Ok(Guard { value, allowed: characters, length: data.length_min..=data.length_max })
}

fn answer(at: &str, data: &schema::ReplyTemplate, allowed: Allowed) -> Checked<Answer> {
    if !(200..300).contains(&data.status) {
        return invalid(format!("{at}.status"), "the status is 200 to 299");
    }
    bounded(&format!("{at}.headers"), data.headers.len(), 8)?;
    let headers = (data.headers.iter())
        .map(|(name, text)| {
            let name = header(&format!("{at}.headers"), name)?;
            if NOT_TO_SET.contains(&name.as_str()) || name.starts_with("access-control-") {
                return invalid(format!("{at}.headers"), format!("'{name}' is not the recipe's to set"));
            }
            Ok((name, part(&format!("{at}.headers"), text, allowed)?))
        })
        .collect::<Checked<_>>()?;
    let body = match (&data.text, &data.json) {
        (None, None) => AnswerBody::Empty,
        (Some(text), None) => AnswerBody::Text(part(&format!("{at}.text"), text, allowed)?),
        (None, Some(json)) if members(json) > MEMBERS_MAX => {
            return invalid(format!("{at}.json"), format!("at most {MEMBERS_MAX} members"));
        }
        (None, Some(json)) => AnswerBody::Json(json_template(&format!("{at}.json"), json, allowed)?),
        (Some(_), Some(_)) => return invalid(at, "give 'text' or 'json'"),
    };
    Ok(Answer { status: data.status, headers, body })
}

/// The members of a JSON value and of all in it.
fn members(json: &serde_json::Value) -> usize {
    json.as_object().map_or(0, |object| object.values().map(|value| 1 + members(value)).sum())
}

fn json_template(at: &str, data: &serde_json::Value, allowed: Allowed) -> Checked<JsonTemplate> {
    use serde_json::Value;
    match data {
        Value::String(text) => Ok(JsonTemplate::Text(part(at, text, allowed)?)),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| Ok((name.clone(), json_template(&format!("{at}.{name}"), value, allowed)?)))
            .collect::<Checked<_>>()
            .map(JsonTemplate::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(JsonTemplate::Fixed(data.clone())),
        Value::Array(_) => invalid(at, "arrays are not supported"),
    }
}

fn part(at: &str, text: &str, allowed: Allowed) -> Checked<Template> {
    let template = template(at, text)?;
    for value in template.values() {
        let fine = match value.source {
            Source::Header(_) | Source::Query(_) | Source::Method => true,
            Source::Json(_) | Source::Form(_) => allowed.body,
            Source::Computed | Source::KeyName => allowed.computed,
            Source::Ts
            | Source::Body
            | Source::Url
            | Source::FormSorted
            | Source::Setting(_)
            | Source::Secret
            | Source::JsonKeyExcept(_)
            | Source::Item(_)
            | Source::Outer(_) => false,
        };
        if !fine {
            return invalid(at, format!("{} cannot be used here", value.source.describe()));
        }
    }
    Ok(template)
}
