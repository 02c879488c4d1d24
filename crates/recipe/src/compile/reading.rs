//! Checking where events are read from.

use super::{Checked, ENTRIES_MAX, bounded, invalid, path, template};
use crate::schema;
use crate::scheme::Reading;
use crate::template::{Part, Source, Template};

/// Most values in all templates of a reading.
const VALUES_MAX: usize = 128;

/// The readings of a scheme; at least one.
pub(super) fn readings(at: &str, data: &schema::Scheme) -> Checked<Vec<Reading>> {
    let inline = schema::Reading {
        when: None,
        items: data.items.clone(),
        id: data.id.clone(),
        event_type: data.event_type.clone(),
        entity: data.entity.clone(),
        account: data.account.clone(),
        no_id: data.no_id,
    };
    if data.events.is_empty() {
        return Ok(vec![reading(at, &inline)?]);
    }
    let nothing_inline = [&inline.items, &inline.id, &inline.event_type, &inline.entity, &inline.account]
        .iter()
        .all(|texts| texts.is_empty());
    if !nothing_inline {
        return invalid(format!("{at}.events"), "say where events are read from here or beside it, not both");
    }
    bounded(&format!("{at}.events"), data.events.len(), ENTRIES_MAX)?;
    let last = data.events.len() - 1;
    (data.events.iter().enumerate())
        .map(|(n, data)| {
            let at = format!("{at}.events[{n}]");
            if n < last && data.when.is_none() {
                return invalid(format!("{at}.when"), "only the last may apply always");
            }
            reading(&at, data)
        })
        .collect()
}

fn reading(at: &str, data: &schema::Reading) -> Checked<Reading> {
    bounded(&format!("{at}.items"), data.items.len(), ENTRIES_MAX)?;
    let items = (data.items.iter().enumerate())
        .map(|(n, text)| path(&format!("{at}.items[{n}]"), text))
        .collect::<Checked<Vec<_>>>()?;
    if let Some(n) = items.iter().position(|path| path.stars() == 0) {
        return invalid(format!("{at}.items[{n}]"), "the path to the elements of a batch needs a '*'");
    }
    let has_items = !items.is_empty();
    let texts = || data.id.iter().chain(&data.event_type).chain(&data.entity).chain(&data.account);
    bounded(
        &format!("{at} (values of all templates)"),
        texts().map(|text| text.matches('{').count()).sum(),
        VALUES_MAX,
    )?;
    let fields = |name: &str, texts: &[String]| extraction(&format!("{at}.{name}"), texts, has_items);
    Ok(Reading {
        when: data.when.as_deref().map(|text| path(&format!("{at}.when"), text)).transpose()?,
        id: ids(&format!("{at}.id"), fields("id", &data.id)?)?,
        event_type: fields("type", &data.event_type)?,
        entity: fields("entity", &data.entity)?,
        account: fields("account", &data.account)?,
        no_id: data.no_id,
        items,
    })
}

/// An id that can do without any value of the request would be the same for all events, and all but the first be lost.
fn ids(at: &str, templates: Vec<Template>) -> Checked<Vec<Template>> {
    let is_told = |part: &Part| matches!(part, Part::Value(value) if !value.optional);
    match templates.iter().position(|template| !template.parts.iter().any(is_told)) {
        None => Ok(templates),
        Some(n) => invalid(
            format!("{at}[{n}]"),
            "it can be filled without any value of the event: every event would have it",
        ),
    }
}

fn extraction(at: &str, texts: &[String], has_items: bool) -> Checked<Vec<Template>> {
    bounded(at, texts.len(), ENTRIES_MAX)?;
    (texts.iter().enumerate())
        .map(|(n, text)| {
            let at = format!("{at}[{n}]");
            let template = template(&at, text)?;
            for value in template.values() {
                let allowed = match value.source {
                    Source::Header(_)
                    | Source::Query(_)
                    | Source::Form(_)
                    | Source::Setting(_)
                    | Source::Json(_) => true,
                    // It reads the whole body, which must not be done for each of very many items.
                    Source::JsonKeyExcept(_) => !has_items,
                    Source::Item(_) | Source::Outer(_) => has_items,
                    Source::Ts
                    | Source::Body
                    | Source::Method
                    | Source::Url
                    | Source::FormSorted
                    | Source::Secret
                    | Source::Computed
                    | Source::KeyName => false,
                };
                if !allowed {
                    return invalid(at, format!("{} is of no use here", value.source.describe()));
                }
            }
            Ok(template)
        })
        .collect()
}
