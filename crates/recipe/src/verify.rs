//! Verification: is this request from the holder of one of the source's secrets?

use portero_types::{SecretNo, Timestamp};

use crate::{Reason, Recipe, Rejection, Request, Secret};

/// Proof that a request was verified. Only [`verify`] makes one.
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) secret: Option<SecretNo>,
}

impl Verified {
    /// The secret that matched; `None` where the recipe needs none. When the items of a batch were signed under
    /// different secrets this is the first item's, and [`crate::Extracted::secret`] tells each item's.
    #[must_use]
    pub const fn secret(&self) -> Option<SecretNo> {
        self.secret
    }
}

/// Verifies a request over its bytes as received, against every secret active at `now`.
///
/// # Errors
/// A [`Rejection`] with its reason. [`Reason::TimestampTooOld`] and [`Reason::TimestampInFuture`] are only given when the
/// signature itself is good.
pub fn verify(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Verified, Rejection> {
    let _ = (recipe, request, secrets, now);
    Err(Rejection::new(Reason::NoActiveSecret, "the source has no active secret"))
}
