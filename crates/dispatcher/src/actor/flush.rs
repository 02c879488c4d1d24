//! Writing progress: one flush at a time for all lanes that have something to write.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use portero_engine::FlushResult;
use portero_store::{Error, ErrorKind, LaneFlush, LaneKey};
use portero_types::{Generation, LaneNo};
use tokio::time::Instant;

use super::jobs::broken_write;
use super::{Actor, Done, PACE};
use crate::shared::Shared;
use crate::{convert, metrics};

/// A flush that came back.
pub(super) struct FlushDone {
    /// Lanes with the numbers of their flushes.
    sent: HashMap<LaneNo, u64>,
    result: portero_store::Result<Vec<LaneKey>>,
}

impl Actor {
    pub(super) fn flush_when_due(&mut self) {
        if self.flushing || Instant::now() < self.flush_at {
            return;
        }
        let now = self.now();
        let subscription = self.subscription.no;
        let flushes: Vec<LaneFlush> = self
            .lanes
            .iter_mut()
            .filter_map(|(no, lane)| {
                let epoch = lane.epoch();
                let key = LaneKey { subscription, lane: *no };
                lane.poll_flush(now).map(|flush| convert::flush(key, epoch, flush))
            })
            .collect();
        if flushes.is_empty() {
            return;
        }
        self.flushing = true;
        let sent = flushes.iter().map(|flush| (flush.lane.lane, flush.state.seq)).collect();
        let broken = FlushDone { sent, result: Err(broken_write()) };
        let sent = broken.sent.clone();
        let (shared, session) = (Arc::clone(&self.shared), self.session);
        let (generation, has_failed) = (self.generation, self.flush_failed);
        let write = async move {
            if has_failed {
                is_same_database(&shared, generation).await?;
            }
            shared.store.flush_lanes(session, &flushes).await
        };
        self.spawn(async move { Done::Flushed(FlushDone { sent, result: write.await }) }, move || {
            Done::Flushed(broken)
        });
    }

    pub(super) fn flushed(&mut self, done: FlushDone) {
        self.flushing = false;
        self.flush_failed = done.result.is_err();
        let fenced = done.result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced);
        let (result, written) = match done.result {
            Ok(keys) => {
                metrics::flushed("written");
                (FlushResult::Lost, keys.into_iter().map(|key| key.lane).collect::<HashSet<_>>())
            }
            Err(error) => {
                self.flush_at = Instant::now() + PACE;
                (self.failed_flush(&error), HashSet::new())
            }
        };
        let now = self.now();
        for (no, seq) in done.sent {
            let result = if written.contains(&no) { FlushResult::Written } else { result };
            if let Some(lane) = self.lanes.get_mut(&no) {
                lane.handle_flushed(now, seq, result);
            }
        }
        if fenced {
            // The session has expired: no lane of it can be trusted, flushed here or not.
            self.lose_lanes();
            return;
        }
        self.poll_revokes();
        self.poll_statuses();
        self.drop_lost_lanes();
    }

    fn failed_flush(&self, error: &Error) -> FlushResult {
        let subscription = &self.subscription.id;
        match error.kind() {
            ErrorKind::OutcomeUnknown => {
                metrics::flushed("unknown");
                tracing::warn!(subscription.id = %subscription, %error, "it is not known whether progress was written");
                FlushResult::Unknown
            }
            ErrorKind::Fenced => {
                metrics::flushed("fenced");
                FlushResult::Lost
            }
            ErrorKind::Unavailable => {
                metrics::flushed("failed");
                tracing::warn!(subscription.id = %subscription, %error, "progress could not be written; it waits");
                FlushResult::Failed
            }
            ErrorKind::Refused
            | ErrorKind::AlreadyExists
            | ErrorKind::NotFound
            | ErrorKind::FailedPrecondition
            | ErrorKind::Exhausted
            | ErrorKind::Corrupt
            | ErrorKind::SchemaMismatch => {
                metrics::flushed("refused");
                tracing::error!(
                    subscription.id = %subscription, %error, cause = ?std::error::Error::source(error),
                    "progress is refused by the store; deliveries stop until someone acts"
                );
                FlushResult::Failed
            }
        }
    }
}

/// After an outage another server may have taken the database's place, and lack what was committed last: then what is
/// remembered here must not be written there.
async fn is_same_database(shared: &Shared, generation: Generation) -> portero_store::Result<()> {
    shared.incarnations.look(&*shared.store).await?;
    if shared.incarnations.present() == generation {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unavailable, "the log has another generation"))
}
