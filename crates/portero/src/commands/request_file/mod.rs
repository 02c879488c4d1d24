//! A received request in a file: raw HTTP, or JSON.

mod json;
mod raw;

use std::path::Path;

use super::exit::Failure;
use super::input;

/// Largest file, bytes: a body in base64 and room for its headers, beyond what gateways take.
const FILE_BYTES_MAX: usize = 64 << 20;
/// Most headers; gateways take fewer.
const HEADERS_MAX: usize = 1_000;

/// A request as it was received.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RequestFile {
    /// The method, upper case.
    pub(crate) method: String,
    /// The query after `?`, still percent-encoded; empty when there is none.
    pub(crate) query: String,
    /// Headers in order: lower-case names, values as sent.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    /// The body's bytes.
    pub(crate) body: Vec<u8>,
    /// The whole URL, where the file says one (scheme to path).
    pub(crate) url: Option<String>,
    /// What looks odd about the file, in words for people.
    pub(crate) doubts: Vec<String>,
}

impl RequestFile {
    /// Reads a file, or standard input when the path is `-`.
    ///
    /// # Errors
    /// When it cannot be read or is in neither form; says what is wrong and never shows a value.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let content = input::bytes(path, FILE_BYTES_MAX, "the request")?;
        Self::parse(&content)
            .map_err(|problem| Failure::usage(format!("{} is not a request: {problem}", place(path))))
    }

    /// Reads a request. JSON starts with `{`, which no request line does.
    fn parse(content: &[u8]) -> Result<Self, String> {
        let mut start = content;
        while let Some(rest) = start.strip_prefix(b"\xEF\xBB\xBF") {
            start = rest;
        }
        let mut request = match start.trim_ascii_start().first() {
            None => return Err("it is empty".to_owned()),
            Some(b'{') => json::parse(start)?,
            Some(_) => raw::parse(start)?,
        };
        if request.headers.len() > HEADERS_MAX {
            return Err(format!("it has more than {HEADERS_MAX} headers"));
        }
        request.doubt_the_length();
        Ok(request)
    }

    /// A `Content-Length` that is not the body's means that the file is not what was received.
    fn doubt_the_length(&mut self) {
        let said = self.headers.iter().find(|(name, _)| name == "content-length");
        let said = said.and_then(|(_, value)| std::str::from_utf8(value).ok()?.trim().parse::<usize>().ok());
        let have = self.body.len();
        let Some(said) = said.filter(|said| *said != have) else { return };
        let why = if have > said && self.body[said..].iter().all(u8::is_ascii_whitespace) {
            ": an editor may have added a line end"
        } else {
            ": it is not the body that was received"
        };
        self.doubts.push(format!("the body has {have} bytes and Content-Length says {said}{why}"));
    }
}

impl std::fmt::Debug for RequestFile {
    /// Shows the shape only: query, headers and body may hold signatures and payloads.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestFile")
            .field("method", &self.method)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// How an input is named to its user.
fn place(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// Splits a target or URL into the URL up to its path (if it has a scheme) and its query.
fn split_url(target: &str) -> (Option<String>, String) {
    let target = target.split_once('#').map_or(target, |(before, _)| before);
    let (base, query) = target.split_once('?').unwrap_or((target, ""));
    let is_whole = base.starts_with("http://") || base.starts_with("https://");
    (is_whole.then(|| base.to_owned()), query.to_owned())
}

/// A method: letters, made upper case.
fn method(text: &str) -> Result<String, String> {
    let is_method = (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_method.then(|| text.to_ascii_uppercase()).ok_or_else(|| "it has no method such as POST".to_owned())
}

/// A header's name in lower case; `at` says where it stands.
fn header_name(name: &str, at: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= 256 && name.bytes().all(is_token);
    is_name.then(|| name.to_ascii_lowercase()).ok_or_else(|| format!("{at} has no header name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let raw = b"POST https://h.example/in/1?a=%20b HTTP/1.1\r\nX-Sig: s=1\r\n\r\n{\"a\": 1}\n";
        let json = br#"{"method":"post","url":"https://h.example/in/1?a=%20b","headers":{"X-Sig":"s=1"},
            "body":"{\"a\": 1}\n"}"#;
        let (raw, json) = (RequestFile::parse(raw).expect("raw"), RequestFile::parse(json).expect("json"));
        assert_eq!(raw, json);
        assert_eq!(raw.method, "POST");
        assert_eq!((raw.url.as_deref(), raw.query.as_str()), (Some("https://h.example/in/1"), "a=%20b"));
        assert_eq!(raw.headers, [("x-sig".to_owned(), b"s=1".to_vec())]);
        assert_eq!(raw.body, b"{\"a\": 1}\n");
    }

    #[test]
    fn a_wrong_length_is_told_with_its_likely_cause() {
        let doubts = |text: &str| RequestFile::parse(text.as_bytes()).expect("a request").doubts;
        let longer = doubts("POST / HTTP/1.1\nContent-Length: 2\n\n{}\n");
        assert!(longer.len() == 1 && longer[0].contains("an editor"), "{longer:?}");
        let other = doubts("POST / HTTP/1.1\nContent-Length: 9\n\n{}\n");
        assert!(other.len() == 1 && other[0].contains("not the body"), "{other:?}");
        assert_eq!(doubts("POST / HTTP/1.1\nContent-Length: 2\n\n{}"), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_request_is_told_by_file_and_reason_and_never_by_content() {
        for (bad, word) in [
            ("", "empty"),
            (" \n", "empty"),
            ("hush", "request line"),
            ("hush /x HTTP/1.1 y\n\n", "request line"),
            ("POST /x HTTP/1.1\nhush\n\n", "line 2"),
            ("POST /x HTTP/1.1\nA: hush", "empty line"),
            ("{\"hush", "JSON"),
        ] {
            let file = tempfile::NamedTempFile::new().expect("file");
            std::fs::write(file.path(), bad).expect("written");
            let error = RequestFile::read(file.path()).expect_err(bad).to_string();
            assert!(error.contains(word) && !error.contains("hush"), "{bad:?}: {error}");
            assert!(error.contains(&file.path().display().to_string()), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_value() {
        let request = RequestFile::parse(b"POST /?hush HTTP/1.1\nA: hush\n\nhush").expect("a request");
        assert!(!format!("{request:?}").contains("hush"));
    }
}
