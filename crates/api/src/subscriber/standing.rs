//! Whether a stream's caller may still consume.

use portero_auth::{Action, Caller, allows};
use portero_store::Revision;
use portero_types::SubscriptionNo;
use tokio::sync::watch;
use tonic::Status;

use super::service::Subscriber;
use crate::admin::reference;
use crate::authenticate::denied;

/// What a stream's caller may do, asked again at each change of the configuration.
pub(super) struct Standing {
    /// The caller without stored grants.
    own: Caller,
    changed: watch::Receiver<Revision>,
}

impl Standing {
    /// From now on: no change after this call is missed.
    pub(super) fn new(service: &Subscriber, own: Caller) -> Self {
        Self { own, changed: service.directory.changed() }
    }

    /// The caller without stored grants.
    pub(super) const fn own(&self) -> &Caller {
        &self.own
    }

    /// Resolves, with the status to end with, once the caller may no longer consume the subscription. Cancel-safe.
    pub(super) async fn lost(&mut self, service: &Subscriber, subscription: SubscriptionNo) -> Status {
        while self.changed.changed().await.is_ok() {
            if !self.holds(service, subscription) {
                return denied(
                    "GRANT_LOST",
                    "the grant to consume this subscription was taken back; an administrator gives another one",
                );
            }
        }
        // The configuration is followed no longer: the program is ending.
        std::future::pending().await
    }

    fn holds(&self, service: &Subscriber, subscription: SubscriptionNo) -> bool {
        let snapshot = service.directory.snapshot();
        // A deleted subscription ends its streams itself, with a status of its own.
        snapshot.subscription_by_no(subscription).is_none_or(|found| {
            let action = Action::Subscribe(reference(&found.id, found.tenant.as_ref()));
            allows(&service.gate.with_stored(&self.own), action)
        })
    }
}
