//! What a body may have been before something in front of the gateway changed it. For hints only.

use portero_types::limits::JSON_DEPTH_MAX;

use crate::encoding::Encoding;
use crate::json::Document;

/// Longest body of which variants are made, bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest variant, bytes: indented JSON may be far longer than the same JSON without.
const VARIANT_BYTES_MAX: usize = 4 << 20;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// A body as it may have been sent.
pub(super) struct Variant {
    /// What it means when this one was signed.
    pub(super) meaning: &'static str,
    /// The body.
    pub(super) body: Vec<u8>,
}

/// The likely variants of a body, none of them the body itself.
pub(super) fn of(body: &[u8]) -> Vec<Variant> {
    if body.len() > BODY_BYTES_MAX {
        return Vec::new();
    }
    let mut variants = line_ends(body);
    variants.extend(unwrapped(body));
    if Document::parse(body.into(), JSON_DEPTH_MAX).is_ok() {
        variants.extend(STYLES.iter().filter_map(|style| {
            let body = style.write(body)?;
            Some(Variant { meaning: REFORMATTED, body })
        }));
    }
    variants.retain(|variant| variant.body != body);
    variants
}

const REFORMATTED: &str = "with other white space in its JSON the body would match: something in front of the gateway re-formats bodies";

/// What an adapter in front wrapped, because it can only pass on text.
fn unwrapped(body: &[u8]) -> Option<Variant> {
    let body = Encoding::Base64.decode(body.trim_ascii()).filter(|body| !body.is_empty())?;
    Some(Variant {
        meaning: "decoded from base64 the body would match: something in front of the gateway wraps bodies",
        body,
    })
}

fn line_ends(body: &[u8]) -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut push = |meaning, body| variants.push(Variant { meaning, body });
    if let Some(rest) = body.strip_prefix(BOM) {
        push("without the byte order mark the body would match: something added it", rest.to_vec());
    } else {
        push("with a byte order mark the body would match: something removed it", [BOM, body].concat());
    }
    let without_end = body.strip_suffix(b"\n").map(|rest| rest.strip_suffix(b"\r").unwrap_or(rest));
    if let Some(rest) = without_end {
        push("without its last line end the body would match: an editor or a tool added it", rest.to_vec());
    } else {
        for end in [&b"\n"[..], b"\r\n"] {
            push(
                "with a line end at its end the body would match: something removed it",
                [body, end].concat(),
            );
        }
    }
    if body.windows(2).any(|pair| pair == b"\r\n") {
        let mut unix = body.to_vec();
        let mut at = 0;
        unix.retain(|byte| {
            at += 1;
            *byte != b'\r' || body.get(at) != Some(&b'\n')
        });
        push("with LF instead of CR LF the body would match: something changed its line ends", unix);
    }
    variants
}

/// How writers of JSON set white space.
struct Style {
    after_colon: &'static str,
    after_comma: &'static str,
    indent: Option<usize>,
}

/// Compact; as Python writes by default; indented by two and by four.
const STYLES: [Style; 4] = [
    Style { after_colon: "", after_comma: "", indent: None },
    Style { after_colon: " ", after_comma: " ", indent: None },
    Style { after_colon: " ", after_comma: "", indent: Some(2) },
    Style { after_colon: " ", after_comma: "", indent: Some(4) },
];

impl Style {
    /// The same JSON with this white space; strings and numbers keep their bytes. `None` when it becomes too long.
    fn write(&self, json: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(json.len());
        let mut depth = 0_usize;
        let mut in_string = false;
        let mut bytes = json.strip_prefix(BOM).unwrap_or(json).iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            if out.len() > VARIANT_BYTES_MAX {
                return None;
            }
            if in_string {
                out.push(byte);
                match byte {
                    b'\\' => out.extend(bytes.next()),
                    b'"' => in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b'{' | b'[' => {
                    out.push(byte);
                    while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
                    match bytes.next_if(|next| matches!(next, b'}' | b']')) {
                        Some(end) => out.push(end),
                        None => {
                            depth += 1;
                            self.line(&mut out, depth);
                        }
                    }
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.line(&mut out, depth);
                    out.push(byte);
                }
                b':' => {
                    out.push(byte);
                    out.extend_from_slice(self.after_colon.as_bytes());
                }
                b',' => {
                    out.push(byte);
                    out.extend_from_slice(self.after_comma.as_bytes());
                    self.line(&mut out, depth);
                }
                b'"' => {
                    in_string = true;
                    out.push(byte);
                }
                _ => out.push(byte),
            }
        }
        Some(out)
    }

    fn line(&self, out: &mut Vec<u8>, depth: usize) {
        if let Some(indent) = self.indent {
            out.push(b'\n');
            out.extend(std::iter::repeat_n(b' ', indent * depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(variants: &[Variant], body: &str) -> bool {
        variants.iter().any(|variant| variant.body == body.as_bytes())
    }

    #[test]
    fn json_is_written_in_every_common_style() {
        let body = r#"{"a" : [1,  {}, "x: \",y"],"b":{ "c":true } }"#;
        let variants = of(body.as_bytes());
        for wanted in [
            r#"{"a":[1,{},"x: \",y"],"b":{"c":true}}"#,
            r#"{"a": [1, {}, "x: \",y"], "b": {"c": true}}"#,
            "{\n  \"a\": [\n    1,\n    {},\n    \"x: \\\",y\"\n  ],\n  \"b\": {\n    \"c\": true\n  }\n}",
        ] {
            assert!(has(&variants, wanted), "{wanted}");
        }
        assert!(!has(&variants, body), "never the body itself");
    }

    #[test]
    fn marks_and_line_ends_come_and_go() {
        assert!(has(&of(b"a=1\r\n"), "a=1"));
        assert!(has(&of(b"a=1"), "a=1\n"));
        assert!(has(&of(b"a\r\nb\rc\r\n"), "a\nb\rc\n"));
        assert!(has(&of("\u{feff}{}".as_bytes()), "{}"));
        assert!(has(&of(b"{}"), "\u{feff}{}"));
    }

    #[test]
    fn what_is_wrapped_in_base64_is_unwrapped() {
        assert!(has(&of(b"eyJhIjoxfQ=="), "{\"a\":1}"));
        assert!(has(&of(b"eyJhIjoxfQ\n"), "{\"a\":1}"));
        assert!(!has(&of(b"{}"), ""));
    }

    #[test]
    fn long_bodies_have_none() {
        assert!(of(&vec![b' '; BODY_BYTES_MAX + 1]).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn no_input_makes_the_writer_panic(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
            let _ = of(&body);
            for style in &STYLES {
                let _ = style.write(&body);
            }
        }
    }
}
