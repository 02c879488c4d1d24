//! Signing, the inverse of verification: for the command line, tests and senders.

use std::ops::Range;

use portero_types::limits::EVENTS_PER_REQUEST_MAX;
use portero_types::{SecretNo, Timestamp};

use crate::algorithm::{Algorithm, Key, mac, sign_ed25519};
use crate::context::Context;
use crate::json::{Document, Lookup};
use crate::path::{Path, Segment};
use crate::scheme::{Place, Proof, Scheme};
use crate::secret::seed;
use crate::template::{Part, Source, Template};
use crate::{InvalidSecret, Recipe, Request, Secret};

/// What to sign with, beside the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct SignOptions<'a> {
    /// The event id, where the provider sends it in a header.
    pub id: Option<&'a str>,
    /// The event type, where the provider sends it in a header.
    pub event_type: &'a str,
    /// The time that is signed, where the provider signs one.
    pub now: Timestamp,
    /// The endpoint's public URL, where the provider signs it.
    pub url: Option<&'a str>,
    /// Headers to send in addition; they may take part in the signed text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Which of the recipe's schemes to use, counted from 0; `None` takes the first that fits the body.
    pub scheme: Option<usize>,
}

/// A request ready to be sent by POST.
#[derive(Clone, Debug)]
pub struct SignedRequest {
    /// All headers that the provider would send, lower-case names.
    pub headers: Vec<(String, String)>,
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
        "this provider signs with a private key: give 'whsk_…', or its 32 bytes in the recipe's key form"
    )]
    PrivateKeyNeeded,
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
    let (scheme_no, scheme) = choose(recipe, body, options.scheme)?;
    let mut headers = carried_headers(scheme, &options);
    let Some(proof) = &scheme.proof else {
        return Ok(SignedRequest { headers, body: body.to_vec() });
    };
    let signer = Signer::new(recipe, proof, scheme_no, secret)?;
    let ts = proof.window.as_ref().map(|window| window.write(options.now)).unwrap_or_default();
    if let Some(source) = proof.window.as_ref().and_then(|window| window.source.as_ref()) {
        for value in source.values() {
            if let Source::Header(name) = &value.source {
                set(&mut headers, name, &ts);
            }
        }
    }
    let values: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let request = Request { method: "POST", query: "", headers: &values, body, public_url: options.url };
    let context = Context { ts: Some(ts.as_bytes()), ..Context::unverified(&request) };
    let body = match &proof.place {
        Place::Header(name) => {
            let text = signer.sign(proof, context, &ts)?;
            set(&mut headers, name, &text);
            body.to_vec()
        }
        Place::Numbered(prefix) => {
            let text = signer.sign(proof, context, &ts)?;
            set(&mut headers, &format!("{prefix}1"), &text);
            body.to_vec()
        }
        Place::Json(path) => {
            let document = parse(body)?;
            let text = signer.sign(proof, Context { document: Some(&document), ..context }, &ts)?;
            place_in(body, &document, document.root(), path, &text)?
        }
        Place::Item(path) => sign_items(proof, &signer, scheme, path, context)?,
    };
    Ok(SignedRequest { headers, body })
}

/// The scheme asked for, or the first whose signatures fit the body: one with signatures in items, if the body has such.
fn choose<'r>(
    recipe: &'r Recipe,
    body: &[u8],
    asked: Option<usize>,
) -> Result<(usize, &'r Scheme), SignError> {
    if let Some(n) = asked {
        return recipe.schemes.get(n).map(|scheme| (n, scheme)).ok_or(SignError::NoSuchScheme);
    }
    let document = parse(body).ok();
    let has_items = |scheme: &Scheme| {
        matches!(scheme.proof.as_ref().map(|proof| &proof.place), Some(Place::Item(_)))
            && document.as_ref().is_some_and(|document| {
                let items = scheme.items.first().map(|path| document.items(path, EVENTS_PER_REQUEST_MAX));
                items.is_some_and(|items| items.is_ok_and(|items| !items.is_empty()))
            })
    };
    let schemes = || recipe.schemes.iter().enumerate();
    schemes()
        .find(|(_, scheme)| has_items(scheme))
        .or_else(|| schemes().next())
        .ok_or(SignError::NoSuchScheme)
}

fn parse(body: &[u8]) -> Result<Document<'_>, SignError> {
    Document::parse(body.into(), usize::MAX).map_err(|_| SignError::BodyShape)
}

/// Headers in which the provider sends the id and the type.
fn carried_headers(scheme: &Scheme, options: &SignOptions<'_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    if let (Some(id), Some(name)) = (options.id, scheme.id.first().and_then(leading_header)) {
        set(&mut headers, name, id);
    }
    if let Some(template) = scheme.event_type.first()
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
    Shared(Algorithm, Key),
    Ed25519(zeroize::Zeroizing<[u8; 32]>),
}

impl Signer {
    fn new(recipe: &Recipe, proof: &Proof, scheme: usize, secret: &str) -> Result<Self, SignError> {
        if proof.uses(Algorithm::Ed25519)
            && let Some(seed) = proof.keys.iter().find_map(|form| seed(*form, secret))
        {
            return Ok(Self::Ed25519(seed));
        }
        let secret = Secret::new(recipe, SecretNo(0), secret, Timestamp::EPOCH, None)?;
        for key in secret.keys(scheme) {
            let fitting = proof.reader.algorithms.iter().find(|(_, algorithm)| key.fits(*algorithm));
            if let (Some((_, algorithm)), Key::Shared(_)) = (fitting, key) {
                return Ok(Self::Shared(*algorithm, key.clone()));
            }
        }
        Err(SignError::PrivateKeyNeeded)
    }

    /// The signature, written as the provider writes it.
    fn sign(&self, proof: &Proof, context: Context<'_>, ts: &str) -> Result<String, SignError> {
        let message = match &proof.message {
            Some(template) => context
                .fill(template)
                .map_err(|problem| SignError::Missing(problem.of_signed_part().detail().to_owned()))?,
            None => (&[][..]).into(),
        };
        let (algorithm, signature) = match self {
            Self::Shared(Algorithm::Equal, Key::Shared(key)) => {
                (Algorithm::Equal, key.expose_secret().clone())
            }
            Self::Shared(algorithm, Key::Shared(key)) => {
                (*algorithm, mac(*algorithm, key.expose_secret(), &message))
            }
            Self::Shared(_, Key::Ed25519(_)) => return Err(SignError::PrivateKeyNeeded),
            Self::Ed25519(seed) => (Algorithm::Ed25519, sign_ed25519(seed, &message)),
        };
        Ok(proof.reader.write(algorithm, &signature, ts))
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
    let list = scheme.items.first().ok_or(SignError::BodyShape)?;
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
