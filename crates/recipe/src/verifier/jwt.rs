//! JSON Web Tokens in compact form (RFC 7519, RFC 7515), read by hand: the clock is the caller's, and so is the algorithm.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Ambiguous, has, text_at};
use crate::json::Document;
use crate::{Reason, Rejection};

/// Deepest JSON in a token.
const DEPTH_MAX: usize = 8;

/// A token, taken apart and not verified.
pub(super) struct Token<'a> {
    header: Document<'static>,
    claims: Document<'static>,
    /// What is signed.
    pub(super) signed: &'a [u8],
    /// The signature.
    pub(super) signature: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Takes a token apart whose header says exactly `algorithm`. Anything else, `none` above all, is refused before a key
    /// is looked for.
    pub(super) fn read(text: &'a str, algorithm: &str) -> Result<Self, Rejection> {
        let malformed =
            || Rejection::new(Reason::SignatureMalformed, "the signature is not a JSON Web Token");
        let (signed, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let token = Self {
            header: json(header).ok_or_else(malformed)?,
            claims: json(claims).ok_or_else(malformed)?,
            signed: signed.as_bytes(),
            signature: URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?,
        };
        match text_at(&token.header, "alg") {
            Ok(Some(have)) if have == algorithm => {}
            Ok(_) | Err(Ambiguous) => {
                return Err(Rejection::new(
                    Reason::SignatureMalformed,
                    format!(
                        "the token is not signed with {algorithm}, the only algorithm that the provider uses"
                    ),
                ));
            }
        }
        // Extensions that must be understood (RFC 7515, 4.1.11): there are none that we know.
        if has(&token.header, "crit") || token.signature.is_empty() {
            return Err(malformed());
        }
        Ok(token)
    }

    /// A text or number of the header.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        text_at(&self.header, name).ok().flatten()
    }

    /// A text or number of the claims; to be asked for only when the signature is good.
    pub(super) fn claim(&self, name: &str) -> Option<String> {
        text_at(&self.claims, name).ok().flatten()
    }

    /// A claim that is a time, seconds since 1970; a fraction does not count.
    pub(super) fn time(&self, name: &str) -> Result<portero_types::Timestamp, Rejection> {
        let text = self.claim(name).ok_or_else(|| {
            Rejection::new(Reason::TimestampMissing, format!("the token's claim '{name}' is missing"))
        })?;
        let whole = text.split('.').next().unwrap_or_default();
        super::window(crate::window::Unit::Seconds, 0, 0).read(whole.as_bytes())
    }
}

/// Writes a token; `sign` makes the signature of what precedes it.
pub(super) fn write(header: &str, claims: &str, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// The JSON object inside a part.
fn json(part: &str) -> Option<Document<'static>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    let is_object = bytes.first() == Some(&b'{');
    Document::parse(bytes.into(), DEPTH_MAX).ok().filter(|_| is_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(header: &str, claims: &str) -> Result<(), Reason> {
        let token = write(header, claims, |_| vec![1]);
        Token::read(&token, "HS256").map(|_| ()).map_err(|rejection| rejection.reason())
    }

    #[test]
    fn only_the_expected_algorithm_is_read() {
        assert_eq!(read(r#"{"alg":"HS256","typ":"JWT"}"#, "{}"), Ok(()));
        for alg in ["none", "None", "RS256", "ES256", "HS384", "hs256", ""] {
            assert!(read(&format!(r#"{{"alg":"{alg}"}}"#), "{}").is_err(), "{alg}");
        }
        assert!(read("{}", "{}").is_err(), "no algorithm at all");
        assert!(read(r#"{"alg":"none","alg":"HS256"}"#, "{}").is_err(), "two algorithms");
        assert!(read(r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, "{}").is_err(), "an unknown extension");
        assert!(read(r#"{"alg":"HS256"}"#, "[]").is_err(), "claims that are no object");
    }

    #[test]
    fn texts_of_another_shape_are_no_tokens() {
        let good = write(r#"{"alg":"HS256"}"#, "{}", |_| vec![1, 2, 3]);
        assert!(Token::read(&good, "HS256").is_ok());
        let padded = format!("{good}=");
        for bad in ["", ".", "..", "a.b.c", &good[1..], &padded, &format!("{good}.x"), &format!(" {good}")] {
            assert!(Token::read(bad, "HS256").is_err(), "{bad}");
        }
        assert!(Token::read(&write(r#"{"alg":"HS256"}"#, "{}", |_| vec![]), "HS256").is_err(), "unsigned");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[A-Za-z0-9_.=-]{0,80}") {
            let _ = Token::read(&text, "HS256");
        }
    }
}
