//! Secrets: cleaning what people paste, decoding it as the recipe says, and generating new ones.

use std::fmt;

use ed25519_dalek::VerifyingKey;
use portero_types::{Redacted, SecretNo, Timestamp};
use zeroize::Zeroizing;

use crate::Recipe;
use crate::algorithm::{Algorithm, Key, public_key};
use crate::encoding::Encoding;
use crate::schema::KeyForm;
use crate::scheme::Proof;

/// Why a text is not a secret for a recipe. Never holds the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSecret {
    /// Nothing but white space.
    #[error("the secret is empty")]
    Empty,
    /// More than 4096 bytes.
    #[error("the secret is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    /// Fewer than 16 bytes of key material.
    #[error("the secret holds fewer than {SECRET_BYTES_MIN} bytes of key material")]
    TooShort,
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
    #[error("this is the private key; the receiver needs the public key, which starts with 'whpk_'")]
    PrivateKey,
}

/// Longest secret text, bytes.
pub const SECRET_BYTES_MAX: usize = 4096;
/// Least key material that [`clean_secret`] accepts, bytes after decoding.
pub const SECRET_BYTES_MIN: usize = 16;

/// A secret's key material, decoded for one recipe. Wiped when dropped; Debug shows only its number.
#[derive(Clone)]
pub struct Secret {
    no: SecretNo,
    not_before: Timestamp,
    not_after: Option<Timestamp>,
    /// Keys for each of the recipe's schemes.
    keys: Vec<Vec<Key>>,
}

impl Secret {
    /// Decodes a secret for a recipe. White space around the text is ignored, as [`clean_secret`] does; its strength is
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
        Ok(Self { no, not_before, not_after, keys: keys(recipe, value)? })
    }

    /// The secret's row number.
    #[must_use]
    pub const fn no(&self) -> SecretNo {
        self.no
    }

    /// Whether it may verify at `now`.
    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.not_before <= now && self.not_after.is_none_or(|end| now < end)
    }

    /// Its keys for the recipe's scheme of that number.
    pub(crate) fn keys(&self, scheme: usize) -> &[Key] {
        self.keys.get(scheme).map_or(&[], Vec::as_slice)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("no", &self.no).finish_non_exhaustive()
    }
}

/// Cleans a secret that a person pasted: trims white space around it and checks that it decodes and is strong enough.
///
/// # Errors
/// [`InvalidSecret`] when it is empty, too long, not in the recipe's form, holds fewer than [`SECRET_BYTES_MIN`] bytes
/// of key material, or is one character over and over.
pub fn clean_secret(recipe: &Recipe, text: &str) -> Result<String, InvalidSecret> {
    let text = text.trim();
    for key in keys(recipe, text)?.iter().flatten() {
        let Key::Shared(material) = key else { continue };
        let material = material.expose_secret();
        let material = material.strip_prefix(recipe.secret_prefix.as_bytes()).unwrap_or(material);
        if material.len() < SECRET_BYTES_MIN {
            return Err(InvalidSecret::TooShort);
        }
        if material.iter().all(|byte| Some(byte) == material.first()) {
            return Err(InvalidSecret::Repetitive);
        }
    }
    Ok(text.to_owned())
}

/// Makes a new secret in the provider's form out of 256 random bits.
///
/// For a recipe that knows only public keys the result is the public key that belongs to the seed `random`.
#[must_use]
pub fn generate_secret(recipe: &Recipe, random: [u8; 32]) -> String {
    let proof = recipe.schemes.iter().find_map(|scheme| scheme.proof.as_ref());
    let form = proof.and_then(|proof| proof.keys.first().copied()).unwrap_or(KeyForm::Text);
    let public_only = proof.is_some_and(only_public);
    let random = Zeroizing::new(random);
    let material = Zeroizing::new(if public_only { public_key(&random) } else { *random });
    match form {
        KeyForm::Text => format!("{}{}", recipe.secret_prefix, Encoding::Hex.encode(&*material)),
        KeyForm::Hex => Encoding::Hex.encode(&*material).to_ascii_uppercase(),
        KeyForm::Base64 => Encoding::Base64.encode(&*material),
        KeyForm::Whsec if public_only => format!("whpk_{}", Encoding::Base64.encode(&*material)),
        KeyForm::Whsec => format!("whsec_{}", Encoding::Base64.encode(&*material)),
    }
}

fn only_public(proof: &Proof) -> bool {
    proof.reader.algorithms.iter().all(|(_, algorithm)| *algorithm == Algorithm::Ed25519)
}

/// The keys that a text stands for, by scheme. Some schemes may have none, but not all.
fn keys(recipe: &Recipe, text: &str) -> Result<Vec<Vec<Key>>, InvalidSecret> {
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
        for form in scheme.proof.iter().flat_map(|proof| &proof.keys) {
            let proof = scheme.proof.as_ref().expect("a scheme with key forms has a proof");
            match key(proof, *form, text) {
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

fn key(proof: &Proof, form: KeyForm, text: &str) -> Result<Key, InvalidSecret> {
    let undecodable = |expected| InvalidSecret::Undecodable { expected };
    let (bytes, public) = match form {
        KeyForm::Text => (Some(text.as_bytes().to_vec()), false),
        KeyForm::Hex => (Encoding::Hex.decode(text.as_bytes()), only_public(proof)),
        KeyForm::Base64 => (Encoding::Base64.decode(text.as_bytes()), only_public(proof)),
        KeyForm::Whsec => {
            let text = text.strip_prefix("v1,").or_else(|| text.strip_prefix("v1a,")).unwrap_or(text);
            if text.starts_with("whsk_") {
                return Err(InvalidSecret::PrivateKey);
            }
            let (text, public) = match text.strip_prefix("whpk_") {
                Some(rest) => (rest, true),
                None => (text.strip_prefix("whsec_").unwrap_or(text), only_public(proof)),
            };
            (Encoding::Base64.decode(text.as_bytes()), public)
        }
    };
    let bytes = Zeroizing::new(bytes.filter(|bytes| !bytes.is_empty()).ok_or(undecodable(match form {
        KeyForm::Text => "a text",
        KeyForm::Hex => "hexadecimal",
        KeyForm::Base64 => "base64",
        KeyForm::Whsec => "'whsec_' or 'whpk_' followed by base64",
    }))?);
    if !public {
        return Ok(Key::Shared(Redacted::new(bytes.to_vec())));
    }
    let bytes: &[u8; 32] =
        bytes.as_slice().try_into().map_err(|_| undecodable("a public key of 32 bytes"))?;
    VerifyingKey::from_bytes(bytes)
        .ok()
        .filter(|key| !key.is_weak())
        .map(Key::Ed25519)
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
        KeyForm::Text => return None,
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
        match keys(recipe, text).expect("decodes").swap_remove(0).remove(0) {
            Key::Shared(key) => key.expose_secret().clone(),
            Key::Ed25519(key) => key.to_bytes().to_vec(),
        }
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
    fn white_space_around_a_pasted_secret_is_not_part_of_it() {
        let recipe = preset("github");
        assert_eq!(
            clean_secret(&recipe, " It's a Secret to Everybody\r\n").as_deref(),
            Ok("It's a Secret to Everybody")
        );
        assert_eq!(material(&recipe, "s3cret\n"), b"s3cret");
    }

    #[test]
    fn weak_and_wrong_secrets_are_told_apart() {
        let (github, adyen, standard) = (preset("github"), preset("adyen"), preset("standard-webhooks"));
        assert_eq!(clean_secret(&github, " \n"), Err(InvalidSecret::Empty));
        assert_eq!(clean_secret(&github, "short"), Err(InvalidSecret::TooShort));
        assert_eq!(clean_secret(&github, &"a".repeat(20)), Err(InvalidSecret::Repetitive));
        assert_eq!(clean_secret(&github, &"ab".repeat(4000)), Err(InvalidSecret::TooLong));
        assert_eq!(clean_secret(&preset("stripe"), "whsec_0123456789"), Err(InvalidSecret::TooShort));
        assert!(matches!(clean_secret(&adyen, &"xy".repeat(20)), Err(InvalidSecret::Undecodable { .. })));
        assert_eq!(clean_secret(&standard, "whsk_AAAA"), Err(InvalidSecret::PrivateKey));
        assert!(matches!(clean_secret(&standard, "whpk_AAAA"), Err(InvalidSecret::Undecodable { .. })));
    }

    #[test]
    fn a_generated_secret_is_clean_in_every_preset() {
        for preset in Recipe::presets() {
            let secret =
                generate_secret(&preset.recipe, std::array::from_fn(|n| u8::try_from(n).expect("small")));
            assert_eq!(
                clean_secret(&preset.recipe, &secret).as_deref(),
                Ok(secret.as_str()),
                "{}",
                preset.name
            );
        }
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
}
