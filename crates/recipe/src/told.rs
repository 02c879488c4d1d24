//! What people are told about a recipe as written, in the command line and on the page of providers.

use serde_json::Value;

use crate::Strength;

/// What a scheme's verified requests are known to be.
#[must_use]
pub fn proves(scheme: &Value) -> &'static str {
    match (verifier(scheme), scheme["algorithm"].as_str()) {
        (Some("paypal" | "aws-sns"), _) => "some fields",
        (Some("jira-connect"), _) | (None, Some("equal" | "basic")) => "token",
        (Some(_), _) => "whole body",
        (None, Some("none")) => "nothing",
        (None, _) if scheme["body_digest"].is_object() || signs_body(scheme) => "whole body",
        (None, _) => "some fields",
    }
}

/// The same as a strength.
#[must_use]
pub fn strength(scheme: &Value) -> Strength {
    match proves(scheme) {
        "whole body" => Strength::Body,
        "some fields" => Strength::Fields,
        "token" => Strength::Token,
        _ => Strength::None,
    }
}

fn signs_body(scheme: &Value) -> bool {
    let message = scheme["message"].as_str().unwrap_or_default();
    // A form whose one field that is read is signed, is signed as a whole.
    let signs_form = scheme["signature"]["form"].is_string() && message.contains("{form:");
    signs_form || ["{body}", "{form-sorted}"].iter().any(|whole| message.contains(whole))
}

/// What is not signed, where that is easily overlooked.
#[must_use]
pub fn gap(scheme: &Value) -> Option<&'static str> {
    match verifier(scheme)? {
        "paypal" => Some(
            "The body takes part only by its CRC-32, and another body with the same one is easily made by whoever can change a \
             request on its way: TLS must end where nobody else listens.",
        ),
        "aws-sns" => Some("The message's attributes and its link to unsubscribe are not signed."),
        "jira-connect" => Some(
            "The signed token names the request's method, path and query, and nothing of its body: whoever sees a request can \
             send another body with it until the token expires.",
        ),
        _ => None,
    }
}

/// How far the signed time may lie off; `none` where no time is signed.
#[must_use]
pub fn window(scheme: &Value) -> String {
    let time = &scheme["time"];
    if let Some(kind) = verifier(scheme) {
        return verifier_window(kind, &scheme["verifier"]);
    }
    if !time.is_object() {
        return "none".to_owned();
    }
    if time["check"] == "record" {
        return ANY_AGE.to_owned();
    }
    let past = time["past_s"].as_u64().unwrap_or(300);
    window_words(past, time["future_s"].as_u64().unwrap_or(past))
}

/// The same as a sentence's end.
#[must_use]
pub fn time(scheme: &Value) -> String {
    match window(scheme).as_str() {
        "none" => "not signed".to_owned(),
        ANY_AGE => "signed, and not checked: a request of any age counts".to_owned(),
        window => format!("signed, and checked against the gateway's clock: {window}"),
    }
}

const ANY_AGE: &str = "signed, any age";

fn window_words(past: u64, future: u64) -> String {
    if past == future {
        format!("± {}", span_s(past))
    } else {
        format!("−{}, +{}", span_s(past), span_s(future))
    }
}

fn verifier_window(kind: &str, options: &Value) -> String {
    match kind {
        "paypal" | "aws-sns" => ANY_AGE.to_owned(),
        "jira-connect" => "until the token expires".to_owned(),
        _ => {
            let side = |name: &str| options[name].as_u64().unwrap_or(300);
            window_words(side("past_s"), side("future_s"))
        }
    }
}

/// The name of the code that verifies, where data does not.
#[must_use]
pub fn verifier(scheme: &Value) -> Option<&str> {
    scheme["verifier"]["kind"].as_str()
}

/// Where events are read from: the scheme itself, or what it says by the shape of the body.
#[must_use]
pub fn readings(scheme: &Value) -> Vec<&Value> {
    match scheme["events"].as_array() {
        Some(readings) if !readings.is_empty() => readings.iter().collect(),
        _ => vec![scheme],
    }
}

/// Where the ids of a reading's events come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdOrigin {
    /// The provider sends one.
    Sent,
    /// It is put together from parts that tell events apart, or is a digest of one.
    Parts,
    /// It is the digest of the event's bytes.
    Bytes,
    /// There is none: each request counts.
    None,
}

impl IdOrigin {
    /// The word for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Parts => "parts",
            Self::Bytes => "bytes",
            Self::None => "none",
        }
    }

    /// The words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Sent => "sent by the provider",
            Self::Parts => "derived from chosen parts of the request",
            Self::Bytes => "derived from the event's bytes",
            Self::None => "none: each request counts, repeats too",
        }
    }
}

/// The origins of a recipe's ids, each once, the best first.
#[must_use]
pub fn id_origins(schemes: &[Value]) -> Vec<IdOrigin> {
    let mut origins: Vec<IdOrigin> = schemes.iter().flat_map(readings).flat_map(id_origins_of).collect();
    origins.sort_unstable();
    origins.dedup();
    origins
}

fn id_origins_of(reading: &Value) -> Vec<IdOrigin> {
    let templates = reading["id"].as_array().map_or(&[][..], Vec::as_slice);
    if templates.is_empty() {
        return vec![if reading["no_id"] == "distinct" { IdOrigin::None } else { IdOrigin::Bytes }];
    }
    let of_one = |template: &Value| {
        let text = template.as_str().unwrap_or_default();
        let is_made = text.matches('{').count() > 1 || text.contains("|sha256");
        if is_made { IdOrigin::Parts } else { IdOrigin::Sent }
    };
    templates.iter().map(of_one).collect()
}

/// What is said of each thing, once.
pub fn of_each<T>(things: &[T], say: impl Fn(&T) -> String) -> String {
    let mut said: Vec<String> = Vec::new();
    for words in things.iter().map(say) {
        if !said.contains(&words) {
            said.push(words);
        }
    }
    listed(&said, "or")
}

/// "a, b and c".
#[must_use]
pub fn listed(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

/// A time span, in a unit or two that people would use.
#[must_use]
pub fn span_s(seconds: u64) -> String {
    match seconds {
        s if s >= 172_800 && s.is_multiple_of(86_400) => format!("{} days", s / 86_400),
        s if s > 7_200 && !s.is_multiple_of(3_600) => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        s if s >= 7_200 => format!("{} hours", s / 3_600),
        s if s >= 120 && s.is_multiple_of(60) => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// A short time span.
#[must_use]
pub fn span_ms(ms: u64) -> String {
    if ms.is_multiple_of(1_000) {
        span_s(ms / 1_000)
    } else {
        format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recipe;

    fn schemes(preset: &str) -> Vec<Value> {
        let preset = Recipe::presets().find(|have| have.name == preset).expect("a preset");
        let recipe: Value = serde_json::from_str(preset.json).expect("JSON");
        recipe["schemes"].as_array().expect("schemes").clone()
    }

    #[test]
    fn a_time_that_nobody_checks_is_not_called_checked() {
        for preset in ["mercadopago", "paypal", "aws-sns"] {
            assert!(of_each(&schemes(preset), time).contains("not checked"), "{preset}");
        }
        assert!(of_each(&schemes("mailgun"), time).ends_with("−12 hours, +5 min"));
        assert_eq!(of_each(&schemes("github"), time), "not signed");
    }

    #[test]
    fn ids_are_told_by_where_they_come_from() {
        for (preset, wanted) in [
            ("stripe", IdOrigin::Sent),
            ("braintree", IdOrigin::Parts),
            ("plaid", IdOrigin::Parts),
            ("docusign", IdOrigin::Parts),
            ("dropbox", IdOrigin::None),
        ] {
            assert_eq!(id_origins(&schemes(preset)), [wanted], "{preset}");
        }
    }

    #[test]
    fn spans_are_said_plainly() {
        let spans = [259_200, 86_400, 25_260, 300, 90].map(span_s);
        assert_eq!(spans, ["3 days", "24 hours", "7 h 1 min", "5 min", "90 s"]);
        assert_eq!([span_ms(10_000), span_ms(1_250)], ["10 s", "1.2 s"]);
    }
}
