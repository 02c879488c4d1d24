//! `portero provider show`.

use std::fmt::Write as _;
use std::time::Duration;

use portero_recipe::Preset;

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
    let time =
        if facts.time_signed { "signed, and checked against the gateway's clock" } else { "not signed" };
    let id = if facts.id_sent { "sent by the provider" } else { "derived from the event's bytes" };
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
        ("proves", proves(facts.proves).to_owned()),
        ("time", time.to_owned()),
        ("secret", secret),
        ("public URL", public_url.to_owned()),
        ("event id", format!("{id}; unique within the {}", scope(facts.id_scope))),
        ("ordering key", facts.ordering_key.join(", else ")),
        ("redelivery", facts.redelivery_s.map(|s| for_people(Duration::from_secs(s))).unwrap_or_default()),
        ("answer within", facts.answer_within_ms.map(|ms| format!("{ms} ms")).unwrap_or_default()),
        ("proven", format!("{proven}: {}", facts.evidence)),
    ]
}

fn for_people(span: Duration) -> String {
    format!("up to {} later", humantime::format_duration(span))
}

fn proves(proves: &str) -> &'static str {
    match proves {
        "body" => "body: the signature covers all of it",
        "fields" => "fields: the signature covers some of the body",
        "token" => "token: the sender knows a secret, the body is not covered",
        _ => "none: nothing is verified",
    }
}

fn scope(scope: &str) -> &str {
    match scope {
        "global" => "provider",
        other => other,
    }
}

fn setting(setting: &SettingFacts) -> String {
    let required = if setting.required { "required" } else { "optional" };
    format!("{} ({required}): {}", setting.name, setting.about)
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

    #[test]
    fn a_printed_recipe_can_be_taken_up_again() {
        for preset in Recipe::presets() {
            assert!(Recipe::from_json(preset.json).is_ok(), "{}", preset.name);
        }
    }
}
