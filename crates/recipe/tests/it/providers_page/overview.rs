//! The tables at the top of the page.

use std::collections::BTreeSet;

use portero_recipe::told;
use serde_json::Value;

use super::{Provider, words};

const HEADER: &str = "\
| provider | preset | proves | signed time | event id | ordering key | answer within | sent again for | proven |
|---|---|---|---|---|---|---|---|---|
";

/// A row for each provider.
pub(super) fn table(providers: &[Provider]) -> String {
    let rows = providers.iter().map(|provider| {
        let cells = [
            provider.anchor(),
            words::code(provider.name),
            told::of_each(provider.schemes(), |scheme| told::proves(scheme).to_owned()),
            told::of_each(provider.schemes(), told::window),
            first_places(provider, "id").unwrap_or_else(|| no_id(provider).to_owned()),
            ordering_key(provider),
            span(provider, "answer_within_ms", told::span_ms),
            span(provider, "redelivery_s", told::span_s),
            if provider.recipe["unproven"] == true { "no" } else { "yes" }.to_owned(),
        ];
        format!("| {} |\n", cells.join(" | "))
    });
    HEADER.to_owned() + &rows.collect::<String>()
}

/// The first template of each way to read an event.
fn first_places(provider: &Provider, field: &str) -> Option<String> {
    let mut seen = BTreeSet::new();
    let first = |reading: &Value| Some(words::short_place(words::texts(&reading[field]).first()?));
    let found: Vec<String> = provider
        .schemes()
        .iter()
        .flat_map(told::readings)
        .filter_map(first)
        .filter(|words| seen.insert(words.clone()))
        .collect();
    (!found.is_empty()).then(|| told::listed(&found, "or"))
}

/// The first two templates of the ordering key; `…` for the others.
fn ordering_key(provider: &Provider) -> String {
    let mut places: Vec<String> = Vec::new();
    for reading in provider.schemes().iter().flat_map(told::readings) {
        for template in words::texts(&reading["entity"]) {
            let place = words::short_place(template);
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    match places.as_slice() {
        [] => "none".to_owned(),
        [first, second, _, ..] => format!("{first}, {second} or …"),
        few => told::listed(few, "or"),
    }
}

/// What takes the place of an id that is never sent.
fn no_id(provider: &Provider) -> &'static str {
    let is_distinct = |reading: &Value| reading["no_id"] == "distinct";
    if provider.schemes().iter().flat_map(told::readings).any(is_distinct) { "none" } else { "derived" }
}

fn span(provider: &Provider, field: &str, say: impl Fn(u64) -> String) -> String {
    provider.recipe[field].as_u64().map_or_else(|| "—".to_owned(), say)
}
