//! HTTP message signatures (RFC 9421) over the body's digest (RFC 9530).
//!
//! The recipe fixes the algorithm and what must be covered; `content-digest` always must, so the body is. What the URL
//! gives (`@authority`, `@path` …) comes from the configured public URL, never from the `Host` header.

mod algorithm;
mod digest;
mod fields;
mod signing;

use portero_types::{SecretNo, Timestamp};
use serde::Deserialize;
use sfv::{BareItem, Dictionary, InnerList, ListEntry, Parser};

use self::algorithm::Algorithm;
use self::digest::CONTENT_DIGEST;
use self::fields::{COMPONENTS_MAX, base, identifier, joined, needs_url};
use super::url::PublicUrl;
use super::{Input, check_window, no_public_url, optional_setting};
use crate::algorithm::SignatureBytes;
use crate::certificate::PublicKey;
use crate::compile::{Checked, invalid};
use crate::schema::KeyForm;
use crate::window::Unit;
use crate::{Reason, Rejection, Request};

const SIGNATURE: &str = "signature";
const SIGNATURE_INPUT: &str = "signature-input";
/// Most signatures that are looked at where the recipe names no label.
const SIGNATURES_MAX: usize = 4;

/// What a recipe may say about HTTP signatures.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The one algorithm.
    algorithm: Algorithm,
    /// How the source's secret becomes the key.
    key: KeyForm,
    /// What must be covered beside `content-digest`: names, or quoted names with parameters.
    #[serde(default)]
    components: Vec<String>,
    /// The label of the signature that counts; without it any that is good does.
    label: Option<String>,
    /// The tag that the signature must carry.
    tag: Option<String>,
    /// How far `created` may lie back, seconds.
    #[serde(default = "five_minutes")]
    past_s: u32,
    /// How far it may lie ahead.
    #[serde(default = "one_minute")]
    future_s: u32,
}

const fn five_minutes() -> u32 {
    300
}

const fn one_minute() -> u32 {
    60
}

impl Options {
    pub(super) fn check(&self, at: &str) -> Checked<()> {
        check_window(at, "past_s", self.past_s)?;
        check_window(at, "future_s", self.future_s)?;
        if self.components.len() >= COMPONENTS_MAX {
            return invalid(format!("{at}.components"), format!("fewer than {COMPONENTS_MAX}"));
        }
        for (n, component) in self.components.iter().enumerate() {
            if identifier(component).is_none() {
                return invalid(
                    format!("{at}.components[{n}]"),
                    "a lower-case header, a derived component of RFC 9421, or either quoted with parameters",
                );
            }
        }
        let is_plain = |text: &String| sfv::KeyRef::from_str(text).is_ok() && text.len() <= 64;
        if !self.label.iter().all(is_plain) {
            return invalid(format!("{at}.label"), "a lower-case label");
        }
        let is_text = |text: &String| sfv::StringRef::from_str(text).is_ok() && text.len() <= 128;
        if !self.tag.iter().all(is_text) {
            return invalid(format!("{at}.tag"), "printable ASCII");
        }
        let fits = match self.algorithm {
            Algorithm::HmacSha256 => {
                matches!(self.key, KeyForm::Text | KeyForm::Hex | KeyForm::Base64 | KeyForm::Whsec)
            }
            Algorithm::Ed25519 => {
                matches!(self.key, KeyForm::Pem | KeyForm::Spki | KeyForm::Hex | KeyForm::Base64)
            }
            Algorithm::EcdsaP256Sha256 | Algorithm::RsaV15Sha256 | Algorithm::RsaPssSha512 => {
                matches!(self.key, KeyForm::Pem | KeyForm::Spki)
            }
        };
        if !fits {
            return invalid(
                format!("{at}.key"),
                format!("that form does not give a key for {}", self.algorithm.name()),
            );
        }
        Ok(())
    }

    pub(super) fn takes(&self, key: &PublicKey) -> bool {
        self.algorithm.key_pair().is_some_and(|pair| key.fits(pair))
    }

    pub(super) const fn key_form(&self) -> KeyForm {
        self.key
    }

    pub(super) fn signs_url(&self) -> bool {
        self.components.iter().filter_map(|text| identifier(text)).any(|item| needs_url(&item))
    }

    pub(super) fn verify(&self, input: &Input<'_>) -> Result<SecretNo, Rejection> {
        let inputs = dictionary(input.request, SIGNATURE_INPUT)?;
        let signatures = dictionary(input.request, SIGNATURE)?;
        let labels = (signatures.keys().map(|label| label.as_str()))
            .filter(|label| self.label.as_ref().is_none_or(|only| only == label));
        let mut problem = None;
        for (n, label) in labels.enumerate() {
            if n == SIGNATURES_MAX {
                return Err(Rejection::new(
                    Reason::TooManySignatures,
                    format!("more than {SIGNATURES_MAX} signatures, and the recipe names no label"),
                ));
            }
            let (Some(ListEntry::InnerList(covered)), Some(signature)) =
                (inputs.get(label), bytes(signatures.get(label)))
            else {
                problem.get_or_insert_with(|| malformed("a signature lacks its input, or is not bytes"));
                continue;
            };
            match self.one(input, covered, signature) {
                Ok(secret) => return Ok(secret),
                Err(rejection) => problem = problem.or(Some(rejection)),
            }
        }
        Err(problem.unwrap_or_else(|| {
            let detail = match &self.label {
                Some(label) => {
                    format!("the header '{SIGNATURE}' holds no signature with the label '{label}'")
                }
                None => format!("the header '{SIGNATURE}' holds no signature"),
            };
            Rejection::new(Reason::SignatureMissing, detail)
        }))
    }

    /// Checks one signature, its time, and the body.
    fn one(&self, input: &Input<'_>, covered: &InnerList, signature: &[u8]) -> Result<SecretNo, Rejection> {
        for required in self.required() {
            if identifier(required).is_none_or(|item| !covered.items.contains(&item)) {
                return Err(Rejection::new(
                    Reason::SignedPartMissing,
                    format!("the signature does not cover '{required}'"),
                ));
            }
        }
        self.check_params(input.request, covered)?;
        let created = time(covered, "created")?.ok_or_else(|| {
            Rejection::new(Reason::TimestampMissing, "the signature does not say when it was created")
        })?;
        let messages = messages(input.request, covered)?;
        let claimed = SignatureBytes::new(signature.to_vec());
        let secret = input.matching(|key| {
            let proves = |text: &String| self.algorithm.proves(key, text.as_bytes(), &claimed, signature);
            messages.iter().any(proves)
        })?;
        super::judge(created, Unit::Seconds, self.past_s, self.future_s, input.now)?;
        if time(covered, "expires")?.is_some_and(|end| end < input.now) {
            return Err(Rejection::new(Reason::TimestampTooOld, "the signature has expired"));
        }
        digest::check(input.request)?;
        Ok(secret)
    }

    /// What must be covered.
    fn required(&self) -> impl Iterator<Item = &str> {
        let digest = Some(CONTENT_DIGEST).filter(|name| self.components.iter().all(|have| have != name));
        self.components.iter().map(String::as_str).chain(digest)
    }

    fn check_params(&self, request: &Request<'_>, covered: &InnerList) -> Result<(), Rejection> {
        let text = |name: &str| match covered.params.get(name) {
            None => Ok(None),
            Some(BareItem::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(malformed(&format!("the signature's parameter '{name}' is not a text"))),
        };
        if text("alg")?.is_some_and(|alg| alg != self.algorithm.name()) {
            return Err(malformed(&format!(
                "the signature names another algorithm than {}, which the recipe says",
                self.algorithm.name()
            )));
        }
        let keyid = optional_setting(request, "keyid");
        if keyid.is_some() && text("keyid")? != keyid {
            return Err(Rejection::new(
                Reason::NotForThisSource,
                "the signature names another key than the setting 'keyid' says",
            ));
        }
        if self.tag.is_some() && text("tag")? != self.tag.as_deref() {
            return Err(Rejection::new(
                Reason::NotForThisSource,
                "the signature carries another tag than the recipe says",
            ));
        }
        Ok(())
    }
}

/// What may have been signed: one text for each public URL, or one where none takes part.
fn messages(request: &Request<'_>, covered: &InnerList) -> Result<Vec<String>, Rejection> {
    if !covered.items.iter().any(needs_url) {
        return base(request, None, covered).map(|text| vec![text]);
    }
    let urls = request.public_urls.iter().filter_map(|url| PublicUrl::parse(url));
    let messages = urls.map(|url| base(request, Some(url), covered)).collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() { Err(no_public_url()) } else { Ok(messages) }
}

/// A header that is a dictionary (RFC 9651, 3.2).
fn dictionary(request: &Request<'_>, name: &str) -> Result<Dictionary, Rejection> {
    let missing = || Rejection::new(Reason::SignatureMissing, format!("the header '{name}' is missing"));
    if request.header_values(name).next().is_none() {
        return Err(missing());
    }
    let value = joined(request, name)?;
    let parsed = Parser::new(&value).parse();
    parsed.map_err(|_| malformed(&format!("the header '{name}' is not a dictionary as of RFC 9651")))
}

fn bytes(entry: Option<&ListEntry>) -> Option<&[u8]> {
    match entry {
        Some(ListEntry::Item(item)) => item.bare_item.as_byte_sequence(),
        Some(ListEntry::InnerList(_)) | None => None,
    }
}

/// A parameter that is a time.
fn time(covered: &InnerList, name: &str) -> Result<Option<Timestamp>, Rejection> {
    match covered.params.get(name) {
        None => Ok(None),
        Some(BareItem::Integer(seconds)) => Ok(Some(Timestamp::from_secs(i64::from(*seconds)))),
        Some(_) => Err(Rejection::new(
            Reason::TimestampMalformed,
            format!("the signature's parameter '{name}' is not whole seconds since 1970"),
        )),
    }
}

fn malformed(detail: &str) -> Rejection {
    Rejection::new(Reason::SignatureMalformed, detail)
}

#[cfg(test)]
mod tests;
