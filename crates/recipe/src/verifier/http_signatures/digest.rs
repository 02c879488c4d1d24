//! `Content-Digest` (RFC 9530): how the body takes part in an HTTP signature.

use sfv::{BareItem, Dictionary, ListEntry, Parser};
use sha2::{Digest as _, Sha256, Sha512};
use subtle::ConstantTimeEq as _;

use super::fields::joined;
use crate::{Reason, Rejection, Request};

/// The field's name.
pub(super) const CONTENT_DIGEST: &str = "content-digest";

/// Checks the body against the digests that are known, SHA-256 and SHA-512: at least one must be there, and each must be
/// the body's.
pub(super) fn check(request: &Request<'_>) -> Result<(), Rejection> {
    let malformed = || {
        Rejection::new(
            Reason::SignatureMalformed,
            format!("the header '{CONTENT_DIGEST}' is not a list of digests as of RFC 9530"),
        )
    };
    let value = joined(request, CONTENT_DIGEST)?;
    let digests: Dictionary = Parser::new(&value).parse().map_err(|_| malformed())?;
    let mut known = 0;
    for (name, entry) in &digests {
        let digest = match name.as_str() {
            "sha-256" => Sha256::digest(request.body).to_vec(),
            "sha-512" => Sha512::digest(request.body).to_vec(),
            _ => continue,
        };
        let ListEntry::Item(item) = entry else { return Err(malformed()) };
        let BareItem::ByteSequence(claimed) = &item.bare_item else { return Err(malformed()) };
        if !bool::from(digest.ct_eq(claimed)) {
            return Err(Rejection::new(
                Reason::BodyDigestMismatch,
                format!("the {name} digest in the header '{CONTENT_DIGEST}' is not the body's"),
            ));
        }
        known += 1;
    }
    if known == 0 {
        return Err(Rejection::new(
            Reason::BodyDigestMismatch,
            format!("the header '{CONTENT_DIGEST}' has neither a sha-256 nor a sha-512 digest"),
        ));
    }
    Ok(())
}

/// The header for a body.
pub(super) fn write(body: &[u8]) -> String {
    format!("sha-256=:{}:", crate::encoding::Encoding::Base64.encode(&Sha256::digest(body)))
}
