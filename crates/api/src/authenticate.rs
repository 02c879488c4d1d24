//! From a request's metadata to a caller who may do what it asks for.

use std::collections::HashMap;
use std::sync::Arc;

use portero_auth::{Action, Caller, Grant, Reason, Role, Verifier, allows, is_outdated};
use portero_directory::{Directory, Snapshot};
use portero_types::Clock;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Who gives the reasons of refusals their meaning (google.rpc.ErrorInfo).
const DOMAIN: &str = "portero";

/// A call's metadata, and the caller whom the entrance found by them.
pub(crate) struct Metadata {
    map: MetadataMap,
    own: Option<Caller>,
}

impl Metadata {
    pub(crate) fn new(map: MetadataMap, extensions: &Extensions) -> Self {
        Self { map, own: extensions.get::<Caller>().cloned() }
    }
}

impl std::ops::Deref for Metadata {
    type Target = MetadataMap;

    fn deref(&self) -> &MetadataMap {
        &self.map
    }
}

/// Checks tokens and permissions.
#[derive(Clone)]
pub(crate) struct Gate {
    verifier: Arc<Verifier>,
    directory: Directory,
    clock: Arc<dyn Clock>,
}

impl Gate {
    pub(crate) const fn new(verifier: Arc<Verifier>, directory: Directory, clock: Arc<dyn Clock>) -> Self {
        Self { verifier, directory, clock }
    }

    /// The caller whom the bearer token (RFC 6750) names, without stored grants: as the entrance found it, or found now where there
    /// is no entrance.
    pub(crate) async fn own(&self, metadata: &Metadata) -> Result<Caller, Status> {
        match &metadata.own {
            Some(own) => Ok(own.clone()),
            None => self.identity(&metadata.map).await,
        }
    }

    /// The caller as its token and the configuration say it, without stored grants: what a stream keeps, to complete it again.
    pub(crate) async fn identity(&self, metadata: &MetadataMap) -> Result<Caller, Status> {
        let token = bearer(metadata)?;
        self.verifier.verify(token, self.clock.now()).await.map_err(unverified)
    }

    /// With the grants that the store holds for it.
    ///
    /// A grant may have been taken back while the store was out of reach, so stored ones count only while the configuration
    /// in memory is known to be the latest.
    async fn completed(&self, own: &Caller) -> Result<Caller, Status> {
        if self.directory.is_fresh() || self.directory.refresh_now().await.is_ok() {
            return Ok(self.with_stored(own));
        }
        if own.grants.is_empty() && own.claimed.is_none() {
            return Err(Status::unavailable("the caller's grants cannot be read; retry"));
        }
        Ok(Self::with_claimed(own, &self.directory.snapshot()))
    }

    /// The same by the configuration in memory, however old.
    pub(crate) fn with_stored(&self, own: &Caller) -> Caller {
        let snapshot = self.directory.snapshot();
        let mut caller = Self::with_claimed(own, &snapshot);
        caller
            .grants
            .extend(snapshot.grants_of(&own.issuer, &own.subject).filter_map(|grant| granted(grant)));
        caller
    }

    /// With what its token grants, as far as the names that the token uses were not given up since.
    fn with_claimed(own: &Caller, snapshot: &Snapshot) -> Caller {
        let mut caller = own.clone();
        caller.grants.extend(own.claimed.as_ref().and_then(|claimed| {
            claimed.current(
                |tenant| snapshot.tenant_name_freed_at(tenant),
                |subscription| snapshot.subscription_name_freed_at(subscription),
            )
        }));
        caller
    }

    /// Whether tokens of this issuer are believed at all.
    pub(crate) fn trusts(&self, issuer: &str) -> bool {
        self.verifier.trusts(issuer)
    }

    /// The caller with all that it may do, and what `judge` says of it by the configuration in memory.
    ///
    /// Before anybody is refused for something that is not there, a grant or what it asks for, the configuration is looked at once
    /// more, whatever it is that lacks: so what was made at another gateway a moment ago counts, and the time that a refusal
    /// takes does not tell what exists. When that look fails, the refusal stays as it is.
    pub(crate) async fn judged<T>(
        &self,
        own: &Caller,
        rpc: &'static str,
        judge: impl Fn(&Caller, &Snapshot) -> Result<T, Status>,
    ) -> Result<(Caller, T), Status> {
        let mut caller = self.completed(own).await?;
        let mut judged = judge(&caller, &self.directory.snapshot());
        if judged.as_ref().is_err_and(is_for_want_of_something) && self.directory.catch_up().await {
            caller = self.completed(own).await?;
            judged = judge(&caller, &self.directory.snapshot());
        }
        let said = judged.inspect_err(|status| {
            if status.code() == Code::PermissionDenied {
                let Caller { issuer, subject, .. } = &caller;
                tracing::info!(rpc, issuer, subject, "a call was refused: its caller may not do this");
            }
        })?;
        Ok((caller, said))
    }

    /// Refuses a caller who may not do this. The answer depends on the caller and on the name of the action alone, so that
    /// what exists and what does not look alike.
    pub(crate) fn permit(caller: &Caller, action: Action<'_>) -> Result<(), Status> {
        if allows(caller, action) {
            return Ok(());
        }
        let Caller { issuer, subject, .. } = caller;
        Err(if is_outdated(caller, action) {
            denied(
                "GRANT_OUTDATED",
                format!(
                    "the token of {subject:?}, known by {issuer:?}, was issued before a tenant or subscription that it names was \
                     deleted (by its 'iat'; one without counts as older), so it grants nothing under that name: get a new token"
                ),
            )
        } else if caller.grants.is_empty() && caller.claimed.is_none() {
            denied(
                "NO_GRANT",
                format!(
                    "{subject:?}, known by {issuer:?}, has no grant here; an administrator gives one with `portero grant create`"
                ),
            )
        } else {
            denied(
                "NOT_ALLOWED",
                format!(
                    "the grants of {subject:?}, known by {issuer:?}, do not allow {} here",
                    action.name()
                ),
            )
        })
    }

    /// The caller with all that it may do, if it may do this.
    pub(crate) async fn allowed(&self, own: &Caller, action: Action<'_>) -> Result<Caller, Status> {
        let judged = self.judged(own, action.name(), |caller, _| Self::permit(caller, action)).await;
        judged.map(|(caller, ())| caller)
    }

    /// The caller whom the metadata name, if it may do this.
    pub(crate) async fn check(&self, metadata: &Metadata, action: Action<'_>) -> Result<Caller, Status> {
        self.allowed(&self.own(metadata).await?, action).await
    }
}

/// Whether something that another gateway may have made by now would change a refusal.
fn is_for_want_of_something(refusal: &Status) -> bool {
    matches!(refusal.code(), Code::PermissionDenied | Code::NotFound)
}

/// A caller who may not do what it asks for; `reason` is a stable code.
pub(crate) fn denied(reason: &str, message: impl Into<String>) -> Status {
    coded(Code::PermissionDenied, reason, message)
}

/// A stored grant as the permission table knows it. One of a role that this version does not know grants nothing.
pub(crate) fn granted(stored: &portero_store::Grant) -> Option<Grant> {
    let role = Role::from_name(&stored.role)?;
    let (tenant, subscriptions) = (stored.tenant.clone(), stored.subscriptions.clone());
    Some(Grant { role, tenant, subscriptions }).filter(|grant| grant.check().is_ok())
}

/// A refusal with a stable code of its reason.
pub(crate) fn coded(code: Code, reason: &str, message: impl Into<String>) -> Status {
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, DOMAIN, HashMap::new()))
}

fn bearer(metadata: &MetadataMap) -> Result<&str, Status> {
    let missing = || {
        coded(
            Code::Unauthenticated,
            "TOKEN_MISSING",
            "a token is needed: send the metadata 'authorization' with 'Bearer' and a token",
        )
    };
    let mut values = metadata.get_all("authorization").iter();
    let value = values.next().and_then(|value| value.to_str().ok()).ok_or_else(missing)?;
    if values.next().is_some() {
        return Err(coded(
            Code::Unauthenticated,
            "TOKEN_REPEATED",
            "the metadata 'authorization' is there more than once: send one token",
        ));
    }
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(missing()),
    }
}

fn unverified(reason: Reason) -> Status {
    let code = if reason.is_retryable() { Code::Unavailable } else { Code::Unauthenticated };
    coded(code, reason.code(), reason.to_string())
}
