//! Signing, the inverse of verification: for the command line, tests and senders.

mod choose;
mod place;
mod signer;

use std::collections::BTreeMap;

use portero_types::Timestamp;
use portero_types::limits::EVENTS_PER_REQUEST_MAX;

use crate::algorithm::sha256;
use crate::context::Context;
use crate::encoding::Encoding;
use crate::form::{self, Field};
use crate::json::Document;
use crate::path::Path;
use crate::scheme::{Check, Place, Proof, Scheme};
use crate::template::{Part, Source, Template};
use crate::url_form::urls;
use crate::verifier::Signing;
use crate::{InvalidSecret, Recipe, Request};
use choose::choose;
use place::place_in;
use signer::Signer;

/// No settings.
static NO_SETTINGS: BTreeMap<String, String> = BTreeMap::new();

/// What to sign with, beside the body.
#[derive(Clone, Copy, Debug)]
pub struct SignOptions<'a> {
    /// The event id, where the provider sends it in a header.
    pub id: Option<&'a str>,
    /// The event type, where the provider sends it in a header.
    pub event_type: &'a str,
    /// The time that is signed, where the provider signs one.
    pub now: Timestamp,
    /// The endpoint's public URL, where the provider signs it.
    pub url: Option<&'a str>,
    /// The query with which the request will be sent, without `?`. A scheme may add to it, see [`SignedRequest::query`].
    pub query: &'a str,
    /// The source's settings.
    pub settings: &'a BTreeMap<String, String>,
    /// Headers to send in addition; they may take part in the signed text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Which of the recipe's schemes to use, counted from 0; `None` takes the first that fits the body.
    pub scheme: Option<usize>,
}

impl Default for SignOptions<'_> {
    fn default() -> Self {
        Self {
            id: None,
            event_type: "",
            now: Timestamp::EPOCH,
            url: None,
            query: "",
            settings: &NO_SETTINGS,
            headers: &[],
            scheme: None,
        }
    }
}

/// A request ready to be sent by POST.
#[derive(Clone)]
pub struct SignedRequest {
    /// All headers that the provider would send, lower-case names.
    pub headers: Vec<(String, String)>,
    /// The query, without `?`.
    pub query: String,
    /// The body; differs from the given one where signatures live in it.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for SignedRequest {
    /// Shows the shape only: whoever has signature and body can send them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignedRequest")
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why a request cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The secret does not fit the recipe.
    #[error(transparent)]
    Secret(#[from] InvalidSecret),
    /// The recipe has no scheme of that number.
    #[error("the recipe has no such scheme")]
    NoSuchScheme,
    /// Something that takes part in the signed text is missing or ambiguous.
    #[error("{0}")]
    Missing(String),
    /// The body has no place for the signature.
    #[error("the body has not the shape that this provider's signatures need")]
    BodyShape,
    /// The provider signs with a private key, which the given secret is not.
    #[error(
        "this provider signs with a private key: give it as PEM (PKCS #8), as 'whsk_…', or its 32 bytes in the recipe's \
         key form"
    )]
    PrivateKeyNeeded,
    /// Only the provider itself can sign: its key is fetched from its own servers.
    #[error("only the provider can sign: the key is fetched from its own servers")]
    CannotSign,
}

/// Signs a body as the provider would.
///
/// For public-key schemes `secret` is the private key: `whsk_` and base64, or its 32 bytes in the recipe's key form.
///
/// # Errors
/// [`SignError`] when the secret does not fit or something that takes part in the signed text is missing.
pub fn sign(
    recipe: &Recipe,
    secret: &str,
    body: &[u8],
    options: SignOptions<'_>,
) -> Result<SignedRequest, SignError> {
    let (scheme_no, scheme) = choose(recipe, body, &options)?;
    let mut headers = carried_headers(scheme, &options);
    let mut query = options.query.to_owned();
    let proof = match &scheme.check {
        Check::Nothing => return Ok(SignedRequest { headers, query, body: body.to_vec() }),
        Check::Code(verifier, _) => {
            let values = borrowed(&headers);
            let urls: Vec<String> = options.url.map(str::to_owned).into_iter().collect();
            let request = Request {
                public_urls: &urls,
                settings: options.settings,
                ..Request::new("POST", &query, &values, body)
            };
            let added = verifier.sign(&Signing { request: &request, secret, now: options.now })?;
            for (name, value) in added {
                set(&mut headers, &name, &value);
            }
            return Ok(SignedRequest { headers, query, body: body.to_vec() });
        }
        Check::Proof(proof) => proof,
    };
    let signer = Signer::new(recipe, proof, scheme_no, secret)?;
    let ts = signed_time(proof, &options, body, &mut headers)?;
    if let Some((of, encoding)) = &proof.body_digest {
        carry_digest(of, *encoding, body, &mut headers, &mut query);
    }
    let values = borrowed(&headers);
    let public_urls: Vec<String> = options.url.map(str::to_owned).into_iter().collect();
    let request = Request {
        public_urls: &public_urls,
        settings: options.settings,
        ..Request::new("POST", &query, &values, body)
    };
    let url = urls(&request, &proof.urls).into_iter().next();
    let context = Context {
        ts: Some(ts.as_bytes()),
        url: url.as_deref(),
        form: Some(body),
        ..Context::unverified(&request)
    };
    let mut body = body.to_vec();
    let mut in_header = None;
    let mut in_query = None;
    match &proof.place {
        Place::Headers(names) => {
            let name = names.first().cloned().unwrap_or_default();
            in_header = Some((name, signer.sign(proof, context, &ts)?));
        }
        Place::Numbered(prefix) => {
            in_header = Some((format!("{prefix}1"), signer.sign(proof, context, &ts)?));
        }
        Place::Query(name) => in_query = Some((name, signer.sign(proof, context, &ts)?)),
        Place::Form(name) => body = form_with(&body, name, &signer.sign(proof, context, &ts)?),
        Place::Json(path) => {
            let document = parse(request.body)?;
            let text = signer.sign(proof, Context { document: Some(&document), ..context }, &ts)?;
            body = place_in(request.body, &document, document.root(), path, &text)?;
        }
        Place::Item(path) => body = sign_items(proof, &signer, scheme, path, context)?,
    }
    if let Some((name, text)) = in_header {
        set(&mut headers, &name, &text);
    }
    if let Some((name, text)) = in_query {
        add_field(&mut query, name, &text);
    }
    Ok(SignedRequest { headers, query, body })
}

fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// The time as the provider writes it, and puts it into its header. One in the body stays as it is there.
fn signed_time(
    proof: &Proof,
    options: &SignOptions<'_>,
    body: &[u8],
    headers: &mut Vec<(String, String)>,
) -> Result<String, SignError> {
    let Some(window) = &proof.window else { return Ok(String::new()) };
    let written = window.write(options.now);
    let Some(source) = &window.source else { return Ok(written) };
    let in_body = matches!(proof.place, Place::Json(_));
    for value in source.values() {
        if let Source::Header(name) = &value.source {
            set(headers, name, &written);
        } else if in_body && matches!(value.source, Source::Json(_)) {
            let document = parse(body)?;
            let request = Request::new("POST", "", &[], body);
            let context = Context { document: Some(&document), ..Context::unverified(&request) };
            let text = context
                .fill(source)
                .map_err(|problem| SignError::Missing(problem.of_signed_part().detail().to_owned()))?;
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
    Ok(written)
}

/// Puts the body's digest where the signature covers it.
fn carry_digest(
    of: &Template,
    encoding: Encoding,
    body: &[u8],
    headers: &mut Vec<(String, String)>,
    query: &mut String,
) {
    let digest = encoding.encode(&sha256(body));
    match of.values().first().map(|value| &value.source) {
        Some(Source::Header(name)) => set(headers, name, &digest),
        Some(Source::Query(name)) if form::field(query.as_bytes(), name) == Field::Missing => {
            add_field(query, name, &digest);
        }
        _ => {}
    }
}

/// Adds a field to a form or query.
fn add_field(form: &mut String, name: &str, value: &str) {
    if !form.is_empty() {
        form.push('&');
    }
    form.push_str(&format!("{}={}", form::encode(name), form::encode(value)));
}

fn form_with(body: &[u8], name: &str, value: &str) -> Vec<u8> {
    let mut field = String::new();
    add_field(&mut field, name, value);
    let separator = if body.is_empty() { &b""[..] } else { b"&" };
    [field.as_bytes(), separator, body].concat()
}

/// The path to the items of a scheme that signs each.
fn list_of(scheme: &Scheme) -> Option<&Path> {
    scheme.readings.first().and_then(|reading| reading.items.first())
}

fn parse(body: &[u8]) -> Result<Document<'_>, SignError> {
    Document::parse(body.into(), usize::MAX).map_err(|_| SignError::BodyShape)
}

/// Headers in which the provider sends the id and the type.
fn carried_headers(scheme: &Scheme, options: &SignOptions<'_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    if let (Some(header), Some(_)) = (&scheme.when_header, options.scheme) {
        // Presence is what chooses the scheme; a signature overwrites it.
        set(&mut headers, header, "1");
    }
    let Some(reading) = scheme.readings.first() else { return headers };
    if let (Some(id), Some(name)) = (options.id, reading.id.first().and_then(leading_header)) {
        set(&mut headers, name, id);
    }
    if let Some(template) = reading.event_type.first()
        && let Some(name) = leading_header(template)
    {
        // What follows the header in the type comes from the body.
        let part = match template.parts.get(1) {
            Some(Part::Group(parts)) => match parts.first() {
                Some(Part::Literal(mark)) => options.event_type.split(mark.as_str()).next(),
                _ => None,
            },
            _ => None,
        };
        set(&mut headers, name, part.unwrap_or(options.event_type));
    }
    for (name, value) in options.headers {
        set(&mut headers, name, value);
    }
    headers
}

fn leading_header(template: &Template) -> Option<&str> {
    let Some(Part::Value(value)) = template.parts.first() else { return None };
    if let Source::Header(name) = &value.source { Some(name) } else { None }
}

fn set(headers: &mut Vec<(String, String)>, name: &str, value: &str) {
    let name = name.to_ascii_lowercase();
    headers.retain(|(have, _)| *have != name);
    headers.push((name, value.to_owned()));
}

/// Signs each item and writes the signatures into the body, from the last to the first so that places stay valid.
fn sign_items(
    proof: &Proof,
    signer: &Signer,
    scheme: &Scheme,
    path: &Path,
    context: Context<'_>,
) -> Result<Vec<u8>, SignError> {
    let mut body = context.request.body.to_vec();
    let document = parse(context.request.body)?;
    let list = list_of(scheme).ok_or(SignError::BodyShape)?;
    let items = document.items(list, EVENTS_PER_REQUEST_MAX).map_err(|_| SignError::BodyShape)?;
    for item in items.iter().rev() {
        let context =
            Context { document: Some(&document), item: Some(&item.at), outer: Some(&item.outer), ..context };
        let text = signer.sign(proof, context, "")?;
        body = place_in(&body, &document, item.at.clone(), path, &text)?;
    }
    Ok(body)
}
