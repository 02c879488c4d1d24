//! Writes the audit log's last entry to the process's log, outside of the database: so whoever cuts off the end of the audit log
//! is found out by `portero audit verify --expect-seq … --expect-hash …`.

use std::time::Duration;

use portero_store::{AuditHash, DynStore};
use tokio::time::MissedTickBehavior;

/// How often it is looked whether it moved.
const EVERY: Duration = Duration::from_secs(60);

/// Runs until it is dropped.
pub(super) async fn tell(store: DynStore) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = (0, AuditHash::GENESIS);
    loop {
        ticks.tick().await;
        match store.audit_head().await {
            Ok(head) if head != told => {
                // It goes forward only, unless somebody makes it go back.
                if head.0 < told.0 {
                    tracing::error!(
                        audit.seq = head.0, audit.hash = %head.1, audit.seq_before = told.0, audit.hash_before = %told.1,
                        "the audit log is shorter than it was: entries were removed from its end"
                    );
                } else {
                    tracing::info!(audit.seq = head.0, audit.hash = %head.1, "the audit log's last entry");
                }
                told = head;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the audit log's last entry cannot be read now"),
        }
    }
}
