//! Single readers: signature lists, times, forms, JSON.

use std::collections::HashSet;
use std::time::Duration;

use portero_types::Timestamp;
use portero_types::limits::{EVENTS_PER_REQUEST_MAX, JSON_DEPTH_MAX, SIGNATURES_PER_REQUEST_MAX};

use crate::algorithm::Algorithm;
use crate::encoding::Encoding;
use crate::form::{self, Field};
use crate::json::{Document, Lookup, Scalar};
use crate::path::Path;
use crate::schema::TimeCheck;
use crate::signature_list::{List, Reader};
use crate::window::{Unit, Window};

/// Reads a signature list: the first byte chooses the form, the second algorithm and encoding.
pub fn signatures(data: &[u8]) {
    let Some(([form, how], text)) = data.split_first_chunk::<2>() else { return };
    let algorithm = [Algorithm::HmacSha256, Algorithm::Ed25519, Algorithm::Equal][usize::from(how >> 1) % 3];
    let encoding = if how & 1 == 0 { Encoding::Hex } else { Encoding::Base64 };
    let list = list(*form);
    let algorithms = if matches!(list, List::Standard) {
        vec![("v1".to_owned(), Algorithm::HmacSha256), ("v1a".to_owned(), Algorithm::Ed25519)]
    } else {
        vec![(String::new(), algorithm)]
    };
    let reader = Reader { list, algorithms, encoding };
    if let Ok(parsed) = reader.read(text) {
        assert!((1..=SIGNATURES_PER_REQUEST_MAX).contains(&parsed.candidates.len()));
        assert!(parsed.ts.is_none_or(|ts| ts.len() < text.len()));
    }
    if !text.is_empty() && text.len() <= 512 && algorithm != Algorithm::Equal {
        let algorithm = reader.algorithms.first().map_or(algorithm, |(_, algorithm)| *algorithm);
        let written = reader.write(algorithm, "name", text, "1750000000");
        let parsed = reader.read(written.as_bytes()).expect("what was written is read");
        assert_eq!(parsed.candidates.len(), 1);
        assert!(parsed.ts.is_none_or(|ts| ts == b"1750000000"));
    }
}

fn list(form: u8) -> List {
    let plain = |prefix: &str, separator| List::Plain { prefix: prefix.to_owned(), separator };
    let pairs = |separator, tag: &str, time: Option<&str>| List::Pairs {
        separator,
        tag: tag.to_owned(),
        time: time.map(str::to_owned),
    };
    match form % 10 {
        0 => plain("", None),
        1 => plain("sha256=", None),
        2 => plain("v1=", Some(',')),
        3 => plain("", Some(' ')),
        4 => pairs(',', "v1", Some("t")),
        5 => pairs(';', "h1", Some("ts")),
        6 => pairs('&', "v1", None),
        7 => List::Standard,
        8 => List::Named,
        _ => List::Positional { separator: ',' },
    }
}

/// Reads a time: the first byte chooses the unit. One that was read is written and read again.
pub fn times(data: &[u8]) {
    let Some((unit, text)) = data.split_first() else { return };
    let unit = [Unit::Seconds, Unit::Milliseconds, Unit::Rfc3339, Unit::Auto][usize::from(unit % 4)];
    let seconds = Duration::from_secs;
    let window =
        Window { source: None, unit, past: seconds(300), future: seconds(60), check: TimeCheck::Reject };
    let Ok(time) = window.read(text) else { return };
    let judged = window.judge(time, Timestamp::from_secs(1_750_000_000));
    let off = time.as_micros() - 1_750_000_000_000_000;
    assert_eq!(judged.is_ok(), (-300_000_000..=60_000_000).contains(&off));
    // Only times of an event's sending are ever written: after 1970, and in a year of four digits.
    if (0..253_402_300_800).contains(&time.as_secs()) {
        let read = window.read(window.write(time).as_bytes()).expect("what was written is read");
        let exact = !matches!(unit, Unit::Auto);
        assert!(read == time || !exact, "a time changed when it was written");
    }
}

/// Looks a field up in a form, and sorts the form: the name stands before the first line end.
pub fn forms(data: &[u8]) {
    let (name, form) = split(data);
    let Ok(name) = std::str::from_utf8(name) else { return };
    let sorted = form::sorted(form);
    if let Field::Found(value) = form::field(form, name) {
        assert!(value.len() <= form.len());
        let pair = [name.as_bytes(), &value].concat();
        let Ok(sorted) = sorted else { return };
        assert!(pair.is_empty() || sorted.windows(pair.len()).any(|at| at == pair));
    }
}

/// Reads JSON and follows a path in it, which stands before the first line end. `serde_json` must agree.
pub fn json(data: &[u8]) {
    let (path, text) = split(data);
    let path = std::str::from_utf8(path).ok().and_then(|path| Path::parse(path).ok());
    let theirs = serde_json::from_slice::<serde_json::Value>(text);
    let Ok(document) = Document::parse(text.into(), JSON_DEPTH_MAX) else {
        assert!(theirs.is_err() || nesting(text) > JSON_DEPTH_MAX, "valid JSON was refused");
        return;
    };
    assert!(Document::parse(text.into(), usize::MAX).is_ok());
    let keys: Vec<_> = document.keys().collect();
    let Some(path) = path else { return };
    let items = document.items(&path, EVENTS_PER_REQUEST_MAX).unwrap_or_default();
    assert!(items.len() <= EVENTS_PER_REQUEST_MAX && items.iter().all(|item| item.at.end <= text.len()));
    let Lookup::Found(at) = document.lookup(document.root(), &path) else { return };
    let scalar = document.scalar(at);
    let unique = keys.iter().collect::<HashSet<_>>().len() == keys.len();
    // One name: the value must be what another reader finds. (Below, a repeated name may hide behind the last one.)
    let one_name = path.segments().len() == 1 && !path.as_str().contains('*');
    if let (Ok(serde_json::Value::Object(theirs)), true, true) = (theirs, unique, one_name) {
        let theirs = theirs.get(path.as_str()).expect("both find the name");
        match (theirs, scalar) {
            (serde_json::Value::String(theirs), Scalar::Text(ours)) => assert_eq!(*theirs, ours),
            (serde_json::Value::Bool(theirs), Scalar::Text(ours)) => assert_eq!(theirs.to_string(), ours),
            (serde_json::Value::Number(_), Scalar::Text(ours)) => {
                assert!(ours.starts_with(|first: char| first == '-' || first.is_ascii_digit()));
            }
            (serde_json::Value::String(_) | serde_json::Value::Bool(_) | serde_json::Value::Number(_), _) => {
                panic!("another reader finds a value");
            }
            (_, scalar) => assert_eq!(scalar, Scalar::None),
        }
    }
}

/// Reads XML as if it were JSON.
pub fn xml(data: &[u8]) {
    let Some(json) = crate::xml::to_json(data) else { return };
    serde_json::from_slice::<serde_json::Value>(&json).expect("what comes out is JSON");
    Document::parse(json.into(), usize::MAX).expect("and our reader takes it");
}

/// At most how deep brackets nest: those within strings count too.
fn nesting(text: &[u8]) -> usize {
    text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count()
}

fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n');
    at.map_or((&[][..], data), |at| (&data[..at], &data[at + 1..]))
}
