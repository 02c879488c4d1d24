//! XML, read as if it were JSON, for providers whose payload is XML.
//!
//! Elements become members, repeated ones a list, and those without elements a text; attributes do not count, and the
//! outermost element's name does not either: `<notification><kind>k</kind></notification>` is `{"kind":"k"}`. There are no
//! document types and no entities but the five of XML itself and characters by number: what a reader must not expand
//! cannot be expanded.

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Map, Value};

/// Deepest element.
const DEPTH_MAX: usize = 32;
/// Most elements.
const ELEMENTS_MAX: usize = 100_000;

/// The JSON text of an XML text; `None` when it is not XML of one outermost element and at most 32 levels.
pub(crate) fn to_json(xml: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(xml).ok()?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{FEFF}'));
    reader.config_mut().enable_all_checks(true);
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    let mut count = 0;
    loop {
        let event = reader.read_event().ok()?;
        match event {
            Event::Start(start) => {
                count += 1;
                if root.is_some() || open.len() == DEPTH_MAX || count > ELEMENTS_MAX {
                    return None;
                }
                open.push(Element::new(start.name().as_ref()));
            }
            Event::Empty(start) => {
                count += 1;
                if root.is_some() || open.len() == DEPTH_MAX || count > ELEMENTS_MAX {
                    return None;
                }
                close(Element::new(start.name().as_ref()), &mut open, &mut root);
            }
            Event::End(_) => {
                let element = open.pop()?;
                close(element, &mut open, &mut root);
            }
            Event::Text(content) => add(&mut open, &content.xml10_content())?,
            Event::CData(content) => add(&mut open, &content.xml10_content())?,
            Event::GeneralRef(reference) => {
                let character = match reference.resolve_char_ref().ok()? {
                    Some(character) => character,
                    None => entity(&reference.xml10_content())?,
                };
                open.last_mut()?.text.push(character);
            }
            Event::DocType(_) => return None,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    if !open.is_empty() {
        return None;
    }
    serde_json::to_vec(&root?).ok()
}

/// An element that is being read.
struct Element {
    name: String,
    text: String,
    members: Map<String, Value>,
}

impl Element {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), text: String::new(), members: Map::new() }
    }

    /// A text, or the members where there are any: then the text is the white space between them.
    fn value(self) -> Value {
        if self.members.is_empty() { Value::String(self.text) } else { Value::Object(self.members) }
    }
}

/// Adds text to the innermost element; around the outermost one only white space may be.
fn add(open: &mut [Element], text: &str) -> Option<()> {
    match open.last_mut() {
        Some(element) => element.text.push_str(text),
        None if text.trim().is_empty() => {}
        None => return None,
    }
    Some(())
}

/// Puts an element where it belongs: into the one around it, behind others of its name.
fn close(element: Element, open: &mut [Element], root: &mut Option<Value>) {
    let Some(around) = open.last_mut() else {
        *root = Some(element.value());
        return;
    };
    let name = element.name.clone();
    let value = element.value();
    match around.members.get_mut(&name) {
        None => {
            around.members.insert(name, value);
        }
        // Only repeated elements make lists: an element's own value is never one.
        Some(Value::Array(list)) => list.push(value),
        Some(first) => {
            let list = vec![first.take(), value];
            *first = Value::Array(list);
        }
    }
}

/// The five entities of XML (section 4.6).
fn entity(name: &str) -> Option<char> {
    Some(match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "apos" => '\'',
        "quot" => '"',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Document, Lookup, Scalar};
    use crate::path::Path;
    use proptest::prelude::*;

    fn json(xml: &str) -> Option<String> {
        to_json(xml.as_bytes()).map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    fn at(xml: &str, path: &str) -> Option<String> {
        let bytes = to_json(xml.as_bytes())?;
        let document = Document::parse(bytes.into(), 64).expect("JSON");
        let Lookup::Found(at) = document.lookup(document.root(), &Path::parse(path).expect("a path")) else {
            return None;
        };
        match document.scalar(at) {
            Scalar::Text(text) => Some(text.into_owned()),
            Scalar::None | Scalar::NotUnicode => None,
        }
    }

    #[test]
    fn a_notification_gives_its_kind_and_the_id_of_its_subject() {
        let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
            <notification>
              <timestamp type="datetime">2026-01-01T00:00:00Z</timestamp>
              <kind>subscription_went_past_due</kind>
              <subject><subscription><id>sub-1</id>
                <transactions type="array"><transaction><id>t1</id></transaction><transaction><id>t2</id></transaction></transactions>
                <add-ons type="array"/></subscription></subject>
            </notification>"#;
        assert_eq!(at(xml, "kind").as_deref(), Some("subscription_went_past_due"));
        assert_eq!(at(xml, "subject.subscription.id").as_deref(), Some("sub-1"));
        assert_eq!(at(xml, "subject.*.id").as_deref(), Some("sub-1"));
        assert_eq!(at(xml, "subject.subscription.transactions.transaction.1.id").as_deref(), Some("t2"));
        assert_eq!(at(xml, "subject.subscription.add-ons").as_deref(), Some(""));
        assert_eq!(at(xml, "timestamp").as_deref(), Some("2026-01-01T00:00:00Z"));
    }

    #[test]
    fn text_is_kept_as_it_is_and_escapes_are_undone() {
        assert_eq!(
            json("<a><b> x &amp; &lt;y&gt; &#233;&#xe9; </b></a>").as_deref(),
            Some(r#"{"b":" x & <y> éé "}"#)
        );
        assert_eq!(json("<a><b><![CDATA[<&]]></b></a>").as_deref(), Some(r#"{"b":"<&"}"#));
        assert_eq!(json("<a><!-- no --><b>1<!-- no -->2</b></a>").as_deref(), Some(r#"{"b":"12"}"#));
        assert_eq!(json("<a>x</a>").as_deref(), Some(r#""x""#));
        assert_eq!(json("<a><b/><b>1</b><b>2</b></a>").as_deref(), Some(r#"{"b":["","1","2"]}"#));
    }

    #[test]
    fn what_is_not_plain_xml_is_refused() {
        for bad in [
            "",
            "x",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "<a/>x",
            "x<a/>",
            "<a>&unknown;</a>",
            "<a>&#0;</a>",
            "<a>& b</a>",
            "<!DOCTYPE a><a/>",
            r#"<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>"#,
            r#"<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>"#,
        ] {
            assert_eq!(json(bad), None, "{bad}");
        }
        assert_eq!(to_json(b"<a>\xFF</a>"), None);
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(json(&nested(DEPTH_MAX)).is_some());
        assert_eq!(json(&nested(DEPTH_MAX + 1)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = to_json(&bytes);
        }

        #[test]
        fn no_tags_make_the_reader_panic(text in "(<[/!?]?[ab][^<>]{0,3}/?>|&#?x?[a-f0-9]{0,4};|[ab<>&\"]|<!\\[CDATA\\[|\\]\\]>){0,12}") {
            if let Some(bytes) = to_json(text.as_bytes()) {
                prop_assert!(Document::parse(bytes.into(), 64).is_ok());
            }
        }
    }
}
