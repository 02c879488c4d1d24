//! The life of secrets: rotation, retirement, revocation.

use std::time::Duration;

use portero_auth::Action;
use portero_proto::v1;
use portero_proto::v1::retire_secret_request::End;
use portero_store::Revision;
use tonic::{Request, Response, Status};

use super::secret_view::{overlap, to_proto};
use super::secrets::Wanted;
use super::{Admin, Answer, split};
use crate::error::{from_store, invalid};
use crate::{name, time};

/// Farthest end of a secret.
const END_MAX: Duration = Duration::from_hours(90 * 24);
/// Named when it is not known which gateways have applied a rotation.
const UNKNOWN_REPLICAS: &str = "any gateway: their reports cannot be read";
/// How long a call waits for the other gateways.
const PATIENCE: Duration = Duration::from_secs(10);

impl Admin {
    pub(super) async fn do_rotate_secret(
        &self,
        request: Request<v1::RotateSecretRequest>,
    ) -> Answer<v1::RotateSecretResponse> {
        let (metadata, message) = split(request);
        let (tenant, source) = name::source(&message.parent, "parent")?;
        let caller = self.check(&metadata, Action::RotateSecret(&tenant)).await?;
        let recipe = self.recipe(&tenant, &source, &message.parent).await?;
        let overlap = match &message.overlap {
            Some(given) => time::duration(given, "overlap", END_MAX)?,
            None => overlap(&recipe),
        };
        let wanted = Wanted {
            tenant: &tenant,
            source: &source,
            recipe: &recipe,
            id: &message.secret_id,
            value: message.value,
            not_before: message.not_before.as_ref(),
            overlap: Some(overlap),
        };
        let change = self.change_because(&caller, &metadata, &message.reason)?;
        let (secret, value) = self.add(wanted, &change).await?;
        let (applied, secrets) =
            (self.applied(message.wait).await, self.secrets_of(&tenant, &source, Some(&recipe)).await);
        // The value is told only now: whatever else cannot be found out any more must not take it along.
        let (revision, unconfirmed_replicas) = match applied {
            Ok(applied) => applied,
            Err(_) if !value.is_empty() => (Revision::default(), vec![UNKNOWN_REPLICAS.to_owned()]),
            Err(status) => return Err(status),
        };
        let (mut shown, retiring) = match secrets {
            Ok(secrets) => (secrets.brief(&secret), secrets.retiring()),
            Err(_) if !value.is_empty() => (to_proto(&tenant, &source, &secret, self.now()), Vec::new()),
            Err(status) => return Err(status),
        };
        shown.value = value;
        Ok(Response::new(v1::RotateSecretResponse {
            secret: Some(shown),
            retiring,
            unconfirmed_replicas,
            revision: revision.0,
        }))
    }

    pub(super) async fn do_retire_secret(
        &self,
        request: Request<v1::RetireSecretRequest>,
    ) -> Answer<v1::Secret> {
        let (metadata, message) = split(request);
        let (tenant, source, id) = name::secret(&message.name, "name")?;
        let caller = self.check(&metadata, Action::RetireSecret(&tenant)).await?;
        let change = self.change_because(&caller, &metadata, &message.reason)?;
        let now = change.at;
        let at = match &message.end {
            None => now,
            Some(End::After(after)) => now.plus(time::duration(after, "after", END_MAX)?),
            Some(End::At(at)) => time::from_proto(at, "at")?.max(now),
        };
        if at > now.plus(END_MAX) {
            return Err(invalid("at", "must be at most 90 days from now"));
        }
        let retired = self.store.retire_secret(&tenant, &source, &id, at, &change).await;
        let retired = retired.map_err(|error| from_store(&error))?;
        self.changed().await;
        tracing::info!(tenant.id = %tenant, source.id = %source, secret.id = %id, "a secret's end was set");
        let row = self.store.source(&tenant, &source).await.map_err(|error| from_store(&error))?;
        let recipe = row.and_then(|row| self.compiled(&row));
        let secrets = self.secrets_of(&tenant, &source, recipe.as_deref()).await?;
        Ok(Response::new(secrets.brief(&retired)))
    }

    pub(super) async fn do_revoke_secret(
        &self,
        request: Request<v1::RevokeSecretRequest>,
    ) -> Answer<v1::RevokeSecretResponse> {
        let (metadata, message) = split(request);
        let (tenant, source, id) = name::secret(&message.name, "name")?;
        let caller = self.check(&metadata, Action::RevokeSecret(&tenant)).await?;
        let change = self.change_because(&caller, &metadata, &message.reason)?;
        let revoked = self.store.revoke_secret(&tenant, &source, &id, &change).await;
        let revoked = revoked.map_err(|error| from_store(&error))?;
        tracing::warn!(
            tenant.id = %tenant, source.id = %source, secret.id = %id, subject = %caller.subject,
            "a secret is revoked"
        );
        self.changed().await;
        if message.wait {
            self.store.settle_accepts(PATIENCE).await.map_err(|error| {
                tracing::warn!(%error, "what was under way when a secret was revoked is not decided yet");
                Status::unavailable(
                    "the secret is revoked, but requests that were under way before are not decided yet; call again",
                )
            })?;
        }
        let (revision, unconfirmed_replicas) = self.applied(message.wait).await?;
        let secrets = self.secrets_of(&tenant, &source, None).await?;
        Ok(Response::new(v1::RevokeSecretResponse {
            secret: Some(secrets.brief(&revoked)),
            unconfirmed_replicas,
            revision: revision.0,
        }))
    }

    /// A revision that has all changes so far and, if asked to wait, who has not said that it has applied it.
    async fn applied(&self, wait: bool) -> Result<(Revision, Vec<String>), Status> {
        let revision = self.store.revision().await.map_err(|error| from_store(&error))?;
        if !wait {
            return Ok((revision, Vec::new()));
        }
        let unconfirmed = self.directory.confirm(revision, PATIENCE).await.map_err(|error| {
            tracing::warn!(%error, "whether every gateway has applied a change could not be read");
            Status::unavailable(
                "the change is made, but which gateways have applied it cannot be read; call again",
            )
        })?;
        let named: Vec<String> = unconfirmed.into_iter().map(|replica| replica.instance).collect();
        if !named.is_empty() {
            tracing::warn!(replicas = ?named, revision = revision.0, "gateways have not applied a change in time");
        }
        Ok((revision, named))
    }
}
