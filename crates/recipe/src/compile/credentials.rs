//! Credentials and signatures: what must neither be kept with an event nor be read into its id, type, entity or account, which
//! are stored, delivered and logged.

use super::{Checked, invalid};
use crate::scheme::{Place, Reading, Scheme};
use crate::template::{Filter, Source, Template};

/// Whether a header (lower-case name) holds a credential or a signature.
pub(super) fn is_header(name: &str, schemes: &[Scheme]) -> bool {
    matches!(name, "authorization" | "cookie" | "proxy-authorization")
        || places(schemes).any(|place| match place {
            Place::Headers(headers) => headers.iter().any(|header| header == name),
            Place::Numbered(prefix) => name.starts_with(prefix),
            Place::Query(_) | Place::Form(_) | Place::Json(_) | Place::Item(_) => false,
        })
}

/// Refuses templates that read them, unless by their digest.
pub(super) fn unread(schemes: &[Scheme]) -> Checked<()> {
    for (n, scheme) in schemes.iter().enumerate() {
        for (m, reading) in scheme.readings.iter().enumerate() {
            let at = match scheme.readings.len() {
                1 => format!("schemes[{n}]"),
                _ => format!("schemes[{n}].events[{m}]"),
            };
            reading_unread(&at, reading, schemes)?;
        }
    }
    Ok(())
}

fn reading_unread(at: &str, reading: &Reading, schemes: &[Scheme]) -> Checked<()> {
    let fields = [
        ("id", &reading.id),
        ("type", &reading.event_type),
        ("entity", &reading.entity),
        ("account", &reading.account),
    ];
    for (field, templates) in fields {
        if let Some(n) = templates.iter().position(|template| reads_one(template, schemes)) {
            return invalid(
                format!("{at}.{field}[{n}]"),
                "credentials and signatures are never kept; by its digest ('|sha256') one may take part",
            );
        }
    }
    Ok(())
}

fn reads_one(template: &Template, schemes: &[Scheme]) -> bool {
    template.values().iter().filter(|value| value.filter != Filter::Sha256).any(|value| match &value.source {
        Source::Header(name) => is_header(name, schemes),
        Source::Query(name) => {
            places(schemes).any(|place| matches!(place, Place::Query(have) if have == name))
        }
        Source::Form(name) => places(schemes).any(|place| matches!(place, Place::Form(have) if have == name)),
        Source::Json(path) => places(schemes).any(|place| matches!(place, Place::Json(have) if have == path)),
        Source::Item(path) => places(schemes).any(|place| matches!(place, Place::Item(have) if have == path)),
        Source::Ts
        | Source::Body
        | Source::Method
        | Source::Url
        | Source::FormSorted
        | Source::Setting(_)
        | Source::Secret
        | Source::JsonKeyExcept(_)
        | Source::Outer(_)
        | Source::Computed
        | Source::KeyName => false,
    })
}

fn places(schemes: &[Scheme]) -> impl Iterator<Item = &Place> {
    schemes.iter().filter_map(Scheme::proof).map(|proof| &proof.place)
}
