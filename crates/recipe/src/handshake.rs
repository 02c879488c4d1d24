//! Handshakes: requests with which a provider checks an endpoint, answered at once and never stored.

use portero_types::Timestamp;

use crate::{Recipe, Rejection, Reply, Request, Secret};

/// Answers a handshake, if the request is one of the recipe's.
///
/// `Ok(None)` means that it is none: go on with [`crate::verify()`].
///
/// # Errors
/// A [`Rejection`] when the request looks like a handshake but fails its verification or its guard.
pub fn handshake(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Option<Reply>, Rejection> {
    let _ = (recipe, request, secrets, now);
    Ok(None)
}
