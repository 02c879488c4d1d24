//! From a stored event to one that a consumer can read.
//!
//! What cannot be opened is never delivered as something else and never dropped: it waits. Only an erased tenant's events are
//! over, because nobody can open them any more.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use portero_directory::{Directory, Fault, Snapshot};
use portero_keyring::OpenError;
use portero_store::{EventContent, StoredEvent};
use portero_types::{Event, ReceiptId};

use crate::metrics;

/// Unreadable events that were told of and are remembered, so that each is told of once.
const TOLD_MAX: usize = 1_024;

/// What can be delivered of an event.
pub(crate) enum Opened {
    /// All of it.
    Event(Box<Event>),
    /// Nothing, ever: its tenant was erased.
    Erased,
    /// Nothing, until somebody mends what is stored, or the keyring.
    Unreadable,
}

/// Opens events with the tenants' keys of the directory.
pub(crate) struct Opener {
    directory: Directory,
    told: Mutex<HashSet<ReceiptId>>,
}

/// Why an event is not open.
enum Trouble {
    /// The configuration in memory may be older than the event.
    Unknown(Cause),
    /// Its bytes are not what was sealed, or no key opens them.
    Broken(Cause),
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("the tenant has no data key")]
    NoTenant,
    #[error(transparent)]
    Fault(Fault),
    #[error(transparent)]
    Sealed(OpenError),
    #[error("what was sealed is not an event's content: {0}")]
    Malformed(portero_store::codec::Malformed),
}

impl Opener {
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory, told: Mutex::default() }
    }

    /// Opens events, in their order. When keys are missing it looks once whether the configuration changed.
    pub(crate) async fn open(&self, events: Vec<StoredEvent>) -> Vec<(ReceiptId, Opened)> {
        let mut snapshot = self.directory.snapshot();
        let mut looked = false;
        let mut all = Vec::with_capacity(events.len());
        for event in events {
            let receipt_id = event.receipt_id;
            if event.is_erased {
                // Though the key may be in memory for a moment more.
                all.push((receipt_id, Opened::Erased));
                continue;
            }
            let mut opened = open(&snapshot, &event);
            if matches!(opened, Err(Trouble::Unknown(_))) && !looked {
                looked = true;
                // When it fails the former one is as good: what it does not know waits.
                let _ = self.directory.refresh_now().await;
                snapshot = self.directory.snapshot();
                opened = open(&snapshot, &event);
            }
            all.push((receipt_id, self.judge(event, opened)));
        }
        all
    }

    fn judge(&self, event: StoredEvent, opened: Result<EventContent, Trouble>) -> Opened {
        match opened {
            Ok(content) => Opened::Event(Box::new(event.with_content(content))),
            Err(Trouble::Unknown(cause) | Trouble::Broken(cause)) => {
                self.tell(&event, &cause);
                Opened::Unreadable
            }
        }
    }

    /// Each event once, so that a tenant whose key is lost does not fill the log.
    fn tell(&self, event: &StoredEvent, cause: &Cause) {
        metrics::unreadable();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= TOLD_MAX {
            told.clear();
        }
        if told.insert(event.receipt_id) {
            tracing::error!(
                receipt.id = %event.receipt_id, tenant.id = %event.tenant, source.id = %event.source, %cause,
                "an event cannot be opened; it waits with its entity until its row, or the tenant's key, is mended"
            );
        }
    }
}

fn open(snapshot: &Snapshot, event: &StoredEvent) -> Result<EventContent, Trouble> {
    let keys = snapshot.keys_of(event.tenant_no).ok_or(Trouble::Unknown(Cause::NoTenant))?;
    let keys = keys.map_err(|fault| Trouble::Broken(Cause::Fault(fault.clone())))?;
    let content = keys.open_event(event.receipt_id, &event.content).map_err(|error| match error {
        OpenError::UnknownVersion { .. } => Trouble::Unknown(Cause::Sealed(error)),
        OpenError::UnknownKey { .. }
        | OpenError::Unprotected
        | OpenError::NoKeySet
        | OpenError::Tampered
        | OpenError::UnknownFormat => Trouble::Broken(Cause::Sealed(error)),
    })?;
    // Wiped when the last who holds a part of it lets go.
    let content = Bytes::from_owner(content);
    EventContent::decode(&content).map_err(|error| Trouble::Broken(Cause::Malformed(error)))
}
