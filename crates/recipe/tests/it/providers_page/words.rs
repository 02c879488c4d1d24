//! Values of recipes in words.

use portero_recipe::told::listed;
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

/// A template as people say it: a lone place by its kind and name, anything else as written.
fn place_parts(template: &str) -> (&'static str, String) {
    let inner = template.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let lone = inner.filter(|inner| !inner.contains(['{', '}', '[', '|', '?']));
    match lone.and_then(|lone| lone.split_once(':')) {
        Some(("json", path)) => ("", code(path)),
        Some(("item", path)) => ("each item's ", code(path)),
        Some(("outer", path)) => ("around the items ", code(path)),
        Some(("header", name)) => ("header ", code(name)),
        Some(("query", name)) => ("query field ", code(name)),
        Some(("form", name)) => ("form field ", code(name)),
        Some(("setting", name)) => ("setting ", code(name)),
        Some(("json-key-except", names)) => ("the one key that is not ", code(names)),
        _ => ("", code(template)),
    }
}

/// One template.
pub(super) fn place(template: &str) -> String {
    let (kind, name) = place_parts(template);
    format!("{kind}{name}")
}

/// The first of several templates that gives a text; a kind is said once for those that follow.
pub(super) fn places(templates: &[&str]) -> String {
    let mut last = "";
    let words = templates.iter().map(|template| {
        let (kind, name) = place_parts(template);
        let said = if kind == last { name } else { format!("{kind}{name}") };
        last = kind;
        said
    });
    listed(&words.collect::<Vec<_>>(), "or")
}

/// A template in a table: what is too long for a cell is only counted.
pub(super) fn short_place(template: &str) -> String {
    if template.len() <= 72 {
        return place(template);
    }
    format!("{} values", template.matches('{').count())
}

#[test]
fn places_are_said_plainly() {
    assert_eq!(place("{json:data.id}"), "`data.id`");
    assert_eq!(place("{header:X-Id}"), "header `X-Id`");
    assert_eq!(place("{json:a}:{json:b}"), "`{json:a}:{json:b}`");
    assert_eq!(places(&["{json:a}", "{item:b}"]), "`a` or each item's `b`");
    assert_eq!(places(&["{form:a}", "{form:b}", "{json:c}"]), "form field `a`, `b` or `c`");
    assert_eq!(code("a|b\nc"), "`a\\|b\\nc`");
}
