//! URLs, as strictly as this crate needs them: nothing here guesses what a lenient reader might make of a text.

use crate::form::decode;

/// An absolute URL that an operator configured, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PublicUrl<'a> {
    /// `https` or `http`.
    pub(super) scheme: &'a str,
    /// Host and perhaps port, as written.
    pub(super) authority: &'a str,
    /// The path, at least `/`; still percent-encoded.
    pub(super) path: &'a str,
}

impl<'a> PublicUrl<'a> {
    /// Takes a URL apart; its query and fragment do not count.
    pub(super) fn parse(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.trim().split_once("://")?;
        let rest = rest.split(['?', '#']).next()?;
        let (authority, path) = match rest.find('/') {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, "/"),
        };
        let is_known = scheme == "https" || scheme == "http";
        (is_known && !authority.is_empty() && !authority.contains('@')).then_some(Self {
            scheme,
            authority,
            path,
        })
    }

    /// Host and port in lower case, without the scheme's own port.
    pub(super) fn normal_authority(&self) -> String {
        let own = if self.scheme == "https" { ":443" } else { ":80" };
        self.authority.strip_suffix(own).unwrap_or(self.authority).to_ascii_lowercase()
    }

    /// Path and query.
    pub(super) fn target(&self, query: &str) -> String {
        if query.is_empty() { self.path.to_owned() } else { format!("{}?{query}", self.path) }
    }
}

/// Host and the rest (from `/` on) of an `https` URL that holds nothing but a plain lower-case host, a plain path and
/// perhaps a query: no user, no port, no escape in the path, no way up.
pub(super) fn pinned(url: &str) -> Option<(&str, &str)> {
    const URL_BYTES_MAX: usize = 2_048;
    let rest = url.strip_prefix("https://").filter(|_| url.len() <= URL_BYTES_MAX)?;
    let (host, rest) = rest.split_at(rest.find('/')?);
    let (path, query) = rest.split_once('?').map_or((rest, ""), |(path, query)| (path, query));
    let is_host = host.split('.').all(|label| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    });
    let is_path = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte))
        && !path.contains("..")
        && !path.contains("//");
    let is_query = query.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~=&%:+/".contains(&byte));
    (is_host && is_path && is_query).then_some((host, rest))
}

/// Names and values of a query, decoded (WHATWG URL standard, application/x-www-form-urlencoded).
pub(super) fn query_pairs(query: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name.as_bytes()).into_owned(), decode(value.as_bytes()).into_owned()))
        .collect()
}

/// Percent-encodes everything that is not unreserved (RFC 3986, 2.3).
pub(super) fn encode(bytes: &[u8]) -> String {
    encode_except(bytes, b"-._~")
}

/// Percent-encodes everything but letters, digits and `plain`.
pub(super) fn encode_except(bytes: &[u8], plain: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || plain.contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_public_url_falls_into_its_parts() {
        let url = PublicUrl::parse("https://Hooks.Example.test:443/v1/t?x=1#y").expect("a URL");
        assert_eq!((url.scheme, url.path), ("https", "/v1/t"));
        assert_eq!(url.normal_authority(), "hooks.example.test");
        assert_eq!(url.target("a=1"), "/v1/t?a=1");
        assert_eq!(PublicUrl::parse("https://h:8443").map(|url| url.path), Some("/"));
        for bad in ["", "hooks.example.test/x", "ftp://h/x", "https://", "https://user@h/x"] {
            assert_eq!(PublicUrl::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_plain_https_urls_can_be_pinned() {
        assert_eq!(pinned("https://a-1.example/x/y.pem"), Some(("a-1.example", "/x/y.pem")));
        assert_eq!(pinned("https://a.example/?A=b%3Ac"), Some(("a.example", "/?A=b%3Ac")));
        for bad in [
            "http://a.example/x",
            "HTTPS://a.example/x",
            "https://a.example",
            "https://a.example:443/x",
            "https://u@a.example/x",
            "https://A.example/x",
            "https://a..example/x",
            "https://.a.example/x",
            "https://a.example\\@b.example/x",
            "https://a.example/../x",
            "https://a.example/%2e%2e/x",
            "https://a.example//x",
            "https://a.example/x#y",
            "https://a.example/x\r\n",
            "https://a.example/é",
            " https://a.example/x",
        ] {
            assert_eq!(pinned(bad), None, "{bad}");
        }
    }

    #[test]
    fn queries_are_decoded_and_encoded() {
        let pairs = query_pairs("a=1&b+c=%2Fx&flag&&odd=%zz");
        let text: Vec<_> = pairs.iter().map(|(n, v)| (encode(n), encode(v))).collect();
        let have: Vec<_> = text.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(have, [("a", "1"), ("b%20c", "%2Fx"), ("flag", ""), ("odd", "%25zz")]);
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC{0,60}") {
            let _ = (PublicUrl::parse(&text), pinned(&text), query_pairs(&text));
            let _ = pinned(&format!("https://{text}"));
        }

        #[test]
        fn what_was_encoded_comes_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = encode(&bytes);
            prop_assert_eq!(decode(text.as_bytes()).into_owned(), bytes);
        }
    }
}
