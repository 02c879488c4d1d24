//! Handshakes: requests with which a provider checks an endpoint, answered at once and never stored.

use portero_types::limits::JSON_DEPTH_MAX;
use portero_types::{Redacted, Timestamp};
use subtle::ConstantTimeEq as _;

use crate::algorithm::{Key, mac, sha256};
use crate::context::{Context, Problem};
use crate::extract::Readable;
use crate::json::{Document, Lookup, Scalar};
use crate::scheme::{AnswerBody, Guard, Handshake, JsonTemplate, Wanted};
use crate::template::Template;
use crate::verify::secret_unreadable;
use crate::{
    InvalidSecret, Reason, Recipe, Rejection, Reply, Request, Secret, Verified, clean_secret, verify,
};

/// Longest text of an answer, bytes: an answer must not cost more than its question.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// What a handshake calls for.
#[derive(Clone, Debug)]
pub struct HandshakeAnswer {
    /// The reply that the provider waits for.
    pub reply: Reply,
    /// A value that is to become the source's secret before the reply goes out. Only while the source waits for one: else
    /// anybody could give it a secret of theirs, so refuse with [`Reason::HandshakeNotExpected`].
    pub store_secret: Option<Redacted<String>>,
}

/// Answers a handshake, if the request is one of the recipe's.
///
/// `Ok(None)` means that it is none: go on with [`crate::verify()`].
///
/// # Errors
/// A [`Rejection`] when the request looks like a handshake but fails its verification or its guard.
pub fn handshake(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Option<HandshakeAnswer>, Rejection> {
    let mut verified = None;
    for handshake in recipe.handshakes.iter().filter(|handshake| looks_like(handshake, request)) {
        let body = if handshake.verify {
            let verified = match &verified {
                Some(verified) => verified,
                None => verified.insert(verify(recipe, request, secrets, now)?),
            };
            Readable::new(recipe, request, verified)
        } else if handshake.store_secret.is_some() && !handshake.json.is_empty() {
            // Nobody can have signed it yet.
            Readable::only(Document::parse(request.body.into(), JSON_DEPTH_MAX).ok())
        } else {
            Readable::only(None)
        };
        let document = body.document.as_ref();
        if handshake.json.is_empty() || document.is_some_and(|document| json_matches(handshake, document)) {
            let context = Context { document, form: body.form, ..Context::unverified(request) };
            // The secret that verified is the one that the provider has; else it most likely has the newest.
            let proven = verified.as_ref().filter(|_| handshake.verify).and_then(Verified::secret);
            let mut active: Vec<&Secret> = (secrets.iter())
                .filter(|secret| secret.is_active(now) && proven.is_none_or(|no| no == secret.no()))
                .collect();
            active.sort_by_key(|secret| std::cmp::Reverse(secret.not_before()));
            return answer(recipe, handshake, context, &active).map(Some);
        }
    }
    Ok(None)
}

/// What can be seen without the body.
fn looks_like(handshake: &Handshake, request: &Request<'_>) -> bool {
    request.method == handshake.method
        && (!handshake.body_empty || request.body.is_empty())
        && handshake.queries.iter().all(|name| request.has_query(name))
        && handshake.headers_absent.iter().all(|name| request.header_values(name).next().is_none())
        && handshake.headers.iter().all(|(name, value)| {
            let mut have = request.header_values(name);
            have.next().is_some_and(|have| value.as_ref().is_none_or(|value| have == value.as_bytes()))
        })
}

fn json_matches(handshake: &Handshake, document: &Document<'_>) -> bool {
    handshake.json.iter().all(|(path, wanted)| match (document.lookup(document.root(), path), wanted) {
        (Lookup::Missing, Wanted::Absent) | (Lookup::Found(_), Wanted::Present) => true,
        (Lookup::Found(at), Wanted::Equal(wanted)) => {
            matches!(document.scalar(at), Scalar::Text(have) if have == wanted.as_str())
        }
        (Lookup::Missing, Wanted::Equal(_) | Wanted::Present)
        | (Lookup::Found(_), Wanted::Absent)
        | (Lookup::Duplicate, _) => false,
    })
}

fn answer(
    recipe: &Recipe,
    handshake: &Handshake,
    context: Context<'_>,
    active: &[&Secret],
) -> Result<HandshakeAnswer, Rejection> {
    if let Some((value, setting)) = &handshake.token {
        let value = context.fill(value).map_err(|_: Problem<'_>| refused())?;
        expected(&value, setting.as_deref(), context.request, active)?;
    }
    let guarded = handshake.guard.as_ref().map(|guard| harmless(guard, context)).transpose()?;
    let mut key_name = None;
    let computed = match (handshake.compute, &guarded) {
        (Some((algorithm, encoding)), Some(value)) => {
            let newest = (active.iter()).find(|secret| {
                !secret.is_readable() || secret.keys(0).iter().any(|key| key.shared().is_some())
            });
            if newest.is_some_and(|secret| !secret.is_readable()) {
                // An answer by an older one would tell the provider that the URL is somebody else's.
                return Err(secret_unreadable());
            }
            let found = newest.and_then(|secret| {
                secret.keys(0).iter().find_map(Key::shared).map(|key| (secret.name(), key))
            });
            let Some((name, key)) = found else {
                return Err(Rejection::new(Reason::NoActiveSecret, "the source has no active secret"));
            };
            key_name = name;
            Some(encoding.encode(&mac(algorithm, key, value)))
        }
        _ => None,
    };
    let context =
        Context { computed: computed.as_deref(), key_name, text_bytes_max: ANSWER_BYTES_MAX, ..context };
    let store_secret = (handshake.store_secret.as_ref())
        .map(|template| new_secret(recipe, &text(template, context)?))
        .transpose()?;
    let reply = &handshake.reply;
    // What is echoed is text of a stranger's: no browser may make more of it.
    let mut headers = vec![
        ("x-content-type-options".to_owned(), "nosniff".to_owned()),
        ("content-security-policy".to_owned(), "default-src 'none'; sandbox".to_owned()),
    ];
    for (name, template) in &reply.headers {
        let value = text(template, context)?;
        if !crate::compile::is_header_value(&value) {
            return Err(refused());
        }
        headers.push((name.clone(), value));
    }
    let (content_type, body) = match &reply.body {
        AnswerBody::Empty => (None, Vec::new()),
        AnswerBody::Text(template) => {
            (Some("text/plain; charset=utf-8"), text(template, context)?.into_bytes())
        }
        AnswerBody::Json(json) => (Some("application/json"), fill(json, context)?.to_string().into_bytes()),
    };
    if body.len() > 4 * ANSWER_BYTES_MAX {
        return Err(refused());
    }
    let content_type = content_type.map(str::to_owned);
    Ok(HandshakeAnswer { reply: Reply { status: reply.status, content_type, headers, body }, store_secret })
}

/// Whether a token is the one that the provider was told: a setting, or where the source has none, an active secret.
fn expected(
    value: &[u8],
    setting: Option<&str>,
    request: &Request<'_>,
    active: &[&Secret],
) -> Result<(), Rejection> {
    // Digests have one length, so nothing about the token's own length shows.
    let same = |wanted: &[u8]| !value.is_empty() && bool::from(sha256(wanted).ct_eq(&sha256(value)));
    let told = setting.and_then(|name| request.settings.get(name));
    let good = match told {
        Some(wanted) => same(wanted.as_bytes()),
        None => active.iter().flat_map(|secret| secret.keys(0)).filter_map(Key::shared).any(same),
    };
    if good {
        return Ok(());
    }
    if told.is_none() && active.iter().any(|secret| !secret.is_readable()) {
        return Err(secret_unreadable());
    }
    Err(Rejection::new(
        Reason::HandshakeTokenMismatch,
        "the handshake's token is not the one that the provider was told",
    ))
}

/// A value fit to be the source's secret.
fn new_secret(recipe: &Recipe, value: &str) -> Result<Redacted<String>, Rejection> {
    clean_secret(recipe, value).map(Redacted::new).map_err(|_: InvalidSecret| refused())
}

/// The guarded value, if it has the harmless shape.
fn harmless(guard: &Guard, context: Context<'_>) -> Result<Vec<u8>, Rejection> {
    let value = context.fill(&guard.value).map_err(|_: Problem<'_>| refused())?;
    if guard.fits(&value) { Ok(value.into_owned()) } else { Err(refused()) }
}

fn refused() -> Rejection {
    Rejection::new(
        Reason::HandshakeRefused,
        "the handshake lacks its value, or the value has not the documented shape",
    )
}

fn text(template: &Template, context: Context<'_>) -> Result<String, Rejection> {
    let bytes = context.fill(template).map_err(|_: Problem<'_>| refused())?;
    if bytes.len() > ANSWER_BYTES_MAX {
        return Err(refused());
    }
    String::from_utf8(bytes.into_owned()).map_err(|_| refused())
}

fn fill(json: &JsonTemplate, context: Context<'_>) -> Result<serde_json::Value, Rejection> {
    Ok(match json {
        JsonTemplate::Fixed(value) => value.clone(),
        JsonTemplate::Text(template) => serde_json::Value::String(text(template, context)?),
        JsonTemplate::Object(members) => serde_json::Value::Object(
            members
                .iter()
                .map(|(name, json)| Ok((name.clone(), fill(json, context)?)))
                .collect::<Result<_, Rejection>>()?,
        ),
    })
}
