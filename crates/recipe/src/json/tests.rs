//! Tests of the JSON reader.

use super::*;
use proptest::prelude::*;

fn document(text: &[u8]) -> Result<Document<'_>, Malformed> {
    Document::parse(text.into(), usize::MAX)
}

fn at(text: &str, path: &str) -> Option<String> {
    let document = document(text.as_bytes()).expect("valid JSON");
    match document.lookup(document.root(), &Path::parse(path).expect("valid path")) {
        Lookup::Found(range) => match document.scalar(range) {
            Scalar::Text(text) => Some(text.into_owned()),
            Scalar::None | Scalar::NotUnicode => None,
        },
        Lookup::Missing | Lookup::Duplicate => None,
    }
}

#[test]
fn numbers_keep_their_source_text() {
    assert_eq!(at(r#"{"id":820982911946154508}"#, "id").as_deref(), Some("820982911946154508"));
    assert_eq!(at(r#"{"id":1.0}"#, "id").as_deref(), Some("1.0"));
    assert_eq!(at(r#"{"id":1e400}"#, "id").as_deref(), Some("1e400"));
}

#[test]
fn paths_take_names_numbers_and_first_matches() {
    let text = r#"{"a":[{"b":1},{"c":"x\u00e9\ud83d\ude00"}],"7":true}"#;
    assert_eq!(at(text, "a.0.b").as_deref(), Some("1"));
    assert_eq!(at(text, "a.*.c").as_deref(), Some("xé😀"));
    assert_eq!(at(text, "7").as_deref(), Some("true"));
    assert_eq!(at(text, "a.2.b"), None);
    assert_eq!(at(text, "a.b"), None);
    assert_eq!(at(text, "7.b"), None);
}

#[test]
fn an_escaped_name_is_the_same_name_and_its_repetition_is_seen() {
    assert_eq!(at(r#"{"\u0069d":"a"}"#, "id").as_deref(), Some("a"));
    let text = document(br#"{"id":"a","\u0069d":"b","x":{"id":1,"id":2}}"#).expect("valid");
    for path in ["id", "x.id", "id.deeper"] {
        assert_eq!(text.lookup(text.root(), &Path::parse(path).expect("valid")), Lookup::Duplicate, "{path}");
    }
    assert_eq!(at(r#"{"id":"a","x":{"y":1,"y":2}}"#, "id").as_deref(), Some("a"), "repeated elsewhere");
}

#[test]
fn odd_bytes_elsewhere_do_not_hide_a_value() {
    let text = b"\xEF\xBB\xBF\xEF\xBB\xBF {\"junk\":\"\xFF\xFE\\ud800 \x01\",\"id\":\"a\"}\n";
    let text = document(text).expect("readable");
    let Lookup::Found(range) = text.lookup(text.root(), &Path::parse("id").expect("valid")) else {
        panic!("not found")
    };
    assert_eq!(text.scalar(range), Scalar::Text("a".into()));
    let Lookup::Found(range) = text.lookup(text.root(), &Path::parse("junk").expect("valid")) else {
        panic!("not found")
    };
    assert_eq!(text.scalar(range), Scalar::NotUnicode);
}

#[test]
fn what_is_not_json_is_refused() {
    for bad in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "[1 2]",
        "01",
        "1.",
        "-",
        "+1",
        "1e",
        "nul",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "{} {}",
        "[}",
        "{]",
        "{\"a\":}",
        "\u{feff}",
        "[1]]",
    ] {
        assert_eq!(document(bad.as_bytes()).err(), Some(Malformed), "{bad}");
    }
}

#[test]
fn a_million_brackets_are_read_without_a_million_frames() {
    let deep = [vec![b'['; 1 << 20], vec![b']'; 1 << 20]].concat();
    assert!(document(&deep).is_ok());
    assert_eq!(Document::parse((&deep).into(), 64).err(), Some(Malformed));
    assert!(Document::parse(b"[[[]]]".into(), 3).is_ok());
    assert!(Document::parse(b"[[[[]]]]".into(), 3).is_err());
}

#[test]
fn batches_give_their_elements_and_what_is_around_them() {
    let text = br#"{"n":[{"r":"A","e":[{"i":1},{"i":2}]},{"r":"B","e":[{"i":3}]}]}"#;
    let text = document(text).expect("valid");
    let get = |from: Range<usize>, path: &str| {
        let Lookup::Found(range) = text.lookup(from, &Path::parse(path).expect("valid")) else { panic!() };
        match text.scalar(range) {
            Scalar::Text(text) => text.into_owned(),
            Scalar::None | Scalar::NotUnicode => panic!(),
        }
    };
    let items = text.items(&Path::parse("n.*.e.*").expect("valid"), 3).expect("a batch");
    let got: Vec<_> =
        items.iter().map(|item| get(item.outer.clone(), "r") + &get(item.at.clone(), "i")).collect();
    assert_eq!(got, ["A1", "A2", "B3"]);
    assert_eq!(text.items(&Path::parse("n.*.e.*").expect("valid"), 2), Err(BatchError::TooMany));
    assert_eq!(text.items(&Path::parse("n.*.x.*").expect("valid"), 9), Err(BatchError::Shape));
    assert_eq!(text.items(&Path::parse("*").expect("valid"), 9), Err(BatchError::Shape));
}

proptest! {
    #[test]
    fn no_input_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = document(&bytes);
    }

    #[test]
    fn no_jsonish_input_makes_the_reader_panic(text in r#"[\[\]{}",:0-9a\\u. -]{0,60}"#, path in "[a0*]([.][a0*]){0,3}") {
        if let Ok(document) = document(text.as_bytes()) {
            let path = Path::parse(&path).expect("valid path");
            if let Lookup::Found(at) = document.lookup(document.root(), &path) {
                let _ = document.scalar(at);
            }
            let _ = document.items(&path, 10);
        }
    }

    #[test]
    fn it_accepts_what_another_parser_accepts(text in r#"[\[\]{}",:0-9atrue\\u. -]{0,24}"#) {
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            prop_assert!(document(text.as_bytes()).is_ok());
        }
    }
}

#[test]
fn long_containers_are_passed_over_without_changing_what_is_found() {
    let long = format!(r#"{{"id":"inner","list":[{}0],"text":"}}]\"{{["}}"#, "[1,2],".repeat(40));
    let text =
        format!(r#"{{"a":{long},"id":"outer","b":[{long},{{"id":"second"}}],"twice":{long},"twice":1}}"#);
    assert_eq!(at(&text, "id").as_deref(), Some("outer"));
    assert_eq!(at(&text, "a.id").as_deref(), Some("inner"));
    assert_eq!(at(&text, "b.1.id").as_deref(), Some("second"));
    assert_eq!(at(&text, "a.list.40").as_deref(), Some("0"));
    let document = document(text.as_bytes()).expect("valid JSON");
    assert_eq!(document.lookup(document.root(), &Path::parse("twice").expect("valid")), Lookup::Duplicate);
}

#[test]
fn the_list_of_long_containers_is_bounded_whatever_the_text_is() {
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(document(deep.as_bytes()).expect("valid JSON").long.found.len() <= LONG_DEPTH_MAX);
    let wide = format!("[{}0]", "[[[[0]]]],".repeat(20_000));
    assert!(document(wide.as_bytes()).expect("valid JSON").long.found.len() <= 64 * LONG_DEPTH_MAX);
}
