//! The part about one provider.

use std::fmt::Write as _;

use portero_recipe::told::{self, listed, span_ms, span_s};
use serde_json::Value;

use super::words::{code, texts};
use super::{Provider, scheme};

/// The part, from its heading on.
pub(super) fn of(provider: &Provider) -> String {
    let mut part = format!(
        "\n<a id=\"{}\"></a>\n### {}\n\nPreset {}. {}\n",
        provider.name,
        provider.text("title"),
        code(provider.name),
        provider.text("about"),
    );
    part += &warnings(provider);
    part += &setup(provider);
    part += &facts(provider);
    part
}

/// What an operator must know before relying on it.
fn warnings(provider: &Provider) -> String {
    let gaps = provider.schemes().iter().filter_map(told::gap);
    let mut warnings: Vec<&str> = gaps.collect();
    let gapless = provider.schemes().iter().filter(|scheme| told::gap(scheme).is_none());
    let strengths: Vec<_> = gapless.map(told::proves).collect();
    if strengths.contains(&"some fields") {
        warnings.push("The signature covers only some fields: do not trust the rest of the body.");
    }
    if strengths.contains(&"token") {
        warnings.push("Nothing is signed, a token is sent: whoever sees one request can send any other. Keep the URL secret too.");
    }
    if strengths.contains(&"nothing") {
        warnings.push("Nothing proves who sent a request: fetch what you rely on from the provider's API.");
    }
    if provider.recipe["unproven"] == true {
        warnings.push("Unproven: made from documents only. Try it with real traffic first.");
    }
    let lines: Vec<String> = warnings.iter().map(|warning| format!("> {warning}")).collect();
    if lines.is_empty() { String::new() } else { format!("\n{}\n", lines.join("  \n")) }
}

fn setup(provider: &Provider) -> String {
    let mut text = String::new();
    let steps = provider.list("setup");
    if !steps.is_empty() {
        text.push('\n');
        for (n, step) in steps.iter().enumerate() {
            writeln!(text, "{}. {step}", n + 1).expect("a String takes everything");
        }
    }
    text
}

fn facts(provider: &Provider) -> String {
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| {
        let fact = format!("- **{name}**: {value}");
        if !value.is_empty() && !facts.contains(&fact) {
            facts.push(fact);
        }
    };
    fact("Secret", provider.text("secret_about").to_owned());
    if let Some(settings) = provider.recipe["settings"].as_object() {
        for (name, setting) in settings {
            let needed = if setting["required"] == true { "required" } else { "optional" };
            let kept = if setting["secret"] == true { ", kept as a secret" } else { "" };
            let about = setting["about"].as_str().unwrap_or_default();
            fact(&format!("Setting `{name}`"), format!("{about} ({needed}{kept})"));
        }
    }
    fact("Proves", told::of_each(provider.schemes(), |scheme| told::proves(scheme).to_owned()));
    for scheme in provider.schemes() {
        fact("Verified", scheme::verified(scheme));
    }
    for reading in provider.schemes().iter().flat_map(told::readings) {
        fact("Read", scheme::read(reading));
    }
    fact("Ids are unique within", scope(provider).to_owned());
    for handshake in provider.recipe["handshakes"].as_array().into_iter().flatten() {
        fact("Answered at once", handshake_words(handshake));
    }
    fact("Times", times(provider));
    fact("Compressed bodies", compressed(provider).to_owned());
    fact("Answer to an accepted event", reply(&provider.recipe["accepted"]));
    fact("Answer to a refused request", reply(&provider.recipe["rejected"]));
    fact("Evidence", provider.text("evidence").to_owned());
    fact(
        "Documentation",
        provider.list("links").iter().map(|link| format!("<{link}>")).collect::<Vec<_>>().join(", "),
    );
    format!("\n{}\n", facts.join("\n"))
}

fn times(provider: &Provider) -> String {
    let answer = provider.recipe["answer_within_ms"].as_u64();
    let again = provider.recipe["redelivery_s"].as_u64();
    let said = [
        answer.map(|ms| format!("waits {} for an answer", span_ms(ms))),
        again.map(|s| format!("sends an event again for up to {}", span_s(s))),
    ];
    said.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn scope(provider: &Provider) -> &'static str {
    match provider.text("id_scope") {
        "global" => "the provider",
        "account" => "the account that the event names",
        _ => "the source",
    }
}

fn compressed(provider: &Provider) -> &'static str {
    match provider.text("compressed") {
        "as_sent" => "accepted; the bytes as sent are signed",
        "inflated" => "accepted; the inflated bytes are signed",
        _ => "",
    }
}

fn reply(reply: &Value) -> String {
    let Some(status) = reply["status"].as_u64() else { return String::new() };
    match reply["body"].as_str().unwrap_or_default() {
        "" => status.to_string(),
        body => format!("{status} with {}", code(body)),
    }
}

fn handshake_words(handshake: &Value) -> String {
    let when = &handshake["when"];
    let mut signs = Vec::new();
    let mut sign = |what: &str, names: Vec<&str>| {
        signs.extend(names.into_iter().map(|name| format!("{what} {}", code(name))));
    };
    sign("header", texts(&when["headers"]));
    sign("no header", texts(&when["headers_absent"]));
    sign("query field", texts(&when["queries"]));
    sign("JSON field", texts(&when["json_present"]));
    sign("no JSON field", texts(&when["json_absent"]));
    for (field, what) in [("header_equals", "header"), ("json_equals", "JSON field")] {
        for (name, value) in when[field].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            signs.push(format!("{what} {}", code(&format!("{name}={value}"))));
        }
    }
    let mut words = when["method"].as_str().unwrap_or_default().to_owned();
    if !signs.is_empty() {
        words += &format!(" with {}", listed(&signs, "and"));
    }
    if handshake["verify"] == true {
        words += ", verified first";
    }
    match handshake["token"]["setting"].as_str() {
        Some(setting) => {
            words += &format!(", its token compared with the setting {} or the secret", code(setting));
        }
        None if handshake["token"].is_object() => words += ", its token compared with the secret",
        None => {}
    }
    if handshake["store_secret"].is_string() {
        words += "; what it brings becomes the source's secret, while the source waits for one";
    }
    words
}
