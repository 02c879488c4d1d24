//! Signing, the inverse of verification: for the command line, tests and senders.

use std::collections::BTreeMap;
use std::ops::Range;

use portero_types::limits::EVENTS_PER_REQUEST_MAX;
use portero_types::{SecretNo, Timestamp};

use crate::algorithm::{Algorithm, Key, mac, sha256};
use crate::certificate::PrivateKey;
use crate::context::Context;
use crate::encoding::Encoding;
use crate::form::{self, Field};
use crate::json::{Document, Lookup};
use crate::path::{Path, Segment};
use crate::scheme::{Check, Place, Proof, Scheme};
use crate::secret::seed;
use crate::template::{Part, Source, Template};
use crate::url_form::urls;
use crate::verifier::Signing;
use crate::{InvalidSecret, Recipe, Request, Secret};

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
#[derive(Clone, Debug)]
pub struct SignedRequest {
    /// All headers that the provider would send, lower-case names.
    pub headers: Vec<(String, String)>,
    /// The query, without `?`.
    pub query: String,
    /// The body; differs from the given one where signatures live in it.
    pub body: Vec<u8>,
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
        Place::Numbered(prefix) => in_header = Some((format!("{prefix}1"), signer.sign(proof, context, &ts)?)),
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
    for value in source.values() {
        match &value.source {
            Source::Header(name) => set(headers, name, &written),
            Source::Json(_) if matches!(proof.place, Place::Json(_)) => {
                let document = parse(body)?;
                let request = Request::new("POST", "", &[], body);
                let context = Context { document: Some(&document), ..Context::unverified(&request) };
                let text = context.fill(source).map_err(|problem| {
                    SignError::Missing(problem.of_signed_part().detail().to_owned())
                })?;
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            _ => {}
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

/// The scheme asked for; or the first whose signatures fit the body: one with signatures in items if the body has such,
/// one that signs the sorted form if it is a form, else any that the headers and the query allow.
fn choose<'r>(
    recipe: &'r Recipe,
    body: &[u8],
    options: &SignOptions<'_>,
) -> Result<(usize, &'r Scheme), SignError> {
    if let Some(n) = options.scheme {
        return recipe.schemes.get(n).map(|scheme| (n, scheme)).ok_or(SignError::NoSuchScheme);
    }
    let document = parse(body).ok();
    let has_items = |scheme: &Scheme| {
        matches!(scheme.proof().map(|proof| &proof.place), Some(Place::Item(_)))
            && document.as_ref().is_some_and(|document| {
                let items = list_of(scheme).map(|path| document.items(path, EVENTS_PER_REQUEST_MAX));
                items.is_some_and(|items| items.is_ok_and(|items| !items.is_empty()))
            })
    };
    let is_form = options.headers.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("content-type") && value.starts_with("application/x-www-form-urlencoded")
    });
    let signs_form = |scheme: &Scheme| {
        let message = scheme.proof().and_then(|proof| proof.message.as_ref());
        is_form && message.is_some_and(|message| message.uses(&Source::FormSorted))
    };
    let schemes = || recipe.schemes.iter().enumerate().filter(|(_, scheme)| allowed(scheme, options));
    schemes()
        .find(|(_, scheme)| has_items(scheme))
        .or_else(|| schemes().find(|(_, scheme)| signs_form(scheme)))
        .or_else(|| schemes().next())
        .or_else(|| recipe.schemes.iter().enumerate().next())
        .ok_or(SignError::NoSuchScheme)
}

/// Whether what a scheme is known by is there, or comes with the signature.
fn allowed(scheme: &Scheme, options: &SignOptions<'_>) -> bool {
    let proof = scheme.proof();
    let header = scheme.when_header.as_ref().is_none_or(|name| {
        let comes = proof.is_some_and(
            |proof| matches!(&proof.place, Place::Headers(names) if names.first() == Some(name)),
        );
        comes || options.headers.iter().any(|(have, _)| have.eq_ignore_ascii_case(name))
    });
    let query = scheme.when_query.as_ref().is_none_or(|name| {
        let digest = proof.and_then(|proof| proof.body_digest.as_ref());
        let comes = digest.is_some_and(|(of, _)| of.uses(&Source::Query(name.clone())));
        comes || form::field(options.query.as_bytes(), name) != Field::Missing
    });
    header && query
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

/// What makes signatures.
enum Signer {
    Shared(Algorithm, Key, String),
    Private(Algorithm, Box<PrivateKey>),
}

impl Signer {
    fn new(recipe: &Recipe, proof: &Proof, scheme: usize, secret: &str) -> Result<Self, SignError> {
        let public = proof.reader.algorithms.iter().find(|(_, algorithm)| algorithm.is_public());
        if let Some((_, algorithm)) = public {
            if let Ok(key) = PrivateKey::from_pem(secret) {
                return Ok(Self::Private(*algorithm, Box::new(key)));
            }
            if let Some(seed) = proof.keys.iter().find_map(|form| seed(*form, secret)) {
                let key = ed25519_dalek::SigningKey::from_bytes(&seed);
                return Ok(Self::Private(Algorithm::Ed25519, Box::new(PrivateKey::Ed25519(Box::new(key)))));
            }
        }
        let secret = match Secret::new(recipe, SecretNo(0), secret, Timestamp::EPOCH, None) {
            Err(_) if public.is_some() => return Err(SignError::PrivateKeyNeeded),
            secret => secret?,
        };
        for key in secret.keys(scheme) {
            let fitting = proof.reader.algorithms.iter().find(|(_, algorithm)| key.fits(*algorithm));
            if let (Some((_, algorithm)), Key::Shared(_)) = (fitting, key) {
                let name = secret.name().unwrap_or_default().to_owned();
                return Ok(Self::Shared(*algorithm, key.clone(), name));
            }
        }
        Err(SignError::PrivateKeyNeeded)
    }

    /// The signature, written as the provider writes it.
    fn sign(&self, proof: &Proof, context: Context<'_>, ts: &str) -> Result<String, SignError> {
        let shared = match self {
            Self::Shared(_, key, _) => key.shared(),
            Self::Private(..) => None,
        };
        let context = Context { secret: shared, ..context };
        let message = match &proof.message {
            Some(template) => context
                .fill(template)
                .map_err(|problem| SignError::Missing(problem.of_signed_part().detail().to_owned()))?,
            None => (&[][..]).into(),
        };
        let (algorithm, name, signature) = match self {
            Self::Private(algorithm, key) => {
                let pair = algorithm.key_pair().ok_or(SignError::PrivateKeyNeeded)?;
                (*algorithm, "", key.sign(pair, &message).ok_or(SignError::PrivateKeyNeeded)?)
            }
            Self::Shared(algorithm, key, name) => {
                let key = key.shared().unwrap_or_default();
                let signature = match algorithm {
                    Algorithm::Equal | Algorithm::Basic => key.to_vec(),
                    Algorithm::Sha256 => sha256(&message),
                    _ => mac(*algorithm, key, &message),
                };
                (*algorithm, name.as_str(), signature)
            }
        };
        Ok(proof.reader.write(algorithm, name, &signature, ts))
    }
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

/// Writes a string at a path below the object at `from`: in place of the value there, or as a new first member. Up to
/// that object, `bytes` and `document` are the same.
fn place_in(
    bytes: &[u8],
    document: &Document<'_>,
    from: Range<usize>,
    path: &Path,
    text: &str,
) -> Result<Vec<u8>, SignError> {
    let mut value = serde_json::Value::String(text.to_owned()).to_string();
    if let Lookup::Found(at) = document.lookup(from.clone(), path) {
        return Ok([&bytes[..at.start], value.as_bytes(), &bytes[at.end..]].concat());
    }
    let names: Vec<&str> = path
        .segments()
        .iter()
        .map(|segment| match segment {
            Segment::Name { name, .. } => Ok(name.as_str()),
            Segment::Each => Err(SignError::BodyShape),
        })
        .collect::<Result<_, _>>()?;
    // The deepest object on the way that exists takes what is missing.
    let mut parent = from;
    let mut depth = 0;
    while depth + 1 < names.len() {
        let step = Path::parse(names[depth]).map_err(|_| SignError::BodyShape)?;
        match document.lookup(parent.clone(), &step) {
            Lookup::Found(at) => parent = at,
            Lookup::Missing => break,
            Lookup::Duplicate => return Err(SignError::BodyShape),
        }
        depth += 1;
    }
    if bytes.get(parent.start) != Some(&b'{') {
        return Err(SignError::BodyShape);
    }
    for name in names[depth + 1..].iter().rev() {
        value = format!("{{{}:{value}}}", serde_json::Value::from(*name));
    }
    let rest = &bytes[parent.start + 1..];
    let is_empty = rest.trim_ascii_start().first() == Some(&b'}');
    let comma = if is_empty { "" } else { "," };
    let member = format!("{}:{value}{comma}", serde_json::Value::from(names[depth]));
    Ok([&bytes[..=parent.start], member.as_bytes(), rest].concat())
}
