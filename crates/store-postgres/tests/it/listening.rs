//! The connection that listens for hints: when it is lost, whoever listens is told, and hints are only hints.

use std::time::Duration;

use portero_store::testing::fixture::Fixture;
use portero_store::testing::{Database as _, PATIENCE, assert_fails, eventually, migrated};
use portero_store::{ErrorKind, Hint, HintStore, Hints};
use portero_store_postgres::PostgresStore;
use sqlx::Row;
use sqlx::postgres::PgListener;
use tokio::time::{Instant, timeout};

use super::harness::TestDatabase;
use super::proxy::Proxy;

async fn next(hints: &mut Box<dyn Hints>) -> portero_store::Result<Hint> {
    timeout(PATIENCE, hints.next()).await.expect("an answer in time")
}

const END_LISTENERS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%' AND pid <> pg_backend_pid()";

/// F14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_connection_is_ended_is_told_at_once_and_listens_anew() {
    let database = TestDatabase::create().await;
    let store = migrated(&database).await;
    let mut hints = store.listen().await.expect("listening");
    store.hint(Hint::Log).await.expect("told");
    assert_eq!(next(&mut hints).await.expect("a hint"), Hint::Log);
    assert_eq!(database.run(END_LISTENERS).await.len(), 1, "one connection, of its own");
    for _ in 0..2 {
        assert_fails(next(&mut hints).await, ErrorKind::Unavailable);
    }
    let mut hints = store.listen().await.expect("listening anew");
    store.hint(Hint::Lanes).await.expect("told");
    assert_eq!(next(&mut hints).await.expect("a hint"), Hint::Lanes);
}

/// F14, and a network that swallows everything without a word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_peer_has_vanished_finds_out_by_itself() {
    let database = TestDatabase::create().await;
    migrated(&database).await;
    let proxy = Proxy::before(TestDatabase::address()).await;
    let store =
        PostgresStore::connect(database.config_at("127.0.0.1", proxy.port())).await.expect("connected");
    let mut hints = store.listen().await.expect("listening");
    store.hint(Hint::Log).await.expect("told");
    assert_eq!(next(&mut hints).await.expect("a hint"), Hint::Log);
    proxy.swallow_all();
    let since = Instant::now();
    assert_fails(next(&mut hints).await, ErrorKind::Unavailable);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

/// F14: an idle connection is not a lost one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_heard_nothing_for_long_still_listens() {
    let database = TestDatabase::create().await;
    let store = migrated(&database).await;
    let mut hints = store.listen().await.expect("listening");
    let mut watch = database.raw().await;
    // It has tried its connection meanwhile.
    super::harness::loop_until(
        &mut watch,
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'SELECT 1'",
    )
    .await;
    store.hint(Hint::Lanes).await.expect("told");
    assert_eq!(next(&mut hints).await.expect("a hint"), Hint::Lanes);
}

/// F14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_dropped_gives_its_connection_back_to_the_server() {
    let database = TestDatabase::create().await;
    let store = migrated(&database).await;
    drop(store.listen().await.expect("listening"));
    eventually("the connection is closed", async || {
        let listening = "SELECT count(*) AS listening FROM pg_stat_activity
                         WHERE datname = current_database() AND query LIKE '%LISTEN%' AND pid <> pg_backend_pid()";
        (database.run(listening).await[0].get::<i64, _>("listening") == 0).then_some(())
    })
    .await;
}

/// F13: no accept statement notifies anybody, and no trigger does so on its behalf.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepting_notifies_nobody() {
    for source in [
        include_str!("../../src/accept/batch.rs"),
        include_str!("../../src/accept/mod.rs"),
        include_str!("../../src/accept/repeats.rs"),
    ] {
        assert!(!source.to_lowercase().contains("notify"));
    }
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let triggers = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal
                    AND tgrelid IN ('receipts'::regclass, 'events'::regclass, 'log'::regclass)";
    let triggers = database.run(triggers).await;
    assert_eq!(triggers.len(), 0);
    let rules = "SELECT rulename FROM pg_rules WHERE schemaname = 'public'";
    assert_eq!(database.run(rules).await.len(), 0);
    let mut listener = PgListener::connect(database.config().url.expose_secret()).await.expect("connected");
    listener.listen("portero_hints").await.expect("listening");
    for n in 0..5 {
        let event = fixture.event(&format!("evt_{n}"));
        fixture.accepted(&event).await;
        fixture.store.accept(&[portero_store::testing::fixture::again(&event)]).await.expect("a repeat");
    }
    database.open().await.hint(Hint::Log).await.expect("told");
    let first = timeout(PATIENCE, listener.recv()).await.expect("in time").expect("received");
    assert_eq!(first.payload(), "log", "the first word is the one that was sent on its own");
    assert!(listener.next_buffered().is_none());
}
