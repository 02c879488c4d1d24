//! JSON: `{method, url, headers, body | body_base64}`. Further fields are left alone, so that whole log records do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{RequestFile, header_name, method, split_url};

/// Reads one object.
pub(super) fn parse(content: &[u8]) -> Result<RequestFile, String> {
    let mut values = serde_json::Deserializer::from_slice(content).into_iter::<Value>();
    let first = values
        .next()
        .transpose()
        .map_err(|error| format!("it is not JSON (line {}, column {})", error.line(), error.column()))?;
    if values.next().is_some() {
        return Err("it holds more than one JSON value; give one request".to_owned());
    }
    let Some(Value::Object(fields)) = first else {
        return Err("it is not a JSON object".to_owned());
    };
    let target = text(&fields, "url")?.or(text(&fields, "path")?).unwrap_or_default();
    let (url, mut query) = split_url(target);
    if query.is_empty()
        && let Some(given) = text(&fields, "query")?
    {
        query = given.trim_start_matches('?').to_owned();
    }
    Ok(RequestFile {
        method: method(text(&fields, "method")?.unwrap_or("POST"))?,
        query,
        headers: headers(fields.get("headers"))?,
        body: body(&fields)?,
        url,
        doubts: Vec::new(),
    })
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("its '{name}' is not a text")),
    }
}

fn body(fields: &Map<String, Value>) -> Result<Vec<u8>, String> {
    match (fields.get("body"), text(fields, "body_base64")?) {
        (Some(Value::String(_)), Some(_)) => Err("it has both 'body' and 'body_base64'".to_owned()),
        (_, Some(encoded)) => {
            STANDARD.decode(encoded).map_err(|_| "its 'body_base64' is not base64".to_owned())
        }
        (Some(Value::String(text)), None) => Ok(text.clone().into_bytes()),
        (None | Some(Value::Null), None) => Ok(Vec::new()),
        (Some(_), None) => {
            Err("its 'body' is JSON, not a text that holds the body: the bytes that were signed are \
             lost, and no signature can be checked"
                .to_owned())
        }
    }
}

/// Headers as `{name: value}`, `{name: [values]}`, `[[name, value]]` or `[{name, value}]`.
fn headers(given: Option<&Value>) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut headers = Vec::new();
    let mut push = |name: &str, value: &Value| {
        let Value::String(value) = value else {
            return Err("one of its headers has a value that is not a text".to_owned());
        };
        headers.push((header_name(name, "one of its headers")?, value.trim().as_bytes().to_vec()));
        Ok(())
    };
    match given {
        None | Some(Value::Null) => {}
        Some(Value::Object(members)) => {
            for (name, value) in members {
                if let Value::Array(values) = value {
                    values.iter().try_for_each(|value| push(name, value))?;
                } else {
                    push(name, value)?;
                }
            }
        }
        Some(Value::Array(list)) => {
            for entry in list {
                let pair = entry.as_array().filter(|pair| pair.len() == 2);
                let (name, value) =
                    pair.map_or_else(|| (&entry["name"], &entry["value"]), |pair| (&pair[0], &pair[1]));
                push(name.as_str().unwrap_or_default(), value)?;
            }
        }
        Some(_) => return Err("its 'headers' are not an object".to_owned()),
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_in_every_common_form() {
        let wanted = [("a".to_owned(), b"1".to_vec()), ("a".to_owned(), b"2".to_vec())];
        for form in [
            r#"{"A": ["1", "2"]}"#,
            r#"[["A", "1"], ["a", "2"]]"#,
            r#"[{"name": "A", "value": "1"}, {"name": "a", "value": "2"}]"#,
        ] {
            let request = parse(format!(r#"{{"headers": {form}}}"#).as_bytes()).expect(form);
            assert_eq!(request.headers, wanted, "{form}");
            assert_eq!(request.method, "POST", "unless said");
        }
    }

    #[test]
    fn a_line_of_a_sample_file_is_a_request() {
        let lines = include_str!("../../../../../tests/cases/signed-samples.jsonl").lines();
        let requests: Vec<RequestFile> =
            lines.map(|line| parse(line.as_bytes()).expect("a request")).collect();
        assert!(requests.len() > 70 && requests.iter().all(|request| request.url.is_some()));
    }

    #[test]
    fn bodies_that_lost_their_bytes_are_refused() {
        for (bad, word) in [
            (r#"{"body": {"id": 1}}"#, "lost"),
            (r#"{"body": "x", "body_base64": "eA=="}"#, "both"),
            (r#"{"body_base64": "*"}"#, "not base64"),
            (r#"{"body": "a"} {"body": "b"}"#, "more than one"),
            (r#"{"method": "P T"}"#, "method"),
            (r#"{"headers": {"a b": "1"}}"#, "header name"),
            (r#"{"headers": {"a": 1}}"#, "not a text"),
        ] {
            let error = parse(bad.as_bytes()).expect_err(bad);
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
