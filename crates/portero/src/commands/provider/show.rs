//! `portero provider show`.

use std::fmt::Write as _;

use portero_recipe::told::IdOrigin;
use portero_recipe::{Preset, told};

use super::facts::{Facts, SettingFacts};
use crate::cli::Output;
use crate::commands::present::{clean, pairs};
use crate::print;

/// Shows everything about a preset.
pub(super) fn run(preset: &Preset, output: Output) -> anyhow::Result<()> {
    let facts = Facts::of(preset);
    match output {
        Output::Json => print::json(&facts),
        Output::Text => print::raw(text(&facts).as_bytes()),
    }
}

fn text(facts: &Facts) -> String {
    let mut text = pairs(&details(facts));
    numbered(&mut text, "Set up", &facts.setup);
    if !facts.settings.is_empty() {
        let lines: Vec<String> = facts.settings.iter().map(setting).collect();
        bullets(&mut text, "Settings of the source (--setting name=value)", &lines);
    }
    bullets(&mut text, "Warnings", &facts.warnings);
    bullets(&mut text, "Documentation", &facts.links);
    text
}

fn details(facts: &Facts) -> Vec<(&'static str, String)> {
    let origins: Vec<String> = facts.id_origins.iter().map(|origin| origin.words().to_owned()).collect();
    let mut id = told::listed(&origins, "or");
    if facts.id_origins != [IdOrigin::None] {
        id.push_str(&format!("; unique within the {}", scope(facts.id_scope)));
    }
    let public_url =
        if facts.public_url_signed { "signed: the source needs it (--public-url)" } else { "not signed" };
    let secret = match (&facts.secret, facts.secret_from_handshake) {
        (_, true) => "the provider brings it when the URL is registered (--secret-window)".to_owned(),
        (Some(about), false) => about.clone(),
        (None, false) => "none is needed".to_owned(),
    };
    let proven = if facts.proven { "yes" } else { "no" };
    vec![
        ("preset", facts.name.to_owned()),
        ("title", facts.title.clone()),
        ("category", facts.category.unwrap_or_default().to_owned()),
        ("about", facts.about.clone()),
        ("proves", proves(facts)),
        ("time", facts.time.clone()),
        ("secret", secret),
        ("public URL", public_url.to_owned()),
        ("event id", id),
        ("ordering key", facts.ordering_key.join(", else ")),
        (
            "redelivery",
            facts.redelivery_s.map(|s| format!("up to {} later", told::span_s(s))).unwrap_or_default(),
        ),
        ("answer within", facts.answer_within_ms.map(told::span_ms).unwrap_or_default()),
        ("proven", format!("{proven}: {}", facts.evidence)),
    ]
}

fn proves(facts: &Facts) -> String {
    if let [_, _, ..] = facts.proves_each.as_slice() {
        let each: Vec<String> = facts.proves_each.iter().map(|&words| words.to_owned()).collect();
        return format!("{}, by how a request is signed", told::listed(&each, "or"));
    }
    match facts.proves {
        "body" => "body: the signature covers all of it",
        "fields" => "fields: the signature covers some of the body",
        "token" => "token: the sender knows a secret, the body is not covered",
        _ => "none: nothing is verified",
    }
    .to_owned()
}

fn scope(scope: &str) -> &str {
    match scope {
        "global" => "provider",
        other => other,
    }
}

fn setting(setting: &SettingFacts) -> String {
    let required = if setting.required { "required" } else { "optional" };
    let kept = if setting.secret { ", kept as a secret: --setting-file name=file" } else { "" };
    format!("{} ({required}{kept}): {}", setting.name, setting.about)
}

fn numbered(text: &mut String, head: &str, lines: &[String]) {
    let lines: Vec<String> = lines.iter().enumerate().map(|(n, line)| format!("{}. {line}", n + 1)).collect();
    section(text, head, &lines);
}

fn bullets(text: &mut String, head: &str, lines: &[String]) {
    let lines: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
    section(text, head, &lines);
}

fn section(text: &mut String, head: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{head}:");
    for line in lines {
        let _ = writeln!(text, "  {}", clean(line));
    }
}

#[cfg(test)]
mod tests {
    use portero_recipe::Recipe;

    use super::*;

    #[test]
    fn every_preset_is_told_in_full() {
        for preset in Recipe::presets() {
            let facts = Facts::of(preset);
            let text = text(&facts);
            let parts = [preset.name, &facts.title, &facts.about, "Set up:", "  1. "];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(facts.links.iter().all(|link| text.contains(link.as_str())), "{text}");
            assert!(facts.settings.iter().all(|setting| text.contains(&setting.name)), "{text}");
            assert_eq!(text.contains("Warnings:"), facts.proves != "body" || !facts.proven, "{text}");
        }
    }

    fn line(preset: &str, name: &str) -> String {
        let preset = Recipe::presets().find(|have| have.name == preset).expect("a preset");
        let details = details(&Facts::of(preset));
        details.into_iter().find(|(have, _)| *have == name).map(|(_, value)| value).expect("a line")
    }

    #[test]
    fn what_is_not_checked_or_not_sent_is_not_claimed() {
        assert!(line("mercadopago", "time").contains("not checked"));
        assert!(line("sendgrid", "time").ends_with("+5 min"), "{}", line("sendgrid", "time"));
        assert!(line("braintree", "event id").starts_with("derived from chosen parts"));
        assert!(line("dropbox", "event id").starts_with("none"));
        assert_eq!(line("stripe", "event id"), "sent by the provider; unique within the account");
        assert!(line("gitlab", "proves").contains("token or whole body"), "{}", line("gitlab", "proves"));
        let jira = Recipe::presets().find(|have| have.name == "jira-connect").expect("a preset");
        let warnings = Facts::of(jira).warnings.join(" ");
        assert!(
            warnings.contains("nothing of its body") && !warnings.contains("signs nothing"),
            "{warnings}"
        );
    }

    #[test]
    fn a_printed_recipe_can_be_taken_up_again() {
        for preset in Recipe::presets() {
            assert!(Recipe::from_json(preset.json).is_ok(), "{}", preset.name);
        }
    }
}
