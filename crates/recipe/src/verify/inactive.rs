//! Which inactive secret a refused request was signed with: what its owner wants to know, and never a reason to accept it.

use portero_types::Timestamp;

use super::check;
use crate::scheme::Scheme;
use crate::{Reason, Rejection, Request, Secret};

/// Most secrets that are tried for it, newest first.
const TRIED_MAX: usize = 4;

/// The refusal that names the state of the secret with which the request was signed; `None`: none is known that fits.
pub(super) fn told(
    scheme_no: usize,
    scheme: &Scheme,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Option<Rejection> {
    let mut inactive: Vec<&Secret> = (secrets.iter())
        .filter(|secret| !secret.is_active(now) && !secret.keys(scheme_no).is_empty())
        .collect();
    inactive.sort_by_key(|secret| super::newest_first(secret));
    inactive.truncate(TRIED_MAX);
    let signed_with =
        inactive.into_iter().find(|secret| match check(scheme_no, scheme, request, &[*secret], now) {
            Ok(_) => true,
            // Times are judged only where the signature is good.
            Err(rejection) => {
                matches!(rejection.reason(), Reason::TimestampTooOld | Reason::TimestampInFuture)
            }
        })?;
    let (reason, detail) = if signed_with.revoked_at().is_some() {
        (Reason::SecretRevoked, "the request is signed with a secret that was revoked")
    } else if now < signed_with.not_before() {
        (Reason::SecretPlanned, "the request is signed with a secret whose time has not come")
    } else {
        (Reason::SecretRetired, "the request is signed with a secret whose end has passed")
    };
    Some(Rejection::new(reason, detail))
}
