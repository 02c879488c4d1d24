//! Secrets: decoding them as the recipe says, and generating new ones. What people paste is cleaned in `clean.rs`.

use std::fmt;

use ed25519_dalek::VerifyingKey;
use portero_types::{Redacted, SecretNo, Timestamp};
use sha1::{Digest as _, Sha1};
use zeroize::Zeroizing;

use crate::Recipe;
use crate::algorithm::{Algorithm, Key, public_key};
use crate::certificate::PublicKey;
use crate::encoding::Encoding;
use crate::schema::KeyForm;
use crate::scheme::Scheme;

/// Why a text is not a secret for a recipe. Never holds the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSecret {
    /// Nothing but white space.
    #[error("the secret is empty")]
    Empty,
    /// More than [`SECRET_BYTES_MAX`] bytes.
    #[error("the secret is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    /// Less key material than the recipe wants.
    #[error("the secret holds fewer than {bytes_min} bytes of key material")]
    TooShort {
        /// The least, bytes.
        bytes_min: usize,
    },
    /// A line break inside: two things were pasted, or one with a piece missing.
    #[error("the secret holds a line break; copy it again, and nothing but it")]
    LineBreak,
    /// White space inside where the provider's secrets hold none.
    #[error("the secret holds white space; copy it again, and nothing but it")]
    Space,
    /// Characters that no provider puts into a secret.
    #[error("the secret holds control characters; copy it again")]
    Control,
    /// The same byte over and over.
    #[error("the secret repeats one character")]
    Repetitive,
    /// The recipe's key form cannot be decoded from it.
    #[error("the secret is not {expected}")]
    Undecodable {
        /// What the recipe expects, as the end of the sentence "the secret is not …".
        expected: &'static str,
    },
    /// A private key where the public key belongs.
    #[error("this is the private key; the receiver needs the public key")]
    PrivateKey,
}

/// Longest secret text, bytes.
pub const SECRET_BYTES_MAX: usize = 8192;
/// Least key material that [`crate::clean_secret`] accepts where the recipe does not say another, bytes after decoding.
pub const SECRET_BYTES_MIN: usize = 16;

/// A secret's key material, decoded for one recipe. Wiped when dropped; Debug shows only its number.
#[derive(Clone)]
pub struct Secret {
    no: SecretNo,
    not_before: Timestamp,
    not_after: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    /// The name by which the provider knows the key, where it has one.
    name: Option<String>,
    /// Keys for each of the recipe's schemes; `None` when its value cannot be read.
    keys: Option<Vec<Vec<Key>>>,
}

impl Secret {
    /// Decodes a secret for a recipe. White space around the text is ignored, as [`crate::clean_secret`] does; its strength is
    /// not judged here, so that secrets which a provider has chosen still work.
    ///
    /// It verifies from `not_before` (inclusive) to `not_after` (exclusive, `None`: for ever).
    ///
    /// # Errors
    /// [`InvalidSecret`] when the text is empty, too long or not in the form that the recipe says.
    pub fn new(
        recipe: &Recipe,
        no: SecretNo,
        value: &str,
        not_before: Timestamp,
        not_after: Option<Timestamp>,
    ) -> Result<Self, InvalidSecret> {
        let name = value.trim().split_once('|').filter(|_| is_named(recipe)).map(|(name, _)| name.to_owned());
        Ok(Self { no, not_before, not_after, revoked_at: None, name, keys: Some(keys(recipe, value)?) })
    }

    /// A secret that is there and whose value cannot be read. It verifies nothing, and while it is active it is not known whether
    /// what no other one verifies is forged.
    #[must_use]
    pub const fn unreadable(no: SecretNo, not_before: Timestamp, not_after: Option<Timestamp>) -> Self {
        Self { no, not_before, not_after, revoked_at: None, name: None, keys: None }
    }

    /// Whether its value could be read.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        self.keys.is_some()
    }

    /// The same secret with the time of its revocation; `None`: it was not revoked.
    #[must_use]
    pub const fn revoked(mut self, at: Option<Timestamp>) -> Self {
        self.revoked_at = at;
        self
    }

    /// The secret's row number.
    #[must_use]
    pub const fn no(&self) -> SecretNo {
        self.no
    }

    /// Whether it may verify at `now`. A revoked one never may, whatever a clock says.
    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.not_before <= now && self.not_after.is_none_or(|end| now < end)
    }

    /// When it was revoked; `None`: it was not.
    #[must_use]
    pub const fn revoked_at(&self) -> Option<Timestamp> {
        self.revoked_at
    }

    /// The name by which the provider knows the key.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// When it begins to verify.
    #[must_use]
    pub const fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// When it ceases to; `None`: never.
    #[must_use]
    pub const fn not_after(&self) -> Option<Timestamp> {
        self.not_after
    }

    /// Its keys for the recipe's scheme of that number.
    pub(crate) fn keys(&self, scheme: usize) -> &[Key] {
        self.keys.as_ref().and_then(|keys| keys.get(scheme)).map_or(&[], Vec::as_slice)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("no", &self.no).finish_non_exhaustive()
    }
}

/// Whether the provider knows keys by names.
pub(crate) fn is_named(recipe: &Recipe) -> bool {
    recipe.schemes.iter().any(|scheme| scheme.key_forms().contains(&KeyForm::NamedSha1))
}

/// Whether the secret is that of HTTP basic authentication.
pub(crate) fn is_basic(recipe: &Recipe) -> bool {
    let uses = |scheme: &Scheme| scheme.proof().is_some_and(|proof| proof.uses(Algorithm::Basic));
    recipe.schemes.iter().any(uses)
}

/// Makes a new secret in the provider's form out of 256 random bits.
///
/// For a recipe that knows only public keys the result is the Ed25519 public key that belongs to the seed `random`; `None`
/// where the provider alone can make the key: RSA and P-256, or one that is known by a name.
#[must_use]
pub fn generate_secret(recipe: &Recipe, random: [u8; 32]) -> Option<String> {
    let scheme = recipe.schemes.iter().find(|scheme| !scheme.key_forms().is_empty());
    let form = scheme.and_then(|scheme| scheme.key_forms().first().copied()).unwrap_or(KeyForm::Text);
    let public_only = scheme.is_some_and(Scheme::only_public);
    let random = Zeroizing::new(random);
    let material = Zeroizing::new(if public_only { public_key(&random) } else { *random });
    if is_basic(recipe) {
        return Some(format!("portero:{}", Encoding::Hex.encode(&*material)));
    }
    Some(match form {
        KeyForm::Text => format!("{}{}", recipe.secret_prefix, Encoding::Hex.encode(&*material)),
        KeyForm::Hex => Encoding::Hex.encode(&*material).to_ascii_uppercase(),
        KeyForm::Base64 => Encoding::Base64.encode(&*material),
        KeyForm::Whsec if public_only => format!("whpk_{}", Encoding::Base64.encode(&*material)),
        KeyForm::Whsec => format!("whsec_{}", Encoding::Base64.encode(&*material)),
        KeyForm::NamedSha1 | KeyForm::Pem | KeyForm::Spki => return None,
    })
}

/// The keys that a text stands for, by scheme. Some schemes may have none, but not all of those that need one.
pub(crate) fn keys(recipe: &Recipe, text: &str) -> Result<Vec<Vec<Key>>, InvalidSecret> {
    let text = text.trim();
    if text.is_empty() {
        return Err(InvalidSecret::Empty);
    }
    if text.len() > SECRET_BYTES_MAX {
        return Err(InvalidSecret::TooLong);
    }
    let mut mistake = None;
    let mut keys = Vec::new();
    for scheme in &recipe.schemes {
        let mut of_scheme = Vec::new();
        for form in scheme.key_forms() {
            match key(scheme, *form, text) {
                Ok(Key::Public(key)) if !scheme.takes(&key) => {
                    let expected = "a public key of the kind with which this provider signs";
                    mistake = mistake.or(Some(InvalidSecret::Undecodable { expected }));
                }
                Ok(key) => of_scheme.push(key),
                Err(error) => mistake = mistake.or(Some(error)),
            }
        }
        keys.push(of_scheme);
    }
    match mistake {
        Some(mistake) if keys.iter().all(Vec::is_empty) => Err(mistake),
        _ => Ok(keys),
    }
}

fn key(scheme: &Scheme, form: KeyForm, text: &str) -> Result<Key, InvalidSecret> {
    let undecodable = |expected| InvalidSecret::Undecodable { expected };
    let public = |key: Result<PublicKey, crate::certificate::InvalidKey>, expected| match key {
        Ok(key) => Ok(Key::Public(key)),
        Err(crate::certificate::InvalidKey::Private) => Err(InvalidSecret::PrivateKey),
        Err(_) => Err(undecodable(expected)),
    };
    let (bytes, is_public) = match form {
        KeyForm::Text => (Some(text.as_bytes().to_vec()), false),
        KeyForm::Hex => (Encoding::Hex.decode(text.as_bytes()), scheme.only_public()),
        KeyForm::Base64 => (Encoding::Base64.decode(text.as_bytes()), scheme.only_public()),
        KeyForm::Whsec => {
            let text = text.strip_prefix("v1,").or_else(|| text.strip_prefix("v1a,")).unwrap_or(text);
            if text.starts_with("whsk_") {
                return Err(InvalidSecret::PrivateKey);
            }
            let (text, public) = match text.strip_prefix("whpk_") {
                Some(rest) => (rest, true),
                None => (text.strip_prefix("whsec_").unwrap_or(text), scheme.only_public()),
            };
            (Encoding::Base64.decode(text.as_bytes()), public)
        }
        KeyForm::NamedSha1 => {
            let key = text.split_once('|').filter(|(name, key)| !name.is_empty() && !key.is_empty());
            (key.map(|(_, key)| Sha1::digest(key).to_vec()), false)
        }
        KeyForm::Pem => {
            return public(PublicKey::from_pem(text), "a PEM public key or certificate");
        }
        KeyForm::Spki => return public(PublicKey::from_spki_base64(text), "base64 of a public key"),
    };
    let bytes = Zeroizing::new(bytes.filter(|bytes| !bytes.is_empty()).ok_or(undecodable(match form {
        KeyForm::Hex => "hexadecimal",
        KeyForm::Base64 => "base64",
        KeyForm::Whsec => "'whsec_' or 'whpk_' followed by base64",
        KeyForm::NamedSha1 => "'public key|private key'",
        KeyForm::Text | KeyForm::Pem | KeyForm::Spki => "a text",
    }))?);
    if !is_public {
        return Ok(Key::Shared(Redacted::new(bytes.to_vec())));
    }
    let bytes: &[u8; 32] =
        bytes.as_slice().try_into().map_err(|_| undecodable("a public key of 32 bytes"))?;
    VerifyingKey::from_bytes(bytes)
        .ok()
        .filter(|key| !key.is_weak())
        .map(|key| Key::Public(PublicKey::Ed25519(Box::new(key))))
        .ok_or(undecodable("an Ed25519 public key"))
}

/// The seed of a private key, for signing: `whsk_` and base64, or 32 bytes in the recipe's own key form. A private key of
/// 64 bytes starts with its seed.
pub(crate) fn seed(form: KeyForm, text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let text = text.trim();
    let bytes = Zeroizing::new(match form {
        KeyForm::Whsec => Encoding::Base64.decode(text.strip_prefix("whsk_")?.as_bytes())?,
        KeyForm::Hex => Encoding::Hex.decode(text.as_bytes())?,
        KeyForm::Base64 => Encoding::Base64.decode(text.as_bytes())?,
        KeyForm::Text | KeyForm::NamedSha1 | KeyForm::Pem | KeyForm::Spki => return None,
    });
    if !matches!(bytes.len(), 32 | 64) {
        return None;
    }
    bytes[..32].try_into().ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> std::sync::Arc<Recipe> {
        Recipe::preset(name).expect("a preset")
    }

    fn material(recipe: &Recipe, text: &str) -> Vec<u8> {
        keys(recipe, text).expect("decodes")[0][0].shared().expect("a shared secret").to_vec()
    }

    #[test]
    fn the_same_prefix_is_text_at_one_provider_and_base64_at_the_next() {
        let text = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        assert_eq!(material(&preset("stripe"), text), text.as_bytes());
        let bytes = b"0123456789abcdef0123456789abcdef";
        let standard = preset("standard-webhooks");
        for form in [text, &format!("v1,{text}"), text.trim_end_matches('='), &text["whsec_".len()..]] {
            assert_eq!(material(&standard, form), bytes, "{form}");
        }
    }

    #[test]
    fn white_space_around_a_secret_is_not_part_of_it() {
        assert_eq!(material(&preset("github"), "s3cret\n"), b"s3cret");
    }

    #[test]
    fn debug_shows_no_key() {
        let text = "super-secret-value-1";
        let secret =
            Secret::new(&preset("github"), SecretNo(7), text, Timestamp::EPOCH, None).expect("valid");
        assert_eq!(format!("{secret:?}"), "Secret { no: SecretNo(7), .. }");
    }

    #[test]
    fn a_secret_is_active_from_its_first_to_before_its_last_moment() {
        let at = Timestamp::from_secs;
        let secret = Secret::new(&preset("github"), SecretNo(7), "abc", at(10), Some(at(20))).expect("valid");
        assert_eq!([9, 10, 19, 20].map(|s| secret.is_active(at(s))), [false, true, true, false]);
    }

    #[test]
    fn a_revoked_secret_is_active_at_no_time() {
        let at = Timestamp::from_secs;
        let secret = Secret::new(&preset("github"), SecretNo(7), "abc", at(10), None).expect("valid");
        let revoked = secret.revoked(Some(at(50)));
        assert_eq!([9, 10, 49, 50, 51].map(|s| revoked.is_active(at(s))), [false; 5]);
    }
}
