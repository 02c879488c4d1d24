//! Secrets that providers send in a handshake: sealed, committed, and seen by this gateway before the handshake is answered.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use portero_directory::{Directory, Source};
use portero_ingress::{SecretNotWritten, SecretWriter};
use portero_keyring::secret_aad;
use portero_store::{Actor, BEGINS_EARLIER, Change, ConfigStore, NewSecret, Sealed};
use portero_types::{Redacted, RequestId, SecretId, Timestamp};

use crate::entropy;

/// How long the provider waits for this gateway to see the secret. The others see it within half a second.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(1);

/// Seals with the tenant's key and writes to the configuration's store.
pub(super) struct HandshakeSecrets {
    pub(super) store: Arc<dyn ConfigStore>,
    pub(super) directory: Directory,
}

#[async_trait]
impl SecretWriter for HandshakeSecrets {
    async fn write(
        &self,
        source: &Source,
        secret: &Redacted<String>,
        now: Timestamp,
    ) -> Result<bool, SecretNotWritten> {
        let [a, b, c, d, nonce @ ..]: [u8; 16] = entropy::random();
        let id = SecretId::new(format!("handshake-{}-{a:02x}{b:02x}{c:02x}{d:02x}", now.as_secs()))
            .map_err(|_| SecretNotWritten)?;
        let aad = secret_aad(&source.tenant, &source.id, &id);
        let keys = &source.verification.as_ref().map_err(|_| SecretNotWritten)?.keys;
        let sealed = Sealed(keys.seal(&aad, secret.expose_secret().as_bytes(), nonce));
        let new = NewSecret {
            tenant: source.tenant.clone(),
            source: source.id.clone(),
            id,
            sealed,
            not_before: now.minus(BEGINS_EARLIER),
            // Each registration at the provider may have a secret of its own; which ones are over only people know.
            retire_others_at: None,
            created_at: now,
        };
        let request_id = RequestId::new(now, u128::from_le_bytes(entropy::random()));
        let change = Change::new(Actor::system("handshake"), &request_id.to_string(), now);
        let written =
            self.store.write_handshake_secret(source.no, new, now, &change).await.map_err(|error| {
                tracing::warn!(
                    tenant.id = %source.tenant, source.id = %source.id, %error,
                    "the secret that a handshake brought cannot be stored"
                );
                SecretNotWritten
            })?;
        if written {
            // The provider signs with it as soon as it has its answer.
            let refresh = tokio::time::timeout(REFRESH_TIMEOUT, self.directory.refresh_now()).await;
            if !matches!(refresh, Ok(Ok(_))) {
                tracing::debug!("the new secret is seen a moment later");
            }
        }
        Ok(written)
    }
}
