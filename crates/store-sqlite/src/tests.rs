//! Failures that only the inside can bring about: a full disk, a lost transaction, a slow foreign lock.

use portero_store::testing::fixture::{event_of, new_source, new_tenant, tester};
use portero_store::{AcceptStore, ConfigStore, Error, ErrorKind, LogStore, SchemaStore, Source, Tenant};
use tempfile::TempDir;

use crate::SqliteStore;
use crate::error::statement;

async fn store() -> (SqliteStore, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open_in(folder.path()).await.expect("opens");
    store.migrate().await.expect("migrated");
    (store, folder)
}

async fn owner(store: &SqliteStore) -> (Tenant, Source) {
    let tenant = store.create_tenant(new_tenant("acme"), &tester()).await.expect("created");
    let source = store.create_source(new_source("acme", "stripe"), &tester()).await.expect("created");
    (tenant, source)
}

async fn pragma(store: &SqliteStore, sql: &'static str) {
    let run = store.writer.run(move |connection| {
        Box::pin(async move { Ok(sqlx::query(sql).execute(connection).await.map(drop).map_err(statement)) })
    });
    run.await.expect("set");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_unavailable_and_nothing_is_written() {
    let (store, _folder) = store().await;
    let (tenant, source) = owner(&store).await;
    pragma(&store, "PRAGMA max_page_count = 1").await; // Never below the present size.
    let mut failures = 0;
    let mut batch: Vec<_> = Vec::new();
    for n in 0..20 {
        let mut event = event_of(&tenant, &source, &format!("evt_{n}"), "one entity");
        event.content = vec![b'x'; 100_000].into();
        batch.push(event);
    }
    for _ in 0..3 {
        let error = store.accept(&batch).await.expect_err("full");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        failures += 1;
        // A failed transaction may have closed the connection, and with it the bound.
        pragma(&store, "PRAGMA max_page_count = 1").await;
    }
    assert_eq!(failures, 3);
    assert_eq!(store.heads().await.expect("heads"), [0; 4]);
    pragma(&store, "PRAGMA max_page_count = 1000000").await;
    let verdicts = store.accept(&batch).await.expect("accepted once there is room");
    assert_eq!(verdicts.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_is_unavailable() {
    let (store, _folder) = store().await;
    pragma(&store, "PRAGMA query_only = ON").await;
    assert_eq!(store.check_writable().await.expect_err("read-only").kind(), ErrorKind::Unavailable);
    // A transaction that cannot even begin closes the connection; the next one is as it was opened.
    store.check_writable().await.expect("writable again");
    pragma(&store, "PRAGMA query_only = ON").await;
    let error = store.create_tenant(new_tenant("acme"), &tester()).await.expect_err("read-only");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    store.create_tenant(new_tenant("acme"), &tester()).await.expect("nothing was written before");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_write_undoes_it_and_the_next_one_goes_on() {
    let (store, _folder) = store().await;
    let outcome: Result<(), Error> = store
        .writer
        .write(|connection| {
            Box::pin(async move {
                let sql = "UPDATE write_check SET writes = 77";
                sqlx::query(sql).execute(connection).await.map_err(statement)?;
                panic!("on purpose")
            })
        })
        .await;
    assert_eq!(outcome.expect_err("panicked").kind(), ErrorKind::OutcomeUnknown);
    store.check_writable().await.expect("goes on");
    let sql = "SELECT writes FROM write_check";
    let writes: i64 = sqlx::query_scalar(sql).fetch_one(store.readers.pool()).await.expect("read");
    assert_eq!(writes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_synced_and_foreign_keys_hold() {
    let (store, _folder) = store().await;
    store
        .writer
        .write(|connection| {
            Box::pin(async move {
                for (sql, expected) in [
                    ("PRAGMA synchronous", "2"),
                    ("PRAGMA foreign_keys", "1"),
                    ("PRAGMA journal_mode", "wal"),
                    ("PRAGMA busy_timeout", "5000"),
                ] {
                    use sqlx::Row;
                    let row = sqlx::query(sql).fetch_one(&mut *connection).await.map_err(statement)?;
                    let value = row.try_get_unchecked::<String, _>(0).map_err(statement)?;
                    assert_eq!(value, expected, "{sql}");
                }
                Ok(())
            })
        })
        .await
        .expect("read");
    let (tenant, source) = owner(&store).await;
    let stranger = Source { no: portero_types::SourceNo(999), ..source };
    let outcome = store.accept(&[event_of(&tenant, &stranger, "evt_1", "entity")]).await;
    assert_eq!(outcome.expect_err("no such source").kind(), ErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_of_a_lane_stays_short() {
    use portero_store::LaneStore;
    use portero_store::testing::fixture::{new_session, new_subscription};
    use portero_store::testing::lanes::flush;
    let (store, _folder) = store().await;
    let subscription =
        store.create_subscription(new_subscription("billing"), &tester()).await.expect("created");
    for _ in 0..3 {
        let session = new_session("host", 60_000);
        store.open_session(&session).await.expect("a session");
        let claimed =
            store.claim_lanes(session.id, subscription.no, subscription.lanes, 1).await.expect("claimed");
        for seq in 1..=200 {
            store.flush_lanes(session.id, &[flush(&claimed[0], seq, 0, &[])]).await.expect("written");
        }
    }
    let sql = "SELECT count(*) FROM lane_journal";
    let rows: i64 = sqlx::query_scalar(sql).fetch_one(store.readers.pool()).await.expect("read");
    assert!(rows <= 64, "{rows} states for one lane");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_migration_is_damage() {
    use portero_store::SchemaState;
    let (store, _folder) = store().await;
    pragma(&store, "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1").await;
    assert_eq!(store.schema_state().await.expect("state"), SchemaState::Damaged { version: 1 });
    assert_eq!(store.migrate().await.expect_err("damaged").kind(), ErrorKind::SchemaMismatch);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_keep_no_text_of_the_driver() {
    let (store, _folder) = store().await;
    let (tenant, source) = owner(&store).await;
    let mut event = event_of(&tenant, &source, "evt_1", "entity");
    event.event_type = "hunter2\0".to_owned();
    let error = store.accept(&[event]).await.expect_err("refused");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("CHECK"), "{shown}");
}
