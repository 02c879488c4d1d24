//! Waiting until a change holds everywhere.

use std::time::Duration;

use portero_store::{Replica, Revision};
use tokio::time::Instant;

use crate::follow::within;
use crate::{Directory, Error};

/// Time between two looks at what the others have applied.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Directory {
    /// Waits until every live process that takes webhooks says that it has applied `revision`, for at most `patience`; those
    /// that have not said so by then, which is nobody when all is well.
    ///
    /// A process that was paused or cut off counts as live for [`REPLICA_LIVE`](portero_store::REPLICA_LIVE). Cancel-safe.
    ///
    /// # Errors
    /// When the store could not be read at the end: then nothing is known of anybody.
    pub async fn confirm(&self, revision: Revision, patience: Duration) -> Result<Vec<Replica>, Error> {
        let deadline = Instant::now() + patience;
        loop {
            let replicas = within(self.config(), self.store().replicas()).await;
            let behind = replicas.map(|replicas| unconfirmed(replicas, revision));
            if behind.as_ref().is_ok_and(Vec::is_empty) || Instant::now() + LOOK_EVERY > deadline {
                return behind;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn unconfirmed(replicas: Vec<Replica>, revision: Revision) -> Vec<Replica> {
    replicas.into_iter().filter(|replica| replica.is_live_edge() && replica.revision < revision).collect()
}
