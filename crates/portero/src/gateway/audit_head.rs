//! Writes the audit log's last entry to the process's log, outside of the database: so whoever cuts off the end of the audit log
//! is found out by `portero audit verify --expect-seq … --expect-hash …`.

use std::time::Duration;

use portero_store::{AuditFilter, AuditHash, DynStore};
use tokio::time::MissedTickBehavior;

/// How often it is looked whether it moved.
const EVERY: Duration = Duration::from_secs(60);

/// A number and what was there.
type Seen = (u64, AuditHash);

/// Runs until it is dropped.
pub(super) async fn tell(store: DynStore) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = (0, AuditHash::GENESIS);
    loop {
        ticks.tick().await;
        match look(&store, told).await {
            Ok(Some((head, fate))) => {
                match fate {
                    Fate::Kept => {
                        tracing::info!(audit.seq = head.0, audit.hash = %head.1, "the audit log's last entry");
                    }
                    Fate::CutOff => tracing::error!(
                        audit.seq = head.0, audit.hash = %head.1, audit.seq_before = told.0, audit.hash_before = %told.1,
                        "the audit log is shorter than it was: entries were removed from its end"
                    ),
                    Fate::Rewritten => tracing::error!(
                        audit.seq = head.0, audit.hash = %head.1, audit.seq_before = told.0, audit.hash_before = %told.1,
                        "the audit log is another one than before: the entry that was its last has changed"
                    ),
                }
                told = head;
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "the audit log's last entry cannot be read now"),
        }
    }
}

/// What became of the entry that was seen as the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is there: the log goes forward only.
    Kept,
    /// The log ends before it.
    CutOff,
    /// Another one is in its place.
    Rewritten,
}

/// The log's last entry and what became of the one before, when it is another one than `told`.
async fn look(store: &DynStore, told: Seen) -> portero_store::Result<Option<(Seen, Fate)>> {
    let head = store.audit_head().await?;
    if head == told {
        return Ok(None);
    }
    if head.0 < told.0 {
        return Ok(Some((head, Fate::CutOff)));
    }
    if told.0 == 0 {
        return Ok(Some((head, Fate::Kept)));
    }
    let filter = AuditFilter { after_seq: Some(told.0 - 1), ..AuditFilter::default() };
    let found = store.audit_entries(filter, 1).await?.items;
    let is_there = found.first().is_some_and(|entry| (entry.seq, entry.hash) == told);
    Ok(Some((head, if is_there { Fate::Kept } else { Fate::Rewritten })))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portero_store::{Actor, Change, NewAuditEntry, SchemaStore as _};
    use portero_store_sqlite::SqliteStore;
    use portero_types::Timestamp;

    use super::*;

    /// A log with entries by these subjects.
    async fn log(folder: &std::path::Path, subjects: &[&str]) -> DynStore {
        let store = SqliteStore::open_in(folder).await.expect("opens");
        store.migrate().await.expect("migrates");
        let store: DynStore = Arc::new(store);
        for subject in subjects {
            add(&store, subject).await;
        }
        store
    }

    async fn add(store: &DynStore, subject: &str) {
        let change = Change::new(Actor::local(subject), "r", Timestamp::EPOCH);
        let deed = NewAuditEntry::deed(&change, "RewrapDataKeys", "keyring/v1".to_owned(), None);
        store.append(deed).await.expect("appended");
    }

    async fn fate(store: &DynStore, told: Seen) -> Option<Fate> {
        look(store, told).await.expect("looked").map(|(_, fate)| fate)
    }

    #[tokio::test]
    async fn a_log_that_goes_forward_is_told_and_one_that_was_cut_or_rewritten_is_found_out() {
        let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let whole = log(folders[0].path(), &["ann", "bob", "eve"]).await;
        let told = whole.audit_head().await.expect("a head");
        assert_eq!(fate(&whole, (0, AuditHash::GENESIS)).await, Some(Fate::Kept), "the first look");
        assert_eq!(fate(&whole, told).await, None, "nothing is new");
        add(&whole, "ann").await;
        assert_eq!(fate(&whole, told).await, Some(Fate::Kept));

        let cut = log(folders[1].path(), &["ann", "bob"]).await;
        assert_eq!(fate(&cut, told).await, Some(Fate::CutOff));
        let rewritten = log(folders[2].path(), &["ann", "bob", "bob"]).await;
        assert_eq!(fate(&rewritten, told).await, Some(Fate::Rewritten), "as long as before");
        add(&rewritten, "ann").await;
        assert_eq!(fate(&rewritten, told).await, Some(Fate::Rewritten), "longer than before");
    }
}
