//! Writing a signature into a JSON body, byte for byte beside what is there.

use std::ops::Range;

use super::SignError;
use crate::json::{Document, Lookup};
use crate::path::{Path, Segment};

/// Writes a string at a path below the object at `from`: in place of the value there, or as a new first member. Up to
/// that object, `bytes` and `document` are the same.
pub(super) fn place_in(
    bytes: &[u8],
    document: &Document<'_>,
    from: Range<usize>,
    path: &Path,
    text: &str,
) -> Result<Vec<u8>, SignError> {
    let mut value = serde_json::Value::String(text.to_owned()).to_string();
    if let Lookup::Found(at) = document.lookup(from.clone(), path) {
        return Ok([&bytes[..at.start], value.as_bytes(), &bytes[at.end..]].concat());
    }
    let names: Vec<&str> = path
        .segments()
        .iter()
        .map(|segment| match segment {
            Segment::Name { name, .. } => Ok(name.as_str()),
            Segment::Each => Err(SignError::BodyShape),
        })
        .collect::<Result<_, _>>()?;
    // The deepest object on the way that exists takes what is missing.
    let mut parent = from;
    let mut depth = 0;
    while depth + 1 < names.len() {
        let step = Path::parse(names[depth]).map_err(|_| SignError::BodyShape)?;
        match document.lookup(parent.clone(), &step) {
            Lookup::Found(at) => parent = at,
            Lookup::Missing => break,
            Lookup::Duplicate => return Err(SignError::BodyShape),
        }
        depth += 1;
    }
    if bytes.get(parent.start) != Some(&b'{') {
        return Err(SignError::BodyShape);
    }
    for name in names[depth + 1..].iter().rev() {
        value = format!("{{{}:{value}}}", serde_json::Value::from(*name));
    }
    let rest = &bytes[parent.start + 1..];
    let is_empty = rest.trim_ascii_start().first() == Some(&b'}');
    let comma = if is_empty { "" } else { "," };
    let member = format!("{}:{value}{comma}", serde_json::Value::from(names[depth]));
    Ok([&bytes[..=parent.start], member.as_bytes(), rest].concat())
}
