//! Reading a verified request: which events it holds, their ids, types, entities and accounts.

use std::ops::Range;

use portero_types::SecretNo;
use portero_types::limits::{
    EVENT_ID_BYTES_MAX, EVENT_TYPE_BYTES_MAX, EVENTS_PER_REQUEST_MAX, ORDERING_KEY_BYTES_MAX,
};
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::encoding::Encoding;
use crate::form::{self, Field};
use crate::json::{BatchError, Document, Item, Lookup};
use crate::schema::{NoId, Wrapped};
use crate::scheme::{Reading, Scheme};
use crate::verify::too_many_events;
use crate::{IdScope, Reason, Recipe, Rejection, Request, Verified};

/// Longest text that is read out of an event, bytes. What is longer than a field may be is kept by its digest up to here.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Why an extracted id was not trusted and one was derived instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Anomaly {
    /// The JSON object, form, query or header list repeats the extracted name, so two readers could differ.
    DuplicateKey,
    /// The text holds a NUL character, which no text column can store.
    Nul,
    /// The text is not valid Unicode.
    NotUnicode,
    /// The text is longer than [`portero_types::limits::EVENT_ID_BYTES_MAX`], or than any that is read.
    TooLong,
}

impl Anomaly {
    /// The stable code, in SCREAMING_SNAKE_CASE.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::DuplicateKey => "DUPLICATE_KEY",
            Self::Nul => "NUL",
            Self::NotUnicode => "NOT_UNICODE",
            Self::TooLong => "TOO_LONG",
        }
    }
}

/// One event found in a verified request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// The provider's id, not yet scoped (see [`Recipe::id_scope`]), or `sha256:` and 64 hexadecimal digits when it was
    /// derived. Valid text without NUL, never empty, at most [`portero_types::limits::EVENT_ID_BYTES_MAX`] bytes.
    pub event_id: String,
    /// Whether `event_id` was derived: from this event's bytes when the provider sent none that can be trusted, from the
    /// id's text when that was too long.
    pub id_derived: bool,
    /// Whether the recipe says that events without an id are all different, whatever their bytes: then the receiver gives this
    /// one an id that nothing else has, and `event_id` is only the digest of its bytes.
    pub distinct: bool,
    /// Why an id that was sent is not trusted; `None` when it is, and when there simply was none.
    pub id_anomaly: Option<Anomaly>,
    /// The tenant-side account that the event belongs to, where the provider names one. At most
    /// [`portero_types::limits::EVENT_ID_BYTES_MAX`] bytes (longer: its `sha256:`).
    pub account: Option<String>,
    /// The provider's word for what happened; may be empty, cut at [`portero_types::limits::EVENT_TYPE_BYTES_MAX`] bytes.
    pub event_type: String,
    /// The thing that the event is about; `None` when the recipe finds none that can be trusted. At most
    /// [`portero_types::limits::ORDERING_KEY_BYTES_MAX`] bytes (longer: its `sha256:`).
    pub entity: Option<String>,
    /// The secret that verified this event.
    pub secret: Option<SecretNo>,
    /// This event's bytes within the request's body: the whole body, or the item's own bytes when the request holds a
    /// batch, so that a digest tells a repeat from a conflict item by item.
    pub body: Range<usize>,
}

/// Finds the events of a verified request, in the order in which they appear.
///
/// A body that cannot be read still gives one event with a derived id: what was verified is never lost. An empty list
/// means that the provider sent an empty batch (a heartbeat): answer as accepted, store nothing.
///
/// # Errors
/// [`crate::Reason::BodyMalformed`] when the recipe knows only bodies of other shapes, [`crate::Reason::TooManyEvents`] when a batch holds more than [`portero_types::limits::EVENTS_PER_REQUEST_MAX`].
pub fn extract(
    recipe: &Recipe,
    request: &Request<'_>,
    verified: &Verified,
) -> Result<Vec<Extracted>, Rejection> {
    let Some(scheme) = recipe.schemes.get(verified.scheme()) else {
        return Ok(Vec::new());
    };
    let body = Readable::new(recipe, request, verified);
    let reading = reading(scheme, body.document.as_ref())?;
    let reader = EventReader { recipe, reading, request, body: &body };
    let items = verified.items();
    let fits = items.iter().all(|(item, _)| item.at.end <= request.body.len());
    if !items.is_empty() && fits && body.document.is_some() {
        return Ok(items
            .iter()
            .map(|(item, secret)| reader.event(Some(item), item.at.clone(), Some(*secret)))
            .collect());
    }
    let Some(items) = batch(reading, body.document.as_ref())? else {
        return Ok(vec![reader.event(None, 0..request.body.len(), verified.secret())]);
    };
    let places = body.places(&items);
    Ok((items.iter().zip(places)).map(|(item, at)| reader.event(Some(item), at, verified.secret())).collect())
}

/// Where events of a body of this shape are read from. A recipe whose last reading asks for something too says that nothing
/// else can be an event.
fn reading<'s>(scheme: &'s Scheme, document: Option<&Document<'_>>) -> Result<&'s Reading, Rejection> {
    let applies = |reading: &&Reading| {
        reading.when.as_ref().is_none_or(|path| {
            document.is_some_and(|document| document.lookup(document.root(), path) != Lookup::Missing)
        })
    };
    scheme.readings.iter().find(applies).ok_or_else(|| {
        Rejection::new(
            Reason::BodyMalformed,
            "the body has none of the shapes that this provider's events have",
        )
    })
}

/// A verified body, read.
pub(crate) struct Readable<'a> {
    /// Its JSON: the body itself, or what is wrapped in it.
    pub(crate) document: Option<Document<'a>>,
    /// The body as a form, when it is not JSON itself.
    pub(crate) form: Option<&'a [u8]>,
    /// Whether the document is a text of UTF-8 made from a body of ISO-8859-1.
    recoded: bool,
}

impl<'a> Readable<'a> {
    /// Reads a verified body. Whether it is JSON is not asked of the content type, since providers send JSON under many;
    /// only its `charset` is. What was signed as a form is read as one, whatever else it may look like; and where items
    /// were verified, the body stays as it is, so that they stay where they are.
    pub(crate) fn new(recipe: &Recipe, request: &Request<'a>, verified: &Verified) -> Self {
        let body = request.body;
        if recipe.schemes.get(verified.scheme()).is_some_and(Scheme::signs_form) {
            let document = recipe.document.as_ref().and_then(|wrapped| unwrap(wrapped, body));
            return Self { document, form: Some(body), recoded: false };
        }
        if verified.items().is_empty() && is_latin1(request) && std::str::from_utf8(body).is_err() {
            let text: String = body.iter().copied().map(char::from).collect();
            if let Ok(document) = Document::parse(text.into_bytes().into(), usize::MAX) {
                return Self { document: Some(document), form: None, recoded: true };
            }
        }
        let may_be_bare = recipe.document.as_ref().is_none_or(|wrapped| wrapped.form.is_some());
        if may_be_bare && let Ok(document) = Document::parse(body.into(), usize::MAX) {
            return Self { document: Some(document), form: None, recoded: false };
        }
        let document = recipe.document.as_ref().and_then(|wrapped| unwrap(wrapped, body));
        Self { document, form: Some(body), recoded: false }
    }

    /// Where items are in the body as received. In a text of UTF-8 made from ISO-8859-1 each character beyond ASCII is one
    /// byte longer than there. Items come in order, so one pass does.
    fn places(&self, items: &[Item]) -> Vec<Range<usize>> {
        let (mut at, mut extra) = (0, 0);
        let mut received = |to: usize| {
            if let (true, Some(document)) = (self.recoded, &self.document) {
                extra += document.continuations(at..to);
                at = to;
            }
            to - extra
        };
        items.iter().map(|item| received(item.at.start)..received(item.at.end)).collect()
    }

    /// Only this document, or nothing of a body that may not be looked into.
    pub(crate) const fn only(document: Option<Document<'a>>) -> Self {
        Self { document, form: None, recoded: false }
    }
}

fn is_latin1(request: &Request<'_>) -> bool {
    request.header_values("content-type").any(|value| {
        let value = value.to_ascii_lowercase();
        let charset =
            value.split(|byte| *byte == b';').find_map(|part| part.trim_ascii().strip_prefix(b"charset="));
        charset.is_some_and(|name| {
            matches!(name.trim_ascii(), b"iso-8859-1" | b"\"iso-8859-1\"" | b"latin1" | b"us-ascii")
        })
    })
}

/// The JSON that is wrapped in a body, if it is there.
fn unwrap<'a>(wrapped: &Wrapped, body: &'a [u8]) -> Option<Document<'a>> {
    let mut bytes = match &wrapped.form {
        None => std::borrow::Cow::Borrowed(body),
        Some(name) => match form::field(body, name) {
            Field::Found(value) => value,
            Field::Missing | Field::Duplicate => return None,
        },
    };
    if wrapped.base64 {
        let dense: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
        bytes = Encoding::Base64.decode(&dense)?.into();
    }
    if wrapped.xml {
        bytes = crate::xml::to_json(&bytes)?.into();
    }
    Document::parse(bytes, usize::MAX).ok()
}

/// The elements of a batch that was signed as a whole. `None` when the request is one event: because the recipe knows no
/// batches, or because the body has not that shape.
fn batch(reading: &Reading, document: Option<&Document<'_>>) -> Result<Option<Vec<Item>>, Rejection> {
    let Some(document) = document else { return Ok(None) };
    for path in &reading.items {
        match document.items(path, EVENTS_PER_REQUEST_MAX) {
            Ok(items) => return Ok(Some(items)),
            Err(BatchError::TooMany) => return Err(too_many_events()),
            Err(BatchError::Shape | BatchError::Duplicate) => {}
        }
    }
    Ok(None)
}

/// Reads events out of one request.
struct EventReader<'a> {
    recipe: &'a Recipe,
    reading: &'a Reading,
    request: &'a Request<'a>,
    body: &'a Readable<'a>,
}

impl EventReader<'_> {
    /// `bytes` is where the event is in the body as received.
    fn event(&self, item: Option<&Item>, bytes: Range<usize>, secret: Option<SecretNo>) -> Extracted {
        let context = Context {
            document: self.body.document.as_ref(),
            form: self.body.form,
            item: item.map(|item| &item.at),
            outer: item.map(|item| &item.outer),
            text_bytes_max: TEXT_BYTES_MAX,
            ..Context::unverified(self.request)
        };
        let account = context.first_text(&self.reading.account);
        let id = match (&account, self.recipe.id_scope) {
            // An id means nothing without the account that scopes it.
            (Err(anomaly), IdScope::Account) => Err(*anomaly),
            _ => context.first(&self.reading.id),
        };
        let distinct = matches!(id, Ok(None)) && self.reading.no_id == NoId::Distinct;
        let (event_id, id_derived, id_anomaly) = match id {
            Ok(Some((id, _))) if id.len() > EVENT_ID_BYTES_MAX => {
                (digest(id.as_bytes()), true, Some(Anomaly::TooLong))
            }
            Ok(Some((id, template))) => (id, template.derives(), None),
            Ok(None) => (self.derived(&bytes), true, None),
            Err(anomaly) => (self.derived(&bytes), true, Some(anomaly)),
        };
        let event_type = context.first_text(&self.reading.event_type).ok().flatten().unwrap_or_default();
        let entity = context.first_text(&self.reading.entity).ok().flatten();
        Extracted {
            event_id,
            id_derived,
            distinct,
            id_anomaly,
            account: account.ok().flatten().map(|text| bounded(text, EVENT_ID_BYTES_MAX)),
            event_type: cut(event_type, EVENT_TYPE_BYTES_MAX),
            entity: entity.map(|text| bounded(text, ORDERING_KEY_BYTES_MAX)),
            secret,
            body: bytes,
        }
    }

    fn derived(&self, bytes: &Range<usize>) -> String {
        digest(self.request.body.get(bytes.clone()).unwrap_or_default())
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// The text, or its digest when it is too long.
fn bounded(text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max { digest(text.as_bytes()) } else { text }
}

/// The text, cut at a character boundary.
fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}
