//! The file on disk: who may read it, who may open it, and that what was answered is in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use portero_store::testing::fixture::{Fixture, again, new_session, new_subscription, new_tenant, tester};
use portero_store::testing::lanes::flush;
use portero_store::testing::{Database, eventually};
use portero_store::{
    AcceptStore, ConfigStore, DynStore, ErrorKind, LaneStore, LogStore, PageRequest, SchemaState,
    SchemaStore, Verdict,
};
use portero_store_sqlite::{FILE_NAME, SqliteStore};
use portero_types::Shard;

/// A store that a fixture is to use as it is.
struct Opened(SqliteStore);

#[async_trait::async_trait]
impl Database for Opened {
    async fn open(&self) -> DynStore {
        Arc::new(self.0.clone())
    }

    fn is_exclusive(&self) -> bool {
        true
    }

    async fn execute(&self, _statement: &'static str) {}

    async fn try_execute(&self, _statement: &'static str) -> bool {
        false
    }

    fn audit_loopholes(&self) -> &'static [&'static str] {
        &[]
    }

    async fn rewind_log(&self, _shard: Shard, _head: u64) {}

    async fn forget_log(&self, _shard: Shard, _through: u64) {}
}

async fn reopened(folder: &Path) -> SqliteStore {
    eventually("the file is free again", async || SqliteStore::open_in(folder).await.ok()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_committed_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    let fixture = Fixture::new(&Opened(store.clone())).await;
    let event = fixture.event("evt_1");
    let subscription = fixture.subscription("billing").await;
    let position = fixture.accepted(&event).await;
    let head = fixture.fill(Shard(0), 5).await;
    let session = fixture.session("host").await;
    let claimed = store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    store.flush_lanes(session, &[flush(&claimed[0], 1, head - 1, &[head])]).await.expect("written");
    let (revision, identity) = (store.revision().await.expect("read"), store.identity().await.expect("read"));
    drop(fixture);
    store.close().await;
    drop(store);

    let store = reopened(folder.path()).await;
    assert!(matches!(store.schema_state().await.expect("state"), SchemaState::Current { .. }));
    assert_eq!(store.revision().await.expect("read"), revision);
    assert_eq!(store.identity().await.expect("read"), identity);
    let verdicts = store.accept(&[again(&event)]).await.expect("accepted");
    assert_eq!(verdicts, [Verdict::Duplicate { first: event.receipt_id }]);
    let entries = store.entries_at(position.shard, &[position.n]).await.expect("read");
    assert_eq!(entries[0].receipt_id, event.receipt_id);
    assert_eq!(store.events(&[event.receipt_id]).await.expect("read")[0].content, event.content);
    let session = new_session("host", 60_000);
    store.open_session(&session).await.expect("a session");
    let claimed =
        store.claim_lanes(session.id, subscription.no, subscription.lanes, 1).await.expect("claimed");
    assert_eq!((claimed[0].state.watermark, claimed[0].state.acked.as_slice()), (head - 1, &[head][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_in_the_files_without_a_clean_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    let fixture = Fixture::new(&Opened(store.clone())).await;
    fixture.fill(Shard(0), 40).await;
    let last = fixture.event_in(Shard(0), "evt_last");
    fixture.accepted(&last).await;
    // The files as a power cut right after the last answer leaves them: nothing was closed, nothing folded.
    let copy = copy_of(folder.path());
    let wal = fs::metadata(copy.path().join(format!("{FILE_NAME}-wal"))).expect("a write-ahead log").len();
    assert!(wal > 0);
    let revived = SqliteStore::open_in(copy.path()).await.expect("opens");
    let page = revived.page(PageRequest::new(Shard(0), 0, 100)).await.expect("a page");
    assert_eq!((page.entries.len(), page.entries[40].receipt_id), (41, last.receipt_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_cut_short_leaves_receipts_events_and_log_of_one_mind() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    let fixture = Fixture::new(&Opened(store.clone())).await;
    for _ in 0..6 {
        fixture.fill(Shard(0), 3).await;
    }
    let mut counts = Vec::new();
    for cut in (0_u64..60_000).step_by(9_999) {
        let copy = copy_of(folder.path());
        let wal = copy.path().join(format!("{FILE_NAME}-wal"));
        let file = fs::OpenOptions::new().write(true).open(&wal).expect("the write-ahead log");
        let length = file.metadata().expect("metadata").len();
        file.set_len(length.saturating_sub(cut)).expect("cut");
        drop(file);
        let revived = SqliteStore::open_in(copy.path()).await.expect("opens");
        let page = revived.page(PageRequest::new(Shard(0), 0, 100)).await.expect("a page");
        let receipts: Vec<_> = page.entries.iter().map(|entry| entry.receipt_id).collect();
        assert_eq!(page.entries.last().map_or(0, |entry| entry.n), page.head);
        assert_eq!(receipts.len() % 3, 0, "a batch is there whole or not at all");
        assert_eq!(revived.events(&receipts).await.expect("read").len(), receipts.len());
        counts.push(receipts.len());
    }
    assert_eq!(counts[0], 18);
    assert!(counts.is_sorted_by(|a, b| a >= b) && counts[counts.len() - 1] < 18, "{counts:?}");
}

fn copy_of(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for suffix in ["", "-wal"] {
        let name = format!("{FILE_NAME}{suffix}");
        fs::copy(folder.join(&name), copy.path().join(&name)).expect("copied");
    }
    copy
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_opener_gets_a_clear_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    let error = SqliteStore::open_in(folder.path()).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    assert!(error.to_string().contains("another process"), "{error}");
    store.close().await;
    drop(store);
    reopened(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_database_is_told_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(FILE_NAME);
    let text = "not a database, but a letter to someone. ".repeat(200);
    fs::write(&path, &text).expect("written");
    let error = SqliteStore::open_in(folder.path()).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(fs::read_to_string(&path).expect("read"), text);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_may_read_the_folder_and_its_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("a/b");
    let store = SqliteStore::open_in(&inner).await.expect("opens");
    store.migrate().await.expect("migrated");
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
    assert_eq!(mode(&inner), 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(&inner).expect("listed") {
        let path = entry.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path);
    }
    assert_eq!(names.len(), 4, "database, write-ahead log, its index, lock: {names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_answers_as_unavailable() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    store.migrate().await.expect("migrated");
    store.close().await;
    let error = store.create_tenant(new_tenant("acme"), &tester()).await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(store.revision().await.expect_err("closed").kind(), ErrorKind::Unavailable);
    let error = store.create_subscription(new_subscription("billing"), &tester()).await.expect_err("closed");
    assert!(error.is_retryable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_does_not_undo_its_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    let fixture = Fixture::new(&Opened(store.clone())).await;
    // The first call also reads the number of shards; what was not begun may be dropped.
    fixture.accepted(&fixture.event("evt_first")).await;
    for n in 0..50 {
        let event = fixture.event(&format!("evt_{n}"));
        let batch = [event];
        let mut call = Box::pin(store.accept(&batch));
        // One poll starts the write; then the caller is gone.
        poll_once(&mut call).await;
        drop(call);
    }
    eventually("the fifty after the first are committed", async || {
        let heads = store.heads().await.expect("heads");
        (heads.iter().sum::<u64>() == 51).then_some(())
    })
    .await;
    store.check_writable().await.expect("the writer goes on");
}

async fn poll_once<F: Future + Unpin>(future: &mut F) {
    std::future::poll_fn(|context| {
        let _ = std::pin::Pin::new(&mut *future).poll(context);
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_the_same_incarnation_and_a_restored_file_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let backup = folder.path().join("backup");
    for _ in 0..3 {
        let store = reopened(folder.path()).await;
        store.migrate().await.expect("migrated");
        assert_eq!(store.incarnation().await.expect("looked").0, 1);
        assert_eq!(store.incarnation().await.expect("looked again").0, 1);
        store.close().await;
        drop(store);
        if !backup.exists() {
            fs::copy(folder.path().join(FILE_NAME), &backup).expect("a backup");
        }
    }
    fs::copy(&backup, folder.path().join(FILE_NAME)).expect("restored");
    for _ in 0..2 {
        let store = reopened(folder.path()).await;
        assert_eq!(store.incarnation().await.expect("looked").0, 2);
        store.close().await;
    }
    // Moved to where nobody knows it.
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::copy(folder.path().join(FILE_NAME), elsewhere.path().join(FILE_NAME)).expect("copied");
    let store = reopened(elsewhere.path()).await;
    assert_eq!(store.incarnation().await.expect("looked").0, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_cut_short_is_the_same_incarnation() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = reopened(folder.path()).await;
    store.migrate().await.expect("migrated");
    assert_eq!(store.incarnation().await.expect("looked").0, 1);
    store.close().await;
    drop(store);
    let mark = folder.path().join(format!("{FILE_NAME}.lock"));
    let before = (fs::read(folder.path().join(FILE_NAME)).expect("read"), fs::read(&mark).expect("read"));
    // Cut short before the database took the new mark, and after it.
    for is_committed in [false, true] {
        let store = reopened(folder.path()).await;
        store.incarnation().await.expect("looked");
        store.close().await;
        drop(store);
        let mut both = before.1.clone();
        both.extend_from_slice(&fs::read(&mark).expect("read"));
        fs::write(&mark, both).expect("written");
        if !is_committed {
            fs::write(folder.path().join(FILE_NAME), &before.0).expect("written");
        }
        let store = reopened(folder.path()).await;
        assert_eq!(store.incarnation().await.expect("looked").0, 1, "{is_committed}");
        store.close().await;
    }
}
