//! Values of recipes in words.

use serde_json::Value;

/// The texts of a list; of a text alone, that one.
pub(super) fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

/// Verbatim text in Markdown, also within a table.
pub(super) fn code(text: &str) -> String {
    let text = text.replace('\n', "\\n").replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

/// "a, b and c".
pub(super) fn listed(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., end] => format!("{} {last} {end}", most.join(", ")),
    }
}

/// A time span, in the largest unit that gives a whole number.
pub(super) fn span_s(seconds: u64) -> String {
    let (count, unit) = match seconds {
        s if s >= 172_800 && s % 86_400 == 0 => (s / 86_400, "days"),
        s if s >= 7_200 && s % 3_600 == 0 => (s / 3_600, "hours"),
        s if s >= 120 && s % 60 == 0 => (s / 60, "min"),
        s => (s, "s"),
    };
    format!("{count} {unit}")
}

/// A short time span.
pub(super) fn span_ms(ms: u64) -> String {
    if ms % 1_000 == 0 { span_s(ms / 1_000) } else { format!("{}.{} s", ms / 1_000, ms % 1_000 / 100) }
}

/// A template as people say it: a lone place by its name, anything else as written.
pub(super) fn place(template: &str) -> String {
    let inner = template.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let lone = inner.filter(|inner| !inner.contains(['{', '}', '[', '|', '?']));
    let Some(lone) = lone else { return code(template) };
    match lone.split_once(':') {
        Some(("json", path)) => code(path),
        Some(("item", path)) => format!("{} of each item", code(path)),
        Some(("outer", path)) => format!("{} around the items", code(path)),
        Some(("header", name)) => format!("header {}", code(name)),
        Some(("query", name)) => format!("query field {}", code(name)),
        Some(("form", name)) => format!("form field {}", code(name)),
        Some(("setting", name)) => format!("setting {}", code(name)),
        Some(("json-key-except", names)) => format!("the one key that is not {}", code(names)),
        _ => code(template),
    }
}

/// The first of several templates that gives a text.
pub(super) fn places(templates: &[&str]) -> String {
    let words: Vec<String> = templates.iter().map(|template| place(template)).collect();
    listed(&words, "or")
}

#[test]
fn places_and_spans_are_said_plainly() {
    assert_eq!(place("{json:data.id}"), "`data.id`");
    assert_eq!(place("{header:X-Id}"), "header `X-Id`");
    assert_eq!(place("{json:a}:{json:b}"), "`{json:a}:{json:b}`");
    assert_eq!(places(&["{json:a}", "{item:b}"]), "`a` or `b` of each item");
    assert_eq!(code("a|b\nc"), "`a\\|b\\nc`");
    assert_eq!([span_s(259_200), span_s(86_400), span_s(300), span_s(90)], ["3 days", "24 hours", "5 min", "90 s"]);
    assert_eq!([span_ms(10_000), span_ms(1_250)], ["10 s", "1.2 s"]);
}
