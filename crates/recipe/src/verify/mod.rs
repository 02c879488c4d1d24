//! Verification: is this request from the holder of one of the source's secrets?

mod attempt;
mod inactive;
mod matching;

use std::cmp::Reverse;

use portero_types::limits::ACTIVE_SECRETS_MAX;
use portero_types::{SecretNo, Timestamp};

use crate::json::Item;
use crate::scheme::{Check, Place, Scheme};
use crate::verifier::Input;
use crate::{Fetch, Reason, Recipe, Rejection, Request, Secret};
use attempt::Attempt;

pub(crate) use attempt::too_many_events;

/// Proof that a request was verified. Only [`verify`] makes one.
#[derive(Clone, Debug)]
pub struct Verified {
    secret: Option<SecretNo>,
    scheme: usize,
    items: Vec<(Item, SecretNo)>,
}

impl Verified {
    /// The secret that matched; `None` where the recipe needs none. When the items of a batch were signed under
    /// different secrets this is the first item's, and [`crate::Extracted::secret`] tells each item's.
    #[must_use]
    pub const fn secret(&self) -> Option<SecretNo> {
        self.secret
    }

    /// The number of the scheme by which it was verified.
    pub(crate) const fn scheme(&self) -> usize {
        self.scheme
    }

    /// The items of a batch whose items are signed one by one; else empty.
    pub(crate) fn items(&self) -> &[(Item, SecretNo)] {
        &self.items
    }
}

/// Verifies a request over its bytes as received, against every secret active at `now`.
///
/// At most [`ACTIVE_SECRETS_MAX`] active secrets are tried, the newest (by its beginning, then by its number) first: while a
/// provider signs with the old and the new one, it is the new one that is seen to be used.
///
/// # Errors
/// A [`Rejection`] with its reason. [`Reason::TimestampTooOld`] and [`Reason::TimestampInFuture`] are only given when the
/// signature itself is good, so a source may choose to hold such a request rather than to refuse it.
/// [`Reason::SecretRevoked`], [`Reason::SecretRetired`] and [`Reason::SecretPlanned`] say that the signature is that of a
/// secret which is not active, [`Reason::SecretUnreadable`] that it may be that of an active one which cannot be read.
pub fn verify(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Verified, Rejection> {
    let Some((scheme_no, scheme)) = recipe.scheme_for(request) else {
        return Err(Rejection::new(
            Reason::SignatureMissing,
            "the request carries none of the headers by which the provider's requests are known",
        ));
    };
    settled(recipe, request)?;
    let active = if scheme.key_forms().is_empty() { Ok(Vec::new()) } else { active(scheme_no, secrets, now) };
    match active.and_then(|active| check(scheme_no, scheme, request, &active, now)) {
        Err(rejection) if is_for_lack_of_a_secret(&rejection) => {
            let told = inactive::told(scheme_no, scheme, request, secrets, now);
            let maybe = || if scheme.key_forms().is_empty() { None } else { unreadable(secrets, now) };
            Err(told.or_else(maybe).unwrap_or(rejection))
        }
        checked => checked,
    }
}

/// Whether another secret could have verified the request.
pub(crate) fn is_for_lack_of_a_secret(rejection: &Rejection) -> bool {
    matches!(
        rejection.reason(),
        Reason::NoActiveSecret | Reason::SecretUnreadable | Reason::SignatureMismatch
    )
}

/// What to say where no secret fits and one that counts now cannot be read.
pub(crate) fn unreadable(secrets: &[Secret], now: Timestamp) -> Option<Rejection> {
    let counts = |secret: &Secret| secret.is_active(now) && !secret.is_readable();
    secrets.iter().any(counts).then(secret_unreadable)
}

pub(crate) fn secret_unreadable() -> Rejection {
    Rejection::new(
        Reason::SecretUnreadable,
        "an active secret of the source cannot be read, so whether the request is genuine cannot be told; send it again",
    )
}

/// Judges a request by these secrets, whether or not they are active.
fn check(
    scheme_no: usize,
    scheme: &Scheme,
    request: &Request<'_>,
    secrets: &[&Secret],
    now: Timestamp,
) -> Result<Verified, Rejection> {
    match &scheme.check {
        Check::Nothing => Ok(Verified { secret: None, scheme: scheme_no, items: Vec::new() }),
        Check::Code(verifier, _) => {
            let secret = verifier.verify(&Input { request, secrets, scheme: scheme_no, now })?;
            Ok(Verified { secret, scheme: scheme_no, items: Vec::new() })
        }
        Check::Proof(proof) => {
            let attempt = Attempt { proof, active: secrets, scheme_no, request, now };
            match &proof.place {
                Place::Headers(names) => attempt.headers(names),
                Place::Numbered(prefix) => attempt.numbered(prefix),
                Place::Query(name) => attempt.query(name),
                Place::Form(name) => attempt.form(name),
                Place::Json(path) => attempt.json(path),
                Place::Item(path) => attempt.items(scheme, path),
            }
        }
    }
}

/// What must be fetched before a request can be verified, such as the certificate that it names; `None`: nothing.
///
/// Only looks at the request; nothing in it is verified yet, so the recipe's code pins where may be fetched from.
///
/// # Errors
/// A [`Rejection`] when the request can be refused without fetching anything.
pub fn fetch_needed(
    recipe: &Recipe,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
) -> Result<Option<Fetch>, Rejection> {
    let Some((scheme_no, scheme)) = recipe.scheme_for(request) else { return Ok(None) };
    let Check::Code(verifier, forms) = &scheme.check else { return Ok(None) };
    if request.method != "POST" {
        return Ok(None);
    }
    settled(recipe, request)?;
    let active = if forms.is_empty() { Vec::new() } else { active(scheme_no, secrets, now)? };
    verifier.fetch(&Input { request, secrets: &active, scheme: scheme_no, now })
}

/// What must be fetched because of a verified request before it is accepted, such as the URL that confirms a topic's
/// subscription; `None`: nothing.
#[must_use]
pub fn follow_up(recipe: &Recipe, request: &Request<'_>, verified: &Verified) -> Option<Fetch> {
    match &recipe.schemes.get(verified.scheme)?.check {
        Check::Code(verifier, _) => verifier.follow_up(request),
        Check::Nothing | Check::Proof(_) => None,
    }
}

/// Refuses everything while the source lacks a setting that its recipe needs.
fn settled(recipe: &Recipe, request: &Request<'_>) -> Result<(), Rejection> {
    match recipe.missing_settings(request.settings)[..] {
        [] => Ok(()),
        [missing, ..] => Err(Rejection::new(
            Reason::SettingMissing,
            format!("the source's setting '{missing}' is not configured"),
        )),
    }
}

/// The secrets that may verify now, newest first.
fn active(scheme_no: usize, secrets: &[Secret], now: Timestamp) -> Result<Vec<&Secret>, Rejection> {
    let mut active: Vec<&Secret> = (secrets.iter())
        .filter(|secret| secret.is_active(now) && !secret.keys(scheme_no).is_empty())
        .collect();
    if active.is_empty() {
        return Err(unreadable(secrets, now).unwrap_or_else(|| {
            Rejection::new(Reason::NoActiveSecret, "the source has no active secret for this request")
        }));
    }
    active.sort_by_key(|secret| newest_first(secret));
    active.truncate(ACTIVE_SECRETS_MAX);
    Ok(active)
}

pub(crate) fn newest_first(secret: &Secret) -> Reverse<(Timestamp, SecretNo)> {
    Reverse((secret.not_before(), secret.no()))
}
