//! How bytes are written as text: hexadecimal and base64.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// A text form of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Encoding {
    /// Hexadecimal, either case.
    Hex,
    /// Base64 (RFC 4648 section 4), or its URL-safe alphabet; padding may be missing.
    Base64,
}

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(false);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

impl Encoding {
    /// The bytes, or `None` when the text is not of this form.
    pub(crate) fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Hex => hex::decode(text).ok(),
            Self::Base64 if text.iter().any(|byte| matches!(byte, b'-' | b'_')) => URL_SAFE.decode(text).ok(),
            Self::Base64 => STANDARD.decode(text).ok(),
        }
    }

    /// The text: lower-case hexadecimal, or padded standard base64.
    pub(crate) fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => hex::encode(bytes),
            Self::Base64 => STANDARD.encode(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_in_either_case() {
        assert_eq!(Encoding::Hex.decode(b"AD0aff"), Some(vec![0xad, 0x0a, 0xff]));
        assert_eq!(Encoding::Hex.decode(b"abc"), None);
        assert_eq!(Encoding::Hex.decode(b" ab"), None);
    }

    #[test]
    fn base64_is_read_in_both_alphabets_with_and_without_padding() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(Encoding::Base64.decode(text.as_bytes()), Some(vec![0xfb, 0xff]), "{text}");
        }
        assert_eq!(Encoding::Base64.decode(b"+_8="), None, "not both alphabets at once");
        assert_eq!(Encoding::Base64.decode(b"+/9="), None, "one spelling per value");
    }
}
