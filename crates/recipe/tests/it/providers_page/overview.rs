//! The tables at the top of the page.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Provider, scheme, words};

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
            scheme::of_each(provider.schemes(), |scheme| scheme::proves(scheme).to_owned()),
            scheme::of_each(provider.schemes(), scheme::window),
            first_places(provider, "id").unwrap_or_else(|| no_id(provider).to_owned()),
            first_places(provider, "entity").unwrap_or_else(|| "none".to_owned()),
            span(provider, "answer_within_ms", words::span_ms),
            span(provider, "redelivery_s", words::span_s),
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
        .flat_map(scheme::readings)
        .filter_map(first)
        .filter(|words| seen.insert(words.clone()))
        .collect();
    (!found.is_empty()).then(|| words::listed(&found, "or"))
}

/// What takes the place of an id that is never sent.
fn no_id(provider: &Provider) -> &'static str {
    let is_distinct = |reading: &Value| reading["no_id"] == "distinct";
    if provider.schemes().iter().flat_map(scheme::readings).any(is_distinct) { "none" } else { "derived" }
}

fn span(provider: &Provider, field: &str, say: impl Fn(u64) -> String) -> String {
    provider.recipe[field].as_u64().map_or_else(|| "—".to_owned(), say)
}
