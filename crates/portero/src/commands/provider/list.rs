//! `portero provider list`.

use portero_recipe::{Category, Recipe};
use serde::Serialize;

use super::facts::Facts;
use crate::cli::Output;
use crate::commands::exit::Failure;
use crate::commands::present::{Listing, Record};

/// Lists the presets, of one category or all, by category and title.
pub(super) fn run(category: Option<&str>, output: Output) -> anyhow::Result<()> {
    let mut listing = Listing::<Entry>::new(output);
    for entry in entries(category)? {
        listing.push(&entry)?;
    }
    listing.finish()
}

fn entries(category: Option<&str>) -> Result<Vec<Entry>, Failure> {
    let names = Category::ALL.map(Category::name);
    if let Some(unknown) = category.filter(|category| !names.contains(category)) {
        return Err(Failure::usage(format!(
            "there is no category {unknown:?}; there are {}",
            names.join(", ")
        )));
    }
    let mut entries: Vec<Entry> = Recipe::presets()
        .map(|preset| Entry(Facts::of(preset)))
        .filter(|entry| category.is_none() || entry.0.category == category)
        .collect();
    let place = |entry: &Entry| names.iter().position(|name| entry.0.category == Some(name));
    entries.sort_by_key(|entry| (place(entry).unwrap_or(names.len()), entry.0.title.to_lowercase()));
    Ok(entries)
}

#[derive(Serialize)]
struct Entry(Facts);

impl Record for Entry {
    const COLUMNS: &'static [&'static str] =
        &["NAME", "TITLE", "CATEGORY", "PROVES", "TIME", "EVENT ID", "PROVEN"];

    fn row(&self) -> Vec<String> {
        let facts = &self.0;
        let time = if facts.time_signed { "signed" } else { "" };
        let id = if facts.id_sent { "sent" } else { "derived" };
        let proven = if facts.proven { "yes" } else { "no" };
        vec![
            facts.name.to_owned(),
            facts.title.clone(),
            facts.category.unwrap_or_default().to_owned(),
            facts.proves.to_owned(),
            time.to_owned(),
            id.to_owned(),
            proven.to_owned(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_listed_once_and_under_its_category() {
        let all = entries(None).expect("all");
        assert_eq!(all.len(), Recipe::presets().count());
        let of_each: usize =
            Category::ALL.iter().map(|category| entries(Some(category.name())).expect("known").len()).sum();
        assert_eq!(of_each, all.len());
        assert!(all.iter().all(|entry| entry.row().len() == Entry::COLUMNS.len()));
        let payments = entries(Some("payments")).expect("known");
        assert!(payments.iter().any(|entry| entry.0.name == "stripe"));
    }

    #[test]
    fn an_unknown_category_is_refused_with_those_that_exist() {
        let error = entries(Some("food")).map(|entries| entries.len()).expect_err("unknown").to_string();
        assert!(error.contains("payments") && error.contains("food"), "{error}");
    }

    #[test]
    fn the_json_form_is_stable() {
        let entry =
            entries(Some("payments")).expect("known").into_iter().find(|entry| entry.0.name == "stripe");
        let json = serde_json::to_value(entry.expect("stripe")).expect("serialises");
        for (field, wanted) in [("name", "stripe"), ("proves", "body"), ("category", "payments")] {
            assert_eq!(json[field], wanted);
        }
        assert_eq!((&json["time_signed"], &json["id_sent"]), (&true.into(), &true.into()));
    }
}
