//! Secrets of sources. A value is sealed before it reaches the store and is answered once: when it was given or generated, in
//! the answer to its creation; when a handshake brought it, to who asks first.

use std::sync::Arc;
use std::time::Duration;

use portero_auth::Action;
use portero_keyring::{TenantKeys, secret_aad};
use portero_proto::v1;
use portero_recipe::{Recipe, clean_secret, generate_secret};
use portero_store::{BEGINS_EARLIER, Change, ErrorKind, NewSecret, Sealed, Secret, SecretState};
use portero_types::{Redacted, SecretId, SourceId, TenantId, Timestamp};
use sha2::Digest as _;
use subtle::ConstantTimeEq as _;
use tonic::{Request, Response, Status};

use super::secret_view::{SECRETS_MAX, Secrets, to_proto};
use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found, unusable_recipe};
use crate::{name, page, time};

/// A secret that somebody wants to add.
pub(super) struct Wanted<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) source: &'a SourceId,
    pub(super) recipe: &'a Recipe,
    /// Empty: one made from the date.
    pub(super) id: &'a str,
    /// Empty: a generated one.
    pub(super) value: String,
    pub(super) not_before: Option<&'a prost_types::Timestamp>,
    /// How long the others go on; `None` leaves them alone.
    pub(super) overlap: Option<Duration>,
}

impl Admin {
    pub(super) async fn do_create_secret(
        &self,
        request: Request<v1::CreateSecretRequest>,
    ) -> Answer<v1::Secret> {
        let (metadata, message) = split(request);
        let (tenant, source) = name::source(&message.parent, "parent")?;
        let caller = self.check(&metadata, Action::CreateSecret(&tenant)).await?;
        let recipe = self.recipe(&tenant, &source, &message.parent).await?;
        let wanted = Wanted {
            tenant: &tenant,
            source: &source,
            recipe: &recipe,
            id: &message.secret_id,
            value: message.value,
            not_before: message.not_before.as_ref(),
            overlap: None,
        };
        let change = self.change(&caller, &metadata);
        let (secret, value) = self.add(wanted, &change).await?;
        // The value is told only now: it must not be lost because nothing else can be read any more.
        let mut answer = match self.secrets_of(&tenant, &source, Some(&recipe)).await {
            Ok(secrets) => secrets.brief(&secret),
            Err(_) => to_proto(&tenant, &source, &secret, self.now()),
        };
        answer.value = value;
        Ok(Response::new(answer))
    }

    /// Adds a secret; it and its value. The value is empty when the same was there already.
    pub(super) async fn add(&self, wanted: Wanted<'_>, change: &Change) -> Result<(Secret, String), Status> {
        let (tenant, source) = (wanted.tenant, wanted.source);
        let (value, generated) = self.value(wanted.recipe, wanted.value)?;
        let now = change.at;
        let id: SecretId = match wanted.id {
            "" => self.fresh_id(now)?,
            given => name::id(given, "secret_id")?,
        };
        let keys = self.keys_of(tenant).await?;
        self.require_new_value(&keys, (tenant, source, &id), &value).await?;
        let not_before = match wanted.not_before {
            Some(given) => time::from_proto(given, "not_before")?,
            None => now.minus(BEGINS_EARLIER),
        };
        let new = NewSecret {
            tenant: tenant.clone(),
            source: source.clone(),
            sealed: self.seal(&keys, &value, (tenant, source, &id)),
            not_before,
            retire_others_at: wanted.overlap.map(|overlap| not_before.max(now).plus(overlap)),
            created_at: now,
            id: id.clone(),
        };
        match self.store.add_secret(new, change).await {
            Ok(secret) => {
                self.changed().await;
                tracing::info!(
                    tenant.id = %tenant, source.id = %source, secret.id = %id, generated,
                    rotation = wanted.overlap.is_some(), "a secret was added"
                );
                Ok((secret, value.expose_secret().clone()))
            }
            // Asked for again, as after an answer that was lost.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && !generated => {
                let known =
                    self.store.secret(tenant, source, &id).await.map_err(|error| from_store(&error))?;
                match known {
                    Some(known) if !is_same(&keys, &known, &value, tenant, source) => Err(from_store(&error)),
                    Some(known) => match known.state(now) {
                        SecretState::Planned | SecretState::Active | SecretState::Retiring => {
                            Ok((known, String::new()))
                        }
                        SecretState::Retired => Err(over(&id, "has ended: choose another id")),
                        SecretState::Revoked => Err(over(&id, "was revoked: choose another id and value")),
                    },
                    None => Err(from_store(&error)),
                }
            }
            Err(error) => Err(from_store(&error)),
        }
    }

    /// Refuses what is another secret's value: one that was revoked must not come back, and one that verifies,
    /// or will, is there.
    async fn require_new_value(
        &self,
        keys: &TenantKeys,
        (tenant, source, id): (&TenantId, &SourceId, &SecretId),
        value: &Redacted<String>,
    ) -> Result<(), Status> {
        let page = self.store.secrets(tenant, source, None, SECRETS_MAX).await;
        let now = self.now();
        for known in page.map_err(|error| from_store(&error))?.items.iter().filter(|known| known.id != *id) {
            let state = known.state(now);
            let what = match state {
                SecretState::Retired => continue,
                SecretState::Revoked => "was revoked: have the provider make a new one",
                SecretState::Active | SecretState::Retiring => "verifies already",
                // Under two names it would have to be revoked twice.
                SecretState::Planned => "is planned already",
            };
            if is_same(keys, known, value, tenant, source) {
                return Err(invalid("value", format!("is that of '{}', which {what}", known.id)));
            }
        }
        Ok(())
    }

    pub(super) async fn do_get_secret(&self, request: Request<v1::GetSecretRequest>) -> Answer<v1::Secret> {
        let (metadata, message) = split(request);
        let (tenant, source, id) = name::secret(&message.name, "name")?;
        self.check(&metadata, Action::GetSecret(&tenant)).await?;
        let secret = self.store.secret(&tenant, &source, &id).await.map_err(|error| from_store(&error))?;
        let secret = secret.ok_or_else(|| not_found(&message.name))?;
        let secrets = self.shown_secrets(&tenant, &source).await?;
        Ok(Response::new(secrets.show(&secret)))
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
        let secrets = self.shown_secrets(&tenant, &source).await?;
        let (secrets, next_page_token) =
            page::shown(&page, |secret| secrets.brief(secret), |secret| secret.id.to_string());
        Ok(Response::new(v1::ListSecretsResponse { secrets, next_page_token }))
    }

    /// A source's secrets with what their uses tell by its recipe.
    async fn shown_secrets(&self, tenant: &TenantId, source: &SourceId) -> Result<Secrets, Status> {
        let row = self.store.source(tenant, source).await.map_err(|error| from_store(&error))?;
        let recipe = row.and_then(|row| self.compiled(&row));
        self.secrets_of(tenant, source, recipe.as_deref()).await
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
        let keys = self.keys_of(&tenant).await?;
        open(&keys, &secret.sealed, (&tenant, &source, &id))?;
        let change = self.change(&caller, &metadata);
        let taken = self
            .store
            .take_unseen(&tenant, &source, &id, &change)
            .await
            .map_err(|error| from_store(&error))?;
        let taken = taken.ok_or_else(not_shown)?;
        // Sealed again since, with a data key that is newer than those: it is used up, and must not be lost.
        let value = match open(&keys, &taken, (&tenant, &source, &id)) {
            Ok(value) => value,
            Err(_) => open(&self.keys_of(&tenant).await?, &taken, (&tenant, &source, &id))?,
        };
        tracing::info!(
            tenant.id = %tenant, source.id = %source, secret.id = %id, subject = %caller.subject,
            "the secret that a handshake brought was shown, this once"
        );
        let secret = Secret { unseen: false, ..secret };
        let mut answer = match self.shown_secrets(&tenant, &source).await {
            Ok(secrets) => secrets.brief(&secret),
            Err(_) => to_proto(&tenant, &source, &secret, self.now()),
        };
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
        let change = self.change_because(&caller, &metadata, &message.reason)?;
        self.store.delete_secret(&tenant, &source, &id, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteSecretResponse {}))
    }

    pub(super) async fn recipe(
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

    fn seal(
        &self,
        keys: &TenantKeys,
        value: &Redacted<String>,
        (tenant, source, id): (&TenantId, &SourceId, &SecretId),
    ) -> Sealed {
        let aad = secret_aad(tenant, source, id);
        Sealed(keys.seal(&aad, value.expose_secret().as_bytes(), self.nonce()))
    }
}

/// Whether a secret has this value.
fn is_same(
    keys: &TenantKeys,
    known: &Secret,
    value: &Redacted<String>,
    tenant: &TenantId,
    source: &SourceId,
) -> bool {
    let digest = |text: &Redacted<String>| sha2::Sha256::digest(text.expose_secret().as_bytes());
    let opened = open(keys, &known.sealed, (tenant, source, &known.id));
    opened.is_ok_and(|opened| digest(&opened).ct_eq(&digest(value)).into())
}

fn open(
    keys: &TenantKeys,
    sealed: &Sealed,
    (tenant, source, id): (&TenantId, &SourceId, &SecretId),
) -> Result<Redacted<String>, Status> {
    let opened = keys.open(&secret_aad(tenant, source, id), &sealed.0);
    let value = opened.ok().and_then(|value| String::from_utf8(value.to_vec()).ok());
    value
        .map(Redacted::new)
        .ok_or_else(|| Status::failed_precondition("the secret cannot be opened with its tenant's data key"))
}

/// Who asks for it once more must not take it for one that verifies.
fn over(id: &SecretId, fate: &str) -> Status {
    Status::failed_precondition(format!("the source has the secret '{id}', which {fate}"))
}

fn not_shown() -> Status {
    Status::failed_precondition(
        "the secret's value cannot be shown: only one that a handshake brought can, and only once. \
         Have the provider send it again while the source waits for a secret, or add another one",
    )
}
