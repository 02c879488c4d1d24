//! Raw HTTP/1.1 (RFC 9112): request line, headers, an empty line, the body to the end of the file.

use super::{RequestFile, header_name, method, split_url};

/// Reads it. Lines may end with LF or CR LF; the body is taken byte by byte.
pub(super) fn parse(content: &[u8]) -> Result<RequestFile, String> {
    let mut lines = Lines { rest: content, number: 0 };
    let first = lines.next().ok_or("it has no line end after the request line")?;
    let first = std::str::from_utf8(first).map_err(|_| "its request line is not text")?;
    let mut words = first.split(' ').filter(|word| !word.is_empty());
    let (Some(verb), Some(target), protocol, None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(no_request_line());
    };
    if protocol.is_some_and(|protocol| !protocol.starts_with("HTTP/")) {
        return Err(no_request_line());
    }
    let (url, query) = split_url(target);
    let mut request = RequestFile {
        method: method(verb)?,
        query,
        headers: Vec::new(),
        body: Vec::new(),
        url,
        doubts: Vec::new(),
    };
    loop {
        let line = lines.next().ok_or("it has no empty line between headers and body")?;
        if line.is_empty() {
            break;
        }
        request.headers.push(header(line, lines.number)?);
    }
    request.body = lines.rest.to_vec();
    if is_chunked(&request) {
        return Err(
            "its body is still in chunks: remove the chunks' lengths, and 'Transfer-Encoding'".to_owned()
        );
    }
    Ok(request)
}

fn no_request_line() -> String {
    "it does not begin with a request line such as 'POST /in/0123 HTTP/1.1'".to_owned()
}

fn header(line: &[u8], number: usize) -> Result<(String, Vec<u8>), String> {
    let at = format!("line {number}");
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(format!("{at} continues a header, which HTTP no longer allows"));
    }
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return Err(format!("{at} is not a header such as 'Name: value'"));
    };
    let name = std::str::from_utf8(&line[..colon]).unwrap_or_default();
    Ok((header_name(name, &at)?, line[colon + 1..].trim_ascii().to_vec()))
}

/// Whether the body looks as it does on the wire: a length in hexadecimal in front.
fn is_chunked(request: &RequestFile) -> bool {
    let says_so = request
        .headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value.to_ascii_lowercase().ends_with(b"chunked"));
    let length = request.body.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    says_so && (1..=8).contains(&length) && request.body[length..].starts_with(b"\r\n")
}

struct Lines<'a> {
    rest: &'a [u8],
    number: usize,
}

impl<'a> Lines<'a> {
    /// The next line without its end; `None` when no line end is left.
    fn next(&mut self) -> Option<&'a [u8]> {
        let at = self.rest.iter().position(|byte| *byte == b'\n')?;
        let (line, rest) = (&self.rest[..at], &self.rest[at + 1..]);
        self.rest = rest;
        self.number += 1;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_every_byte_after_the_empty_line() {
        let request = parse(b"PUT /x HTTP/1.1\nA: 1\na:  2 \r\nB:\n\n\r\n\xff\0\n").expect("a request");
        assert_eq!(request.body, b"\r\n\xff\0\n");
        let headers: Vec<(&str, &[u8])> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        assert_eq!(headers, [("a", &b"1"[..]), ("a", b"2"), ("b", b"")], "repeated headers stay repeated");
        assert_eq!((request.query.as_str(), request.url), ("", None));
    }

    #[test]
    fn a_request_line_may_lack_its_protocol() {
        let request = parse(b"GET /x?challenge=1\n\n").expect("a request");
        assert_eq!((request.method.as_str(), request.query.as_str()), ("GET", "challenge=1"));
    }

    #[test]
    fn chunks_are_not_taken_for_a_body() {
        let chunked = b"POST /x HTTP/1.1\nTransfer-Encoding: chunked\n\n2\r\n{}\r\n0\r\n\r\n";
        assert!(parse(chunked).expect_err("chunks").contains("chunks"));
        let plain = b"POST /x HTTP/1.1\nTransfer-Encoding: chunked\n\n{}";
        assert_eq!(parse(plain).expect("taken apart already").body, b"{}");
    }
}
