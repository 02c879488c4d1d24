//! What the gateway fetches because of a request: before verification the key that a signature names, after it the address
//! that confirms a subscription. When it cannot be had, the answer is 503 and the provider comes again.

use bytes::Bytes;
use portero_directory::Verification;
use portero_recipe::{Fetch, Request};
use portero_types::{SourceNo, Timestamp};
use tracing::Instrument as _;

use crate::edge::Edge;
use crate::metrics;
use crate::process::rejected;
use crate::refusal::Refusal;

/// What verification needs beside the request; `None` when it needs nothing.
pub(crate) async fn needed(
    edge: &Edge,
    source: SourceNo,
    verification: &Verification,
    request: &Request<'_>,
    now: Timestamp,
) -> Result<Option<Bytes>, Refusal> {
    let wanted = portero_recipe::fetch_needed(&verification.recipe, request, &verification.secrets, now)
        .map_err(|rejection| rejected(verification, &rejection))?;
    let Some(wanted) = wanted else { return Ok(None) };
    match edge.0.parts.fetch.fetch(&wanted, source).instrument(tracing::info_span!("fetch")).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => {
            // Anybody can name a key that is not there, so this is no warning; the counter tells a real outage.
            tracing::info!(
                reason = error.code(),
                host = host(&wanted),
                "what verification needs cannot be fetched"
            );
            Err(Refusal::FetchFailed(error))
        }
    }
}

/// Confirms what a verified request asks for and the source expects, before the request's event is committed.
pub(crate) async fn confirm(edge: &Edge, source: SourceNo, wanted: &Fetch) -> Result<(), Refusal> {
    match edge.0.parts.fetch.fetch(wanted, source).instrument(tracing::info_span!("confirm")).await {
        Ok(_) => {
            metrics::confirmation("confirmed");
            tracing::info!(host = host(wanted), "a provider's subscription is confirmed");
            Ok(())
        }
        Err(error) => {
            metrics::confirmation(error.code());
            tracing::warn!(
                reason = error.code(),
                host = host(wanted),
                "a provider's subscription cannot be confirmed; it is tried again when the provider comes again"
            );
            Err(Refusal::FetchFailed(error))
        }
    }
}

/// The host of a URL: path and query may hold tokens.
fn host(wanted: &Fetch) -> &str {
    let rest = wanted.url.split_once("://").map_or("", |(_, rest)| rest);
    &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())]
}
