//! From a request's metadata to a caller who may do what it asks for.

use std::sync::Arc;

use portero_auth::{Action, Caller, Reason, Verifier, allows};
use portero_types::Clock;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// Checks tokens and permissions.
#[derive(Clone)]
pub(crate) struct Gate {
    verifier: Arc<Verifier>,
    clock: Arc<dyn Clock>,
}

impl Gate {
    pub(crate) const fn new(verifier: Arc<Verifier>, clock: Arc<dyn Clock>) -> Self {
        Self { verifier, clock }
    }

    /// The caller whom the bearer token (RFC 6750) names.
    pub(crate) async fn caller(&self, metadata: &MetadataMap) -> Result<Caller, Status> {
        let missing = || {
            Status::unauthenticated(
                "a token is needed: send the metadata 'authorization' with 'Bearer' and a token",
            )
        };
        let mut values = metadata.get_all("authorization").iter();
        let value = values.next().and_then(|value| value.to_str().ok()).ok_or_else(missing)?;
        if values.next().is_some() {
            return Err(Status::unauthenticated("the metadata 'authorization' is there more than once"));
        }
        let token = match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(missing()),
        };
        self.verifier.verify(token, self.clock.now()).await.map_err(|reason| {
            let code =
                if reason == Reason::KeysUnavailable { Code::Unavailable } else { Code::Unauthenticated };
            Status::new(code, reason.to_string())
        })
    }

    /// Refuses a caller who may not do this.
    pub(crate) fn permit(caller: &Caller, action: Action<'_>) -> Result<(), Status> {
        if allows(caller, action) {
            return Ok(());
        }
        tracing::info!(rpc = action.name(), subject = %caller.subject, "a call was refused: its caller may not do this");
        Err(Status::permission_denied(format!("the token's grants do not allow {} here", action.name())))
    }

    /// Both at once.
    pub(crate) async fn check(&self, metadata: &MetadataMap, action: Action<'_>) -> Result<Caller, Status> {
        let caller = self.caller(metadata).await?;
        Self::permit(&caller, action)?;
        Ok(caller)
    }
}
