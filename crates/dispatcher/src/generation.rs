//! Which incarnation of the log this process works on.
//!
//! A database that comes back without some of its committed events (a standby that lagged, a restored backup) hands out
//! their positions again. Everything that is remembered of them is then wrong: actors end, with their streams, and begin
//! anew under the next generation. Consumers compare (generation, position), so a generation must never fall either.

use std::sync::{Mutex, PoisonError};

use portero_store::{DeliveryStore, Error, ErrorKind};
use portero_types::Generation;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::metrics;

/// Steps by which a generation may have fallen back.
const CLIMB_MAX: usize = 10_000;

/// The present generation, for everyone who has to begin anew when it changes.
pub(crate) struct Incarnations {
    present: watch::Sender<Generation>,
    /// When it was adopted: what was read before may be out of date.
    since: Mutex<Instant>,
    /// The last look that actors shared.
    last_look: tokio::sync::Mutex<Option<Look>>,
}

/// A look at the database itself.
struct Look {
    began: Instant,
    failed: Option<ErrorKind>,
}

impl Incarnations {
    pub(crate) fn new(generation: Generation) -> Self {
        Self {
            present: watch::Sender::new(generation),
            since: Mutex::new(Instant::now()),
            last_look: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn present(&self) -> Generation {
        *self.present.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Generation> {
        self.present.subscribe()
    }

    /// Compares with what the store said to a call that began at `asked_at`. A store that has fallen behind is raised above
    /// what this process has seen.
    ///
    /// # Errors
    /// The store's; then nothing has changed.
    pub(crate) async fn observe(
        &self,
        store: &dyn DeliveryStore,
        mut seen: Generation,
        asked_at: Instant,
    ) -> portero_store::Result<()> {
        let ours = self.present();
        let is_older = asked_at <= *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if seen == ours || (seen < ours && is_older) {
            return Ok(());
        }
        for _ in 0..CLIMB_MAX {
            if seen > ours {
                break;
            }
            seen = store.raise_generation(seen).await?;
        }
        self.adopt(seen);
        Ok(())
    }

    /// Looks which database this is. After an outage all actors ask at once: of many who wait, two look.
    ///
    /// # Errors
    /// The store's, or that of a look that began after this call; then nothing has changed.
    pub(crate) async fn look(&self, store: &dyn DeliveryStore) -> portero_store::Result<()> {
        let asked_at = Instant::now();
        let mut last = self.last_look.lock().await;
        if let Some(look) = last.as_ref().filter(|look| look.began > asked_at) {
            return match look.failed {
                None => Ok(()),
                Some(kind) => Err(Error::new(kind, "it could not be seen which database this is")),
            };
        }
        let began = Instant::now();
        let result = match store.incarnation().await {
            Ok(generation) => self.observe(store, generation, began).await,
            Err(error) => Err(error),
        };
        *last = Some(Look { began, failed: result.as_ref().err().map(Error::kind) });
        result
    }

    /// The log's heads have fallen since they were read under `seen`.
    pub(crate) async fn raise(
        &self,
        store: &dyn DeliveryStore,
        seen: Generation,
    ) -> portero_store::Result<()> {
        let asked_at = Instant::now();
        let present = store.raise_generation(seen).await?;
        self.observe(store, present, asked_at).await
    }

    fn adopt(&self, generation: Generation) {
        let changed = self.present.send_if_modified(|present| {
            let changed = generation > *present;
            if changed {
                *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
                *present = generation;
            }
            changed
        });
        if changed {
            metrics::generation_changed();
            tracing::error!(
                generation = generation.0,
                "the log has another generation: committed events may be lost; all deliveries begin anew"
            );
        }
    }
}
