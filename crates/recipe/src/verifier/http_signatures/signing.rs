//! Signing by RFC 9421, for the command line, tests and senders.

use portero_types::Timestamp;
use sfv::{BareItem, InnerList};

use super::digest::{self, CONTENT_DIGEST};
use super::fields::{identifier, params};
use super::{Options, SIGNATURE, SIGNATURE_INPUT, messages};
use crate::algorithm::mac;
use crate::certificate::{KeyPairAlgorithm, PrivateKey};
use crate::encoding::Encoding;
use crate::schema::KeyForm;
use crate::verifier::{Signing, no_public_url, optional_setting};
use crate::{InvalidSecret, Rejection, Request, SignError};

/// The label of our own signatures where the recipe names none.
const OWN_LABEL: &str = "sig1";

impl Options {
    /// The headers that sign a request.
    pub(in crate::verifier) fn sign(
        &self,
        signing: &Signing<'_>,
    ) -> Result<Vec<(String, String)>, SignError> {
        let digest = digest::write(signing.request.body);
        let mut headers: Vec<(&str, &[u8])> = signing.request.headers.to_vec();
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case(CONTENT_DIGEST));
        headers.push((CONTENT_DIGEST, digest.as_bytes()));
        let request = Request { headers: &headers, ..*signing.request };
        let missing = |rejection: Rejection| SignError::Missing(rejection.detail().to_owned());
        let covered = self.covered(&request, signing.now).ok_or(SignError::CannotSign)?;
        let messages = messages(&request, &covered).map_err(missing)?;
        let message = messages.first().ok_or_else(|| missing(no_public_url()))?;
        let signature = self.signature(signing.secret, message.as_bytes())?;
        let label = self.label.as_deref().unwrap_or(OWN_LABEL);
        Ok(vec![
            (CONTENT_DIGEST.to_owned(), digest.clone()),
            (SIGNATURE_INPUT.to_owned(), format!("{label}={}", params(&covered))),
            (SIGNATURE.to_owned(), format!("{label}=:{}:", Encoding::Base64.encode(&signature))),
        ])
    }

    /// What our own signature covers.
    fn covered(&self, request: &Request<'_>, now: Timestamp) -> Option<InnerList> {
        let mut covered = InnerList::new(self.required().filter_map(identifier).collect());
        let mut set = |name: &str, value: BareItem| {
            covered.params.insert(sfv::KeyRef::from_str(name).ok()?.to_owned(), value);
            Some(())
        };
        let text = |text: &str| Some(BareItem::String(sfv::StringRef::from_str(text).ok()?.to_owned()));
        set("created", BareItem::Integer(sfv::Integer::try_from(now.as_secs()).ok()?))?;
        if let Some(keyid) = optional_setting(request, "keyid") {
            set("keyid", text(keyid)?)?;
        }
        set("alg", text(self.algorithm.name())?)?;
        if let Some(tag) = &self.tag {
            set("tag", text(tag)?)?;
        }
        Some(covered)
    }

    fn signature(&self, secret: &str, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let Some(pair) = self.algorithm.key_pair() else {
            let secret = secret.trim();
            let whsec = secret.strip_prefix("whsec_").unwrap_or(secret);
            let (key, expected) = match self.key {
                KeyForm::Hex => (Encoding::Hex.decode(secret.as_bytes()), "hexadecimal"),
                KeyForm::Base64 => (Encoding::Base64.decode(secret.as_bytes()), "base64"),
                KeyForm::Whsec => (Encoding::Base64.decode(whsec.as_bytes()), "'whsec_' followed by base64"),
                KeyForm::Text | KeyForm::NamedSha1 | KeyForm::Pem | KeyForm::Spki => {
                    (Some(secret.as_bytes().to_vec()), "a text")
                }
            };
            let key = key.filter(|key| !key.is_empty()).ok_or(InvalidSecret::Undecodable { expected })?;
            return Ok(mac(crate::algorithm::Algorithm::HmacSha256, &key, message));
        };
        if pair == KeyPairAlgorithm::RsaPssSha512 {
            return Err(SignError::CannotSign);
        }
        let key = PrivateKey::from_pem(secret).map_err(|_| SignError::PrivateKeyNeeded)?;
        key.sign(pair, message).ok_or(SignError::PrivateKeyNeeded)
    }
}
