//! docs/providers.md, made from the presets. `UPDATE=1 cargo test -p portero-recipe providers_page` writes it anew.

mod overview;
mod scheme;
mod section;
mod words;

use std::fmt::Write as _;

use portero_recipe::{Recipe, told};
use serde_json::Value;

use super::kept_file::kept_file;

const PAGE: &str = "../../docs/providers.md";

/// Categories in the page's order, with their headings.
const CATEGORIES: [(&str, &str); 5] = [
    ("payments", "Payments and billing"),
    ("developer", "Developer platforms"),
    ("messaging", "Messaging, mail and telephony"),
    ("commerce", "Commerce, CRM and documents"),
    ("cloud", "Cloud, identity and general specifications"),
];

/// One preset and its recipe as written.
struct Provider {
    name: &'static str,
    recipe: Value,
}

impl Provider {
    fn text(&self, field: &str) -> &str {
        self.recipe[field].as_str().unwrap_or_default()
    }

    fn list(&self, field: &str) -> Vec<&str> {
        words::texts(&self.recipe[field])
    }

    fn schemes(&self) -> &[Value] {
        self.recipe["schemes"].as_array().map_or(&[], Vec::as_slice)
    }

    /// How the page calls the part about it.
    fn anchor(&self) -> String {
        format!("[{}](#{})", self.text("title"), self.name)
    }
}

/// The presets of a category, by title.
fn providers(category: &str) -> Vec<Provider> {
    let of = |json: &str| serde_json::from_str::<Value>(json).expect("a preset is JSON");
    let mut providers: Vec<Provider> = Recipe::presets()
        .map(|preset| Provider { name: preset.name, recipe: of(preset.json) })
        .filter(|provider| provider.text("category") == category)
        .collect();
    providers.sort_by_key(|provider| provider.text("title").to_lowercase());
    providers
}

const INTRODUCTION: &str = "\
# Providers

<!-- Made from crates/recipe/presets by a test; `UPDATE=1 cargo test -p portero-recipe providers_page` writes it anew. -->

How Portero verifies and reads each provider that it knows. To connect one:

1. Create a source with its preset: `portero source create TENANT NAME --preset PRESET`. It prints a path; appended to the
   gateway's public address, `https://hooks.example.com` say, it is the source's URL. Keep it confidential.
2. Enter that URL at the provider, as the part about it below says, and take the secret from there.
3. Give the source the secret: `portero secret add TENANT NAME --value-file FILE`. Without a file one is made, to be entered at
   the provider. Where the provider itself brings the secret in its first request, a new source waits an hour for it, so
   register the URL within that hour; `portero source update TENANT NAME --secret-window 1h` lets it wait again. Adding a
   secret by hand ends the waiting.
4. Give the source what else the part lists: `portero source update TENANT NAME --setting NAME=VALUE`, and `--public-url URL`
   where the URL is signed. A setting that is *kept as a secret* is stored sealed, as secrets are, and nobody is shown it again;
   `--setting-file NAME=FILE` reads it from a file, so that it stands in no command line.

`portero provider list` and `portero provider show PRESET` print the same on a terminal. When requests are refused,
`portero verify --preset PRESET --secret-file FILE --request FILE` tells step by step what was checked and what failed.
A provider that is not here needs a recipe of your own: [the recipe language](../crates/recipe/LANGUAGE.md) has a page, every
preset is a model for it, and the preset `custom` serves where you write the sender yourself.

What the tables say:

- **Proves**: what a verified request is known to be. *Whole body*: whoever sent it knew the secret and nothing in the body was
  changed. *Some fields*: only the signed fields are. *Token*: the sender knew a token that travels with each request; whoever
  sees one request can make others, so let nobody see any. *Nothing*: anybody can send what they like; use it only behind
  something else that checks.
- **Signed time**: how far the time that the provider signs may lie in the past and in the future. Without one, an old request
  can be sent again by whoever has it; it is then recognised as a repeat by its event id, for as long as ids are kept.
- **Event id**: what tells a repeat from a new event. *Derived* means that the provider sends none, and the digest of the event's
  bytes takes its place: byte for byte repeats are recognised, others are not. *None*: two events may well have the same bytes,
  so each request counts, repeats too.
- **Ordering key**: events with the same one are delivered one after another, unless a subscription chooses otherwise. Named
  are the first two places where it is looked for; *…* where there are more, which the part about the provider lists.
- **Answer within**: how long the provider waits; — where it does not say. Portero answers as soon as the event is stored.
- **Sent again for**: the longest time after which the provider sends an event again. When you replace a secret, the old one stays
  valid that long unless you say otherwise.
- **Proven**: *yes* when requests signed by the vendor's own code or by its documented formula are in the tests, *no* when only
  documents were at hand. Try an unproven one with real traffic before you rely on it.
";

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (category, heading) in CATEGORIES {
        write!(page, "\n## {heading}\n\n").expect("a String takes everything");
        page += &overview::table(&providers(category));
    }
    for (category, heading) in CATEGORIES {
        write!(page, "\n## {heading}, one by one\n").expect("a String takes everything");
        for provider in providers(category) {
            page += &section::of(&provider);
        }
    }
    page
}

#[test]
fn the_page_of_providers_is_made_from_the_presets() {
    kept_file(PAGE, &page());
}

#[test]
fn every_preset_has_its_part_on_the_page() {
    let page = page();
    for preset in Recipe::presets() {
        let anchor = format!("<a id=\"{}\"></a>", preset.name);
        assert_eq!(page.matches(&anchor).count(), 1, "{}", preset.name);
    }
}

#[test]
fn no_line_of_the_page_holds_an_unfilled_value() {
    for line in page().lines() {
        assert!(!line.contains("null") && !line.ends_with(": ") && !line.contains("``"), "{line}");
    }
}

#[test]
fn what_the_page_says_of_a_providers_proof_is_what_its_recipe_proves() {
    for (category, _) in CATEGORIES {
        for provider in providers(category) {
            let strength = Recipe::preset(provider.name).expect("a preset").strength();
            assert_eq!(
                provider.schemes().iter().map(told::strength).min(),
                Some(strength),
                "{}",
                provider.name
            );
        }
    }
}
