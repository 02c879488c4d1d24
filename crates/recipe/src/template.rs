//! Templates: literals and values taken from the request, such as `{ts}.{body}` or `{header:x-event}[.{json:action}]`.
//!
//! `{ts}` signed time as sent · `{body}` · `{method}` · `{url}` · `{secret}` · `{header:name}` · `{query:name}` ·
//! `{form:name}` · `{form-sorted}` · `{setting:name}` · `{json:path}` · `{json-key-except:a,b}` · `{item:path}` (the batch's
//! element) · `{outer:path}` (what is around its list) · `{computed}` and `{key-name}` (handshakes) · `{name?:…}` empty when missing · `{…|lower}` in lower case · `{…|sha256}` its digest · `{…|untrue}` missing when it is `true` · `[…]` left out when something in it is
//! missing · `\` in front of `{ } [ ] \` for the character itself.

use crate::path::Path;

/// Longest template, bytes.
pub(crate) const TEMPLATE_BYTES_MAX: usize = 512;

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// Its parts in order.
    pub(crate) parts: Vec<Part>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Text.
    Literal(String),
    /// A value.
    Value(Value),
    /// Left out when a value in it is missing. Holds no further group.
    Group(Vec<Self>),
}

/// A value's place and what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// Where it is.
    pub(crate) source: Source,
    /// Whether it counts as empty when it is missing.
    pub(crate) optional: bool,
    /// What is done with it.
    pub(crate) filter: Filter,
}

/// What is done with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Nothing.
    None,
    /// It is turned into lower case (ASCII).
    Lower,
    /// Its SHA-256 stands for it, in hexadecimal.
    Sha256,
    /// It counts as missing when it is `true`.
    Untrue,
}

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The signed time, as sent.
    Ts,
    /// The body as received.
    Body,
    /// The method.
    Method,
    /// The configured public URL with the received query.
    Url,
    /// A header, by lower-case name.
    Header(String),
    /// A query field.
    Query(String),
    /// A field of a form-encoded body.
    Form(String),
    /// Every field of a form-encoded body: names and values, sorted, repeats once.
    FormSorted,
    /// A setting of the source.
    Setting(String),
    /// The secret's key material.
    Secret,
    /// A value of the JSON body.
    Json(Path),
    /// The one key of the JSON body that is none of these.
    JsonKeyExcept(Vec<String>),
    /// A value of the batch's element.
    Item(Path),
    /// A value of what is around the element's list.
    Outer(Path),
    /// What a handshake computed.
    Computed,
    /// The name by which the key is known.
    KeyName,
}

impl Template {
    /// Reads a template; the error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(format!("a template has at most {TEMPLATE_BYTES_MAX} bytes"));
        }
        let mut parser = Parser { rest: text };
        let parts = parser.parts(false)?;
        Ok(Self { parts })
    }

    /// All values in it, those in groups too.
    pub(crate) fn values(&self) -> Vec<&Value> {
        fn collect<'t>(parts: &'t [Part], into: &mut Vec<&'t Value>) {
            for part in parts {
                match part {
                    Part::Value(value) => into.push(value),
                    Part::Group(parts) => collect(parts, into),
                    Part::Literal(_) => {}
                }
            }
        }
        let mut values = Vec::new();
        collect(&self.parts, &mut values);
        values
    }

    /// Whether a digest takes part, so that the text is derived rather than sent.
    pub(crate) fn derives(&self) -> bool {
        self.values().iter().any(|value| value.filter == Filter::Sha256)
    }

    /// Whether any value has this source.
    pub(crate) fn uses(&self, source: &Source) -> bool {
        self.values().iter().any(|value| value.source == *source)
    }

    /// Whether a value that must be there has this source, and takes part as it is or by its digest.
    pub(crate) fn requires(&self, source: &Source) -> bool {
        let is_whole =
            |value: &Value| !value.optional && matches!(value.filter, Filter::None | Filter::Sha256);
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Value(value) if value.source == *source && is_whole(value)))
    }
}

impl Source {
    /// The place in words, for the details of a rejection.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Ts => "the signed time".to_owned(),
            Self::Body => "the body".to_owned(),
            Self::Method => "the method".to_owned(),
            Self::Url => "the public URL".to_owned(),
            Self::Header(name) => format!("the header '{name}'"),
            Self::Query(name) => format!("the query field '{name}'"),
            Self::Form(name) => format!("the form field '{name}'"),
            Self::FormSorted => "the form".to_owned(),
            Self::Setting(name) => format!("the source's setting '{name}'"),
            Self::Secret => "the secret".to_owned(),
            Self::Json(path) => format!("the field '{}'", path.as_str()),
            Self::JsonKeyExcept(_) => "the body's other key".to_owned(),
            Self::Item(path) => format!("the item's field '{}'", path.as_str()),
            Self::Outer(path) => format!("the list's field '{}'", path.as_str()),
            Self::Computed => "the computed value".to_owned(),
            Self::KeyName => "the key's name".to_owned(),
        }
    }
}

struct Parser<'t> {
    rest: &'t str,
}

impl Parser<'_> {
    fn parts(&mut self, in_group: bool) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        while let Some(character) = self.take() {
            let part = match character {
                '\\' => {
                    let escaped = self.take().filter(|c| matches!(c, '{' | '}' | '[' | ']' | '\\'));
                    literal.push(escaped.ok_or("a '\\' stands in front of one of { } [ ] \\")?);
                    continue;
                }
                '{' => Part::Value(self.value()?),
                '[' if in_group => return Err("groups do not nest".to_owned()),
                '[' => Part::Group(self.parts(true)?),
                ']' if in_group => {
                    push_literal(&mut parts, &mut literal);
                    return Ok(parts);
                }
                ']' | '}' => return Err(format!("'{character}' closes nothing")),
                other => {
                    literal.push(other);
                    continue;
                }
            };
            push_literal(&mut parts, &mut literal);
            parts.push(part);
        }
        if in_group {
            return Err("a group is not closed by ']'".to_owned());
        }
        push_literal(&mut parts, &mut literal);
        Ok(parts)
    }

    fn take(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        Some(character)
    }

    fn value(&mut self) -> Result<Value, String> {
        let (inside, rest) = self.rest.split_once('}').ok_or("a value is not closed by '}'")?;
        self.rest = rest;
        let (inside, filter) = match inside.split_once('|') {
            None => (inside, Filter::None),
            Some((inside, "lower")) => (inside, Filter::Lower),
            Some((inside, "sha256")) => (inside, Filter::Sha256),
            Some((inside, "untrue")) => (inside, Filter::Untrue),
            Some((_, filter)) => return Err(format!("no filter is called '{filter}'")),
        };
        let (kind, name) = inside.split_once(':').map_or((inside, None), |(kind, name)| (kind, Some(name)));
        let (kind, optional) = kind.strip_suffix('?').map_or((kind, false), |kind| (kind, true));
        let source = match (kind, name) {
            ("ts", None) => Source::Ts,
            ("body", None) => Source::Body,
            ("method", None) => Source::Method,
            ("url", None) => Source::Url,
            ("secret", None) => Source::Secret,
            ("computed", None) => Source::Computed,
            ("key-name", None) => Source::KeyName,
            ("form-sorted", None) => Source::FormSorted,
            ("header" | "query" | "form" | "setting" | "json-key-except", Some("")) => {
                return Err(format!("'{kind}' needs a name"));
            }
            ("header", Some(name)) => Source::Header(header_name(name)?),
            ("query", Some(name)) => Source::Query(name.to_owned()),
            ("form", Some(name)) => Source::Form(name.to_owned()),
            ("setting", Some(name)) => Source::Setting(name.to_owned()),
            ("json-key-except", Some(names)) => {
                Source::JsonKeyExcept(names.split(',').map(str::to_owned).collect())
            }
            ("json", Some(path)) => Source::Json(Path::parse(path)?),
            ("item", Some(path)) => Source::Item(Path::parse(path)?),
            ("outer", Some(path)) => Source::Outer(Path::parse(path)?),
            _ => return Err(format!("no value is called '{inside}'")),
        };
        Ok(Value { source, optional, filter })
    }
}

fn push_literal(parts: &mut Vec<Part>, literal: &mut String) {
    if !literal.is_empty() {
        parts.push(Part::Literal(std::mem::take(literal)));
    }
}

/// Checks a header's name (RFC 9110 section 5.1) and turns it into lower case.
pub(crate) fn header_name(name: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if (1..=128).contains(&name.len()) && name.bytes().all(is_token) {
        Ok(name.to_ascii_lowercase())
    } else {
        Err(format!("'{name}' is not a header name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn templates_read_as_documented() {
        let template = Template::parse("v0:{ts}[.{json?:a.b|lower}]\\[{header:X-A}").expect("valid");
        let value = |source, optional, filter| Part::Value(Value { source, optional, filter });
        assert_eq!(
            template.parts,
            [
                Part::Literal("v0:".into()),
                value(Source::Ts, false, Filter::None),
                Part::Group(vec![
                    Part::Literal(".".into()),
                    value(Source::Json(Path::parse("a.b").expect("valid")), true, Filter::Lower),
                ]),
                Part::Literal("[".into()),
                value(Source::Header("x-a".into()), false, Filter::None),
            ]
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (bad, word) in [
            ("{bdy}", "no value is called"),
            ("{header:}", "needs a name"),
            ("{header:a b}", "not a header name"),
            ("{body", "not closed"),
            ("[a", "not closed"),
            ("a]", "closes nothing"),
            ("[[a]]", "do not nest"),
            ("{json:a..b}", "empty step"),
            ("{ts|upper}", "no filter"),
            ("\\a", "stands in front"),
        ] {
            let error = Template::parse(bad).expect_err(bad);
            assert!(error.contains(word), "{bad}: {error}");
        }
        assert!(Template::parse(&"a".repeat(513)).is_err());
    }

    proptest! {
        #[test]
        fn no_input_makes_the_parser_panic(text in "[{}\\[\\]a-z?:|.*\\\\é]{0,40}") {
            let _ = Template::parse(&text);
        }
    }
}
