//! Handshakes: a provider's check of the URL is answered in its own words, and one may bring the source's secret.

use async_trait::async_trait;
use http::StatusCode;
use portero_directory::{Source, Verification};
use portero_recipe::{HandshakeAnswer, Reason, Rejection};
use portero_types::{Redacted, Timestamp};

use crate::answer::Answer;
use crate::edge::Edge;
use crate::metrics;
use crate::process::{Work, rejected};
use crate::refusal::Refusal;

/// Makes what a handshake brought a source's secret.
#[async_trait]
pub trait SecretWriter: Send + Sync + 'static {
    /// Seals and commits the secret when the source waits for one at `now`, and ends the wait; `false` when it waits for
    /// none or no longer. Of many at once one succeeds.
    ///
    /// # Errors
    /// When nothing was written, or whether it was is not known.
    async fn write(
        &self,
        source: &Source,
        secret: &Redacted<String>,
        now: Timestamp,
    ) -> Result<bool, SecretNotWritten>;
}

/// The store did not take a secret, for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the secret cannot be stored now")]
pub struct SecretNotWritten;

/// A gateway without a keyring to seal with: no handshake brings a secret.
#[derive(Clone, Copy, Debug)]
pub struct NoSecrets;

#[async_trait]
impl SecretWriter for NoSecrets {
    async fn write(&self, _: &Source, _: &Redacted<String>, _: Timestamp) -> Result<bool, SecretNotWritten> {
        Ok(false)
    }
}

/// The answer to a handshake.
///
/// An answer that depends on a secret goes out only after the secret is committed: a provider that has its answer signs with it.
pub(crate) async fn answer(
    edge: &Edge,
    work: &Work,
    verification: &Verification,
    found: HandshakeAnswer,
) -> Result<Answer, Refusal> {
    let HandshakeAnswer { reply, store_secret } = found;
    if let Some(secret) = store_secret {
        store(edge, work, verification, &secret).await?;
    }
    tracing::info!(decision = "handshake", "a provider's check of the URL is answered");
    Ok(Answer::plain("handshake", StatusCode::OK).replaced(reply))
}

/// Stores a secret, or refuses when the source waits for none: else anybody could give it one of theirs.
async fn store(
    edge: &Edge,
    work: &Work,
    verification: &Verification,
    secret: &Redacted<String>,
) -> Result<(), Refusal> {
    let (source, now) = (&work.source, work.received_at);
    // The store decides; the memory, half a second old at most, keeps strangers from asking it.
    let waits = source.secret_expected_until.is_some_and(|until| until > now);
    let written = if waits { edge.0.parts.secrets.write(source, secret, now).await } else { Ok(false) };
    match written {
        Ok(true) => {
            metrics::handshake_secret("stored");
            tracing::info!("a handshake brought the source's secret");
            Ok(())
        }
        Ok(false) => {
            metrics::handshake_secret("not_expected");
            let detail = "the source waits for no secret: let it wait for one and register the URL again";
            Err(rejected(verification, &Rejection::new(Reason::HandshakeNotExpected, detail)))
        }
        Err(SecretNotWritten) => {
            metrics::handshake_secret("failed");
            Err(Refusal::SecretNotStored)
        }
    }
}
