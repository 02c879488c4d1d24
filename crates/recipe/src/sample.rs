//! Sample events of recipes, for `portero send` and for tests.

use portero_types::Timestamp;
use serde_json::Value;

use crate::encoding::Encoding;
use crate::window::write_rfc3339;
use crate::{Recipe, form, schema};

/// A realistic event of a provider, not yet signed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The event's type, as [`crate::extract()`] will find it.
    pub event_type: String,
    /// The entity, as [`crate::extract()`] will find it.
    pub entity: String,
    /// Headers beside those of the signature (account, API version), lower-case names.
    pub headers: Vec<(String, String)>,
    /// The query, without `?`.
    pub query: String,
    /// The body.
    pub body: Vec<u8>,
}

/// The recipe's sample event about `entity` (`None`: one that the sample chooses), with the given event id, as of `now`.
///
/// The id lands in the body or, by [`crate::sign()`], in a header, wherever the provider sends it; some providers' ids hold
/// more than that. An entity of several parts has `:` between them. `None` when the recipe has no sample.
#[must_use]
pub fn sample(recipe: &Recipe, id: &str, entity: Option<&str>, now: Timestamp) -> Option<Sample> {
    let sample = recipe.sample.as_ref()?;
    let entity = entity.unwrap_or(&sample.entity);
    let fill = Fill { id, entity, now };
    let mut headers: Vec<_> =
        sample.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), fill.text(value))).collect();
    let mut fields: Vec<(String, String)> =
        (sample.form.iter().flatten()).map(|(name, value)| (name.clone(), fill.text(value))).collect();
    if let (Some(text), Some(document)) = (&sample.wrapped, &recipe.document) {
        let text = fill.text(text);
        let text = if document.base64 { Encoding::Base64.encode(text.as_bytes()) } else { text };
        fields.push((document.form.clone().unwrap_or_default(), text));
    }
    let (content_type, body) = if fields.is_empty() {
        let json = sample.json.as_ref().map(|json| fill.value(json));
        ("application/json", json.map_or_else(Vec::new, |json| json.to_string().into_bytes()))
    } else {
        let pair =
            |(name, value): &(String, String)| format!("{}={}", form::encode(name), form::encode(value));
        let body = fields.iter().map(pair).collect::<Vec<_>>().join("&");
        ("application/x-www-form-urlencoded", body.into_bytes())
    };
    if headers.iter().all(|(name, _)| name != "content-type") {
        headers.insert(0, ("content-type".to_owned(), content_type.to_owned()));
    }
    Some(Sample {
        event_type: sample.event_type.clone(),
        entity: entity.to_owned(),
        headers,
        query: fill.text(&sample.query),
        body,
    })
}

/// What is wrong with a sample, if anything.
pub(crate) fn check(sample: &schema::Sample) -> Result<(), String> {
    if sample.json.is_some() && (sample.form.is_some() || sample.wrapped.is_some()) {
        return Err("give 'json', or 'form' and 'wrapped'".to_owned());
    }
    for (name, value) in &sample.headers {
        crate::template::header_name(name)?;
        if !crate::compile::is_header_value(value) {
            return Err(format!("the header '{name}' has no header value"));
        }
    }
    Ok(())
}

/// What the words of a sample stand for.
struct Fill<'a> {
    id: &'a str,
    entity: &'a str,
    now: Timestamp,
}

impl Fill<'_> {
    /// `$entity:1`, `$entity:2` are the entity's parts; then come the words for the whole.
    fn text(&self, text: &str) -> String {
        let mut text = text.replace("$id", self.id);
        for (n, part) in self.entity.splitn(4, ':').enumerate() {
            text = text.replace(&format!("$entity:{}", n + 1), part);
        }
        text.replace("$entity", self.entity).replace("$now", &write_rfc3339(self.now))
    }

    /// Text, or a number where the whole text asks for one.
    fn string(&self, text: &str) -> Value {
        match text {
            "$now:number" => self.now.as_secs().into(),
            "$now:ms" => self.now.as_millis().into(),
            "$now:seconds" => self.now.as_secs().to_string().into(),
            "$id:number" => number(self.id),
            "$entity:number" => number(self.entity),
            _ => match text.strip_suffix(":number").filter(|text| text.starts_with("$entity:")) {
                Some(part) => number(&self.text(part)),
                None => self.text(text).into(),
            },
        }
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(values) => values.iter().map(|value| self.value(value)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (self.text(name), self.value(value))).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// A number where the text is one that JSON can hold exactly, else the text.
fn number(text: &str) -> Value {
    text.parse::<u64>().ok().filter(|n| n.to_string() == text).map_or_else(|| text.into(), Value::from)
}
