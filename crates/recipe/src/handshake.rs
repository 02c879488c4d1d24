//! Handshakes: requests with which a provider checks an endpoint, answered at once and never stored.

use portero_types::Timestamp;

use crate::algorithm::{Key, mac};
use crate::context::{Context, Problem};
use crate::extract::Readable;
use crate::json::{Document, Lookup, Scalar};
use crate::scheme::{AnswerBody, Guard, Handshake, JsonTemplate};
use crate::template::Template;
use crate::{Reason, Recipe, Rejection, Reply, Request, Secret, verify};

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
) -> Result<Option<Reply>, Rejection> {
    for handshake in recipe.handshakes.iter().filter(|handshake| looks_like(handshake, request)) {
        let body = if handshake.verify {
            verify(recipe, request, secrets, now)?;
            Readable::new(recipe, request.body)
        } else {
            Readable { document: None, form: None }
        };
        let document = body.document.as_ref();
        if handshake.json.is_empty() || document.is_some_and(|document| json_matches(handshake, document)) {
            let context = Context { document, form: body.form, ..Context::unverified(request) };
            return answer(handshake, context, secrets, now).map(Some);
        }
    }
    Ok(None)
}

/// What can be seen without the body.
fn looks_like(handshake: &Handshake, request: &Request<'_>) -> bool {
    request.method == handshake.method
        && handshake.queries.iter().all(|name| request.has_query(name))
        && handshake.headers.iter().all(|(name, value)| {
            let mut have = request.header_values(name);
            have.next().is_some_and(|have| value.as_ref().is_none_or(|value| have == value.as_bytes()))
        })
}

fn json_matches(handshake: &Handshake, document: &Document<'_>) -> bool {
    handshake.json.iter().all(|(path, wanted)| match (document.lookup(document.root(), path), wanted) {
        (Lookup::Missing, None) => true,
        (Lookup::Found(at), Some(wanted)) => {
            matches!(document.scalar(at), Scalar::Text(have) if have == wanted.as_str())
        }
        (Lookup::Missing | Lookup::Duplicate, Some(_)) | (Lookup::Found(_) | Lookup::Duplicate, None) => {
            false
        }
    })
}

fn answer(
    handshake: &Handshake,
    context: Context<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Reply, Rejection> {
    let guarded = handshake.guard.as_ref().map(|guard| harmless(guard, context)).transpose()?;
    let computed = match (handshake.compute, &guarded) {
        (Some((algorithm, encoding)), Some(value)) => {
            let key = secrets.iter().filter(|secret| secret.is_active(now)).find_map(|secret| {
                secret.keys(0).iter().find_map(|key| match key {
                    Key::Shared(key) => Some(key),
                    Key::Ed25519(_) => None,
                })
            });
            let Some(key) = key else {
                return Err(Rejection::new(Reason::NoActiveSecret, "the source has no active secret"));
            };
            Some(encoding.encode(&mac(algorithm, key.expose_secret(), value)))
        }
        _ => None,
    };
    let context = Context { computed: computed.as_deref(), ..context };
    let reply = &handshake.reply;
    let mut headers = vec![("x-content-type-options".to_owned(), "nosniff".to_owned())];
    for (name, template) in &reply.headers {
        let value = text(template, context)?;
        if !crate::compile::is_header_value(&value) {
            return Err(refused());
        }
        headers.retain(|(have, _)| have != name);
        headers.push((name.clone(), value));
    }
    let (content_type, body) = match &reply.body {
        AnswerBody::Empty => (None, Vec::new()),
        AnswerBody::Text(template) => {
            (Some("text/plain; charset=utf-8"), text(template, context)?.into_bytes())
        }
        AnswerBody::Json(json) => (Some("application/json"), fill(json, context)?.to_string().into_bytes()),
    };
    Ok(Reply { status: reply.status, content_type: content_type.map(str::to_owned), headers, body })
}

/// The guarded value, if it has the harmless shape.
fn harmless(guard: &Guard, context: Context<'_>) -> Result<Vec<u8>, Rejection> {
    let value = context.fill(&guard.value).map_err(|_: Problem<'_>| refused())?;
    let fits = guard.length.contains(&value.len()) && value.iter().all(|byte| guard.allowed.contains(byte));
    if fits { Ok(value.into_owned()) } else { Err(refused()) }
}

fn refused() -> Rejection {
    Rejection::new(
        Reason::HandshakeRefused,
        "the handshake lacks its value, or the value has not the documented shape",
    )
}

fn text(template: &Template, context: Context<'_>) -> Result<String, Rejection> {
    let bytes = context.fill(template).map_err(|_: Problem<'_>| refused())?;
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
