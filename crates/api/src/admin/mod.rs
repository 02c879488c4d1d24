//! `AdminService`: tenants, sources, secrets, rejections, subscriptions, receipts.

mod audit;
mod explain;
mod grants;
mod keys;
mod limits_form;
mod parked;
mod presets;
mod receipts;
mod rejections;
mod replicas;
mod retirement;
mod secret_life;
mod secret_view;
mod secrets;
mod service;
mod source_form;
mod source_settings;
mod sources;
mod subscription_form;
mod subscriptions;
mod tenants;
#[cfg(test)]
mod tests;

pub(crate) use subscriptions::reference;

use std::sync::Arc;

use portero_auth::{Action, Caller};
use portero_directory::Directory;
use portero_keyring::Keyring;
use portero_store::{Actor, Change, DynStore};
use portero_types::{Clock, RequestId, Timestamp};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::Entropy;
use crate::authenticate::{Gate, Metadata};
use crate::error::invalid;

/// The admin service.
pub(crate) struct Admin {
    store: DynStore,
    directory: Directory,
    keyring: Arc<Keyring>,
    gate: Gate,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    /// Explanations under way.
    explaining: Arc<Semaphore>,
}

/// Most explanations at once: each may take a processor for a while.
const EXPLAINING_MAX: usize = 2;

/// Metadata by which a caller names its request.
const REQUEST_ID: &str = "x-request-id";

type Answer<T> = Result<Response<T>, Status>;

impl Admin {
    pub(crate) fn new(
        store: DynStore,
        directory: Directory,
        keyring: Arc<Keyring>,
        gate: Gate,
        clock: Arc<dyn Clock>,
        entropy: Entropy,
    ) -> Self {
        let explaining = Arc::new(Semaphore::new(EXPLAINING_MAX));
        Self { store, directory, keyring, gate, clock, entropy, explaining }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn check(&self, metadata: &Metadata, action: Action<'_>) -> Result<Caller, Status> {
        self.gate.check(metadata, action).await
    }

    /// Who changes something, and by which request: the caller's own id for it, where it gives one.
    fn change(&self, caller: &Caller, metadata: &Metadata) -> Change {
        let actor = Actor { issuer: caller.issuer.clone(), subject: caller.subject.clone() };
        let (now, given) = (self.now(), metadata.get(REQUEST_ID).and_then(|id| id.to_str().ok()));
        match given.map(str::trim) {
            Some(id) if !id.is_empty() => Change::new(actor, id, now),
            Some(_) | None => {
                let mut random = [0_u8; 16];
                random.copy_from_slice(&(self.entropy)()[..16]);
                let id = RequestId::new(now, u128::from_le_bytes(random));
                Change::new(actor, &id.to_string(), now)
            }
        }
    }

    /// The same with the caller's reason.
    fn change_because(&self, caller: &Caller, metadata: &Metadata, reason: &str) -> Result<Change, Status> {
        let change = self.change(caller, metadata);
        change.because(reason).map_err(|error| invalid("reason", error.to_string()))
    }

    /// Lets this gateway see a change of its own at once; the others follow within their polling interval.
    async fn changed(&self) {
        if let Err(error) = self.directory.refresh_now().await {
            tracing::warn!(%error, "a change was stored but is not in effect here yet; it will be at the next poll");
        }
    }
}

fn split<T>(request: Request<T>) -> (Metadata, T) {
    let (metadata, extensions, message) = request.into_parts();
    (Metadata::new(metadata, &extensions), message)
}
