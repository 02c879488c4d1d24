//! Which of a recipe's schemes to sign by.

use portero_types::limits::EVENTS_PER_REQUEST_MAX;

use super::{SignError, SignOptions, list_of, parse};
use crate::Recipe;
use crate::form::{self, Field};
use crate::scheme::{Place, Scheme};
use crate::template::Source;

/// The scheme asked for; or the first whose signatures fit the body: one with signatures in items if the body has such,
/// one that signs the sorted form if it is a form, else any that the headers and the query allow.
pub(super) fn choose<'r>(
    recipe: &'r Recipe,
    body: &[u8],
    options: &SignOptions<'_>,
) -> Result<(usize, &'r Scheme), SignError> {
    if let Some(n) = options.scheme {
        return recipe.schemes.get(n).map(|scheme| (n, scheme)).ok_or(SignError::NoSuchScheme);
    }
    let document = parse(body).ok();
    let has_items = |scheme: &Scheme| {
        matches!(scheme.proof().map(|proof| &proof.place), Some(Place::Item(_)))
            && document.as_ref().is_some_and(|document| {
                let items = list_of(scheme).map(|path| document.items(path, EVENTS_PER_REQUEST_MAX));
                items.is_some_and(|items| items.is_ok_and(|items| !items.is_empty()))
            })
    };
    let is_form = options.headers.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("content-type") && value.starts_with("application/x-www-form-urlencoded")
    });
    let signs_form = |scheme: &Scheme| {
        let message = scheme.proof().and_then(|proof| proof.message.as_ref());
        is_form && message.is_some_and(|message| message.uses(&Source::FormSorted))
    };
    let schemes = || recipe.schemes.iter().enumerate().filter(|(_, scheme)| allowed(scheme, options));
    schemes()
        .find(|(_, scheme)| has_items(scheme))
        .or_else(|| schemes().find(|(_, scheme)| signs_form(scheme)))
        .or_else(|| schemes().next())
        .or_else(|| recipe.schemes.iter().enumerate().next())
        .ok_or(SignError::NoSuchScheme)
}

/// Whether what a scheme is known by is there, or comes with the signature.
fn allowed(scheme: &Scheme, options: &SignOptions<'_>) -> bool {
    let proof = scheme.proof();
    let header = scheme.when_header.as_ref().is_none_or(|name| {
        let comes = proof.is_some_and(
            |proof| matches!(&proof.place, Place::Headers(names) if names.first() == Some(name)),
        );
        comes || options.headers.iter().any(|(have, _)| have.eq_ignore_ascii_case(name))
    });
    let query = scheme.when_query.as_ref().is_none_or(|name| {
        let digest = proof.and_then(|proof| proof.body_digest.as_ref());
        let comes = digest.is_some_and(|(of, _)| of.uses(&Source::Query(name.clone())));
        comes || form::field(options.query.as_bytes(), name) != Field::Missing
    });
    header && query
}
