//! Secrets of sources. A value is sealed before it reaches the store and is answered once: when it was given or generated, in
//! the answer to its creation; when a handshake brought it, to who asks first.

use std::sync::Arc;
use std::time::Duration;

use portero_auth::Action;
use portero_keyring::secret_aad;
use portero_proto::v1;
use portero_recipe::{Recipe, clean_secret, generate_secret};
use portero_store::{NewSecret, Sealed};
use portero_types::{Redacted, SecretId, SourceId, TenantId, Timestamp};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found, unusable_recipe};
use crate::{name, page, time};

const OVERLAP_MAX: Duration = Duration::from_secs(90 * 86_400);
/// How long old secrets go on where the recipe does not say for how long the provider sends again: most stop sooner.
const OVERLAP_UNKNOWN: Duration = Duration::from_secs(3 * 86_400);

impl Admin {
    pub(super) async fn do_create_secret(
        &self,
        request: Request<v1::CreateSecretRequest>,
    ) -> Answer<v1::Secret> {
        let (metadata, message) = split(request);
        let (tenant, source) = name::source(&message.parent, "parent")?;
        let caller = self.check(&metadata, Action::CreateSecret(&tenant)).await?;
        let now = self.now();
        let recipe = self.recipe(&tenant, &source, &message.parent).await?;
        let (value, generated) = self.value(&recipe, message.value)?;
        let id: SecretId = match message.secret_id.as_str() {
            "" => self.fresh_id(now)?,
            given => name::id(given, "secret_id")?,
        };
        let not_before = match &message.not_before {
            Some(given) => time::from_proto(given, "not_before")?,
            None => now,
        };
        let overlap = match (&message.retire_others_after, message.retire_others) {
            (None, false) => None,
            (Some(given), false) => Some(time::duration(given, "retire_others_after", OVERLAP_MAX)?),
            (None, true) => Some(recipe.info().redelivery.unwrap_or(OVERLAP_UNKNOWN)),
            (Some(_), true) => {
                return Err(invalid("retire_others", "give it or 'retire_others_after', not both"));
            }
        };
        let retire_others_at = overlap.map(|overlap| now.plus(overlap));
        let sealed = self.seal(&value, &tenant, &source, &id);
        let secret = NewSecret {
            tenant: tenant.clone(),
            source: source.clone(),
            id,
            sealed,
            not_before,
            retire_others_at,
            created_at: now,
        };
        let change = self.change(&caller, &metadata);
        let secret = self.store.add_secret(secret, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        tracing::info!(tenant.id = %tenant, source.id = %source, secret.id = %secret.id, generated, "a secret was added");
        let mut answer = to_proto(&tenant, &source, &secret, now);
        answer.value.clone_from(value.expose_secret());
        Ok(Response::new(answer))
    }

    pub(super) async fn do_get_secret(&self, request: Request<v1::GetSecretRequest>) -> Answer<v1::Secret> {
        let (metadata, message) = split(request);
        let (tenant, source, id) = name::secret(&message.name, "name")?;
        self.check(&metadata, Action::GetSecret(&tenant)).await?;
        let secret = self.store.secret(&tenant, &source, &id).await.map_err(|error| from_store(&error))?;
        let secret = secret.ok_or_else(|| not_found(&message.name))?;
        Ok(Response::new(to_proto(&tenant, &source, &secret, self.now())))
    }

    pub(super) async fn do_list_secrets(
        &self,
        request: Request<v1::ListSecretsRequest>,
    ) -> Answer<v1::ListSecretsResponse> {
        let (metadata, message) = split(request);
        let (tenant, source) = name::source(&message.parent, "parent")?;
        self.check(&metadata, Action::ListSecrets(&tenant)).await?;
        let (after, size) = (page::after::<SecretId>(&message.page_token)?, page::size(message.page_size)?);
        let page = self.store.secrets(&tenant, &source, after.as_ref(), size).await;
        let page = page.map_err(|error| from_store(&error))?;
        let now = self.now();
        Ok(Response::new(v1::ListSecretsResponse {
            next_page_token: page::next(&page, |secret| secret.id.to_string()),
            secrets: page.items.iter().map(|secret| to_proto(&tenant, &source, secret, now)).collect(),
        }))
    }

    pub(super) async fn do_reveal_secret(
        &self,
        request: Request<v1::RevealSecretRequest>,
    ) -> Answer<v1::Secret> {
        let (metadata, message) = split(request);
        let (tenant, source, id) = name::secret(&message.name, "name")?;
        let caller = self.check(&metadata, Action::RevealSecret(&tenant)).await?;
        let secret = self.store.secret(&tenant, &source, &id).await.map_err(|error| from_store(&error))?;
        let secret = secret.ok_or_else(|| not_found(&message.name))?;
        if !secret.unseen {
            return Err(not_shown());
        }
        // What cannot be opened is not used up.
        self.open(&secret.sealed, &tenant, &source, &id)?;
        let change = self.change(&caller, &metadata);
        let taken = self
            .store
            .take_unseen(&tenant, &source, &id, &change)
            .await
            .map_err(|error| from_store(&error))?;
        let value = self.open(&taken.ok_or_else(not_shown)?, &tenant, &source, &id)?;
        tracing::info!(
            tenant.id = %tenant, source.id = %source, secret.id = %id, subject = %caller.subject,
            "the secret that a handshake brought was shown, this once"
        );
        let secret = portero_store::Secret { unseen: false, ..secret };
        let mut answer = to_proto(&tenant, &source, &secret, self.now());
        answer.value.clone_from(value.expose_secret());
        Ok(Response::new(answer))
    }

    pub(super) async fn do_delete_secret(
        &self,
        request: Request<v1::DeleteSecretRequest>,
    ) -> Answer<v1::DeleteSecretResponse> {
        let (metadata, message) = split(request);
        let (tenant, source, id) = name::secret(&message.name, "name")?;
        let caller = self.check(&metadata, Action::DeleteSecret(&tenant)).await?;
        let change = self.change(&caller, &metadata);
        self.store.delete_secret(&tenant, &source, &id, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteSecretResponse {}))
    }

    async fn recipe(
        &self,
        tenant: &TenantId,
        source: &SourceId,
        parent: &str,
    ) -> Result<Arc<Recipe>, Status> {
        let row = self.store.source(tenant, source).await.map_err(|error| from_store(&error))?;
        let row = row.ok_or_else(|| not_found(parent))?;
        self.compiled(&row).ok_or_else(unusable_recipe)
    }

    fn value(&self, recipe: &Recipe, given: String) -> Result<(Redacted<String>, bool), Status> {
        if !recipe.needs_secret() {
            return Err(Status::failed_precondition(
                "the source's recipe needs no secret: nothing would ever be verified with one",
            ));
        }
        if given.is_empty() {
            let made = generate_secret(recipe, (self.entropy)()).filter(|_| !recipe.only_public_keys());
            let made = made
                .ok_or_else(|| invalid("value", "must be given: the provider makes this recipe's secrets"))?;
            return Ok((Redacted::new(made), true));
        }
        let given = Redacted::new(given);
        let cleaned = clean_secret(recipe, given.expose_secret());
        cleaned
            .map(|value| (Redacted::new(value), false))
            .map_err(|error| invalid("value", format!("cannot be used: {error}")))
    }

    /// Unique by 32 random bits within a second.
    fn fresh_id(&self, now: Timestamp) -> Result<SecretId, Status> {
        let random = hex::encode(&(self.entropy)()[..4]);
        name::id(&format!("s{}-{random}", now.as_secs()), "secret_id")
    }

    fn seal(&self, value: &Redacted<String>, tenant: &TenantId, source: &SourceId, id: &SecretId) -> Sealed {
        let mut nonce = [0_u8; 12];
        nonce.copy_from_slice(&(self.entropy)()[..12]);
        let aad = secret_aad(tenant, source, id);
        let sealed = self.keyring.seal(value.expose_secret().as_bytes(), &aad, nonce);
        Sealed { key_id: sealed.key_id, bytes: sealed.bytes }
    }

    fn open(
        &self,
        sealed: &Sealed,
        tenant: &TenantId,
        source: &SourceId,
        id: &SecretId,
    ) -> Result<Redacted<String>, Status> {
        let opened = self.keyring.open(&sealed.key_id, &sealed.bytes, &secret_aad(tenant, source, id));
        let value = opened.ok().and_then(|value| String::from_utf8(value.to_vec()).ok());
        value.map(Redacted::new).ok_or_else(|| {
            Status::failed_precondition("the secret cannot be opened with this gateway's keyring")
        })
    }
}

fn not_shown() -> Status {
    Status::failed_precondition(
        "the secret's value cannot be shown: only one that a handshake brought can, and only once. \
         Have the provider send it again while the source waits for a secret, or add another one",
    )
}

fn to_proto(
    tenant: &TenantId,
    source: &SourceId,
    secret: &portero_store::Secret,
    now: Timestamp,
) -> v1::Secret {
    let state = match secret.not_after {
        _ if now < secret.not_before => v1::SecretState::Planned,
        None => v1::SecretState::Active,
        Some(end) if now < end => v1::SecretState::Retiring,
        Some(_) => v1::SecretState::Retired,
    };
    v1::Secret {
        name: format!("tenants/{tenant}/sources/{source}/secrets/{}", secret.id),
        value: String::new(),
        state: state.into(),
        not_before: Some(time::to_proto(secret.not_before)),
        not_after: secret.not_after.map(time::to_proto),
        create_time: Some(time::to_proto(secret.created_at)),
        unseen: secret.unseen,
    }
}
