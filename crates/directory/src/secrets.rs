//! A source's secrets, opened; those that cannot be are told apart.

use portero_keyring::{TenantKeys, secret_aad};
use portero_recipe::{Recipe, Secret};
use portero_types::{SecretId, SecretNo};

use crate::Source;

/// Why a secret cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// The tenant's data keys do not open what is stored.
    #[error("what is stored of it cannot be opened with its tenant's data key")]
    Sealed,
    /// What was opened is no secret for the recipe.
    #[error("it does not have the form that the source's recipe needs")]
    Invalid,
}

/// A secret that is not revoked and cannot be read. It verifies nothing; the source's other secrets do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Row number.
    pub no: SecretNo,
    /// Name.
    pub id: SecretId,
    /// Why.
    pub fault: SecretFault,
}

/// Opens all secrets of a source. One that cannot be read stands for itself, so that verification knows that it is there.
pub(crate) fn read(
    source: &portero_store::Source,
    secrets: &[portero_store::Secret],
    recipe: &Recipe,
    keys: &TenantKeys,
) -> (Vec<Secret>, Vec<Unreadable>) {
    let (mut read, mut unreadable) = (Vec::with_capacity(secrets.len()), Vec::new());
    for secret in secrets {
        match open_secret(secret, source, recipe, keys) {
            Ok(opened) => read.push(opened),
            // A revoked one serves to explain refusals, and counts for nothing.
            Err(_) if secret.revoked_at.is_some() => {}
            Err(fault) => {
                read.push(Secret::unreadable(secret.no, secret.not_before, secret.not_after));
                unreadable.push(Unreadable { no: secret.no, id: secret.id.clone(), fault });
            }
        }
    }
    (read, unreadable)
}

/// Says which secrets of a source can no longer be read, and which can be again; once for each change.
pub(crate) fn tell(former: Option<&Source>, source: &Source) {
    let known = former.map_or(&[][..], Source::unreadable);
    for Unreadable { id, fault, .. } in source.unreadable().iter().filter(|secret| !known.contains(secret)) {
        tracing::error!(
            tenant.id = %source.tenant, source.id = %source.id, secret.id = %id, %fault,
            "a secret cannot be read and verifies nothing; what the source's others do not verify is answered 503 while it counts: \
             add another one and revoke this one"
        );
    }
    let Ok(verification) = &source.verification else { return };
    let is_read =
        |no: SecretNo| verification.secrets.iter().any(|secret| secret.no() == no && secret.is_readable());
    for Unreadable { id, .. } in known.iter().filter(|secret| is_read(secret.no)) {
        tracing::info!(
            tenant.id = %source.tenant, source.id = %source.id, secret.id = %id, "a secret can be read again"
        );
    }
}

/// Opens a source's secret and reads it as the recipe wants it.
///
/// # Errors
/// [`SecretFault`].
pub fn open_secret(
    secret: &portero_store::Secret,
    source: &portero_store::Source,
    recipe: &Recipe,
    keys: &TenantKeys,
) -> Result<Secret, SecretFault> {
    let aad = secret_aad(&source.tenant, &source.id, &secret.id);
    let value = keys.open(&aad, &secret.sealed.0).map_err(|_| SecretFault::Sealed)?;
    let value = std::str::from_utf8(&value).map_err(|_| SecretFault::Invalid)?;
    let opened = Secret::new(recipe, secret.no, value, secret.not_before, secret.not_after);
    Ok(opened.map_err(|_| SecretFault::Invalid)?.revoked(secret.revoked_at))
}
