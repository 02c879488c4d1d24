//! The database goes away before, during and after a commit.

use portero_store::testing::fixture::{Fixture, again, new_session, position};
use portero_store::testing::{assert_fails, eventually};
use portero_store::{AcceptStore, ConfigStore, ErrorKind, LaneStore, SchemaStore, Verdict};
use portero_store_postgres::{PoolSizes, PostgresConfig, PostgresStore};
use portero_types::Shard;
use sqlx::Executor;

use super::harness::TestDatabase;
use super::proxy::Proxy;

/// A store that reaches its database by a proxy, one connection for accepting.
async fn by_proxy(database: &TestDatabase) -> (Proxy, PostgresStore) {
    let proxy = Proxy::before(TestDatabase::address()).await;
    let config = PostgresConfig {
        pools: PoolSizes { ingest: 1, ..PoolSizes::default() },
        acquire_timeout: std::time::Duration::from_secs(2),
        ..database.config_at("127.0.0.1", proxy.port())
    };
    let store = PostgresStore::connect(config).await.expect("connected");
    (proxy, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_is_unavailable() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let (proxy, store) = by_proxy(&database).await;
    let event = fixture.event("evt_1");
    store.accept(std::slice::from_ref(&event)).await.expect("accepted");
    proxy.stop().await;
    let outcome = eventually("idle connections are found dead", async || {
        let outcome = store.accept(&[fixture.event("evt_2")]).await;
        let kind = outcome.as_ref().expect_err("the database is away").kind();
        (kind == ErrorKind::Unavailable).then_some(outcome)
    })
    .await;
    assert_fails(outcome, ErrorKind::Unavailable);
    assert_fails(store.revision().await, ErrorKind::Unavailable);
    assert!(store.check_writable().await.expect_err("away").is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_does_not_open_without_its_database() {
    let database = TestDatabase::create().await;
    let proxy = Proxy::before(TestDatabase::address()).await;
    let config = database.config_at("127.0.0.1", proxy.port());
    proxy.stop().await;
    assert_fails(PostgresStore::connect(config).await, ErrorKind::Unavailable);
}

/// F4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_met_by_the_retry() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let (proxy, store) = by_proxy(&database).await;
    store.accept(&[fixture.event("evt_warm")]).await.expect("accepted");
    let event = fixture.event("evt_lost_answer");
    proxy.lose_answer("evt_lost_answer");
    assert_fails(store.accept(std::slice::from_ref(&event)).await, ErrorKind::OutcomeUnknown);
    let retry = store.accept(&[again(&event)]).await.expect("the store has recovered");
    assert_eq!(retry, [Verdict::Duplicate { first: event.receipt_id }]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_never_arrived_is_accepted_by_the_retry() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let (proxy, store) = by_proxy(&database).await;
    store.accept(&[fixture.event("evt_warm")]).await.expect("accepted");
    let event = fixture.event("evt_swallowed");
    proxy.swallow("evt_swallowed");
    assert_fails(store.accept(std::slice::from_ref(&event)).await, ErrorKind::OutcomeUnknown);
    position(store.accept(&[event]).await.expect("the store has recovered")[0]);
}

/// F19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_whose_answer_is_lost_may_be_sent_again() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    let (proxy, store) = by_proxy(&database).await;
    let session = new_session("pod-1", 60_000);
    store.open_session(&session).await.expect("a session");
    let claimed =
        store.claim_lanes(session.id, subscription.no, subscription.lanes, 1).await.expect("claimed");
    let mut flush = portero_store::testing::lanes::flush(&claimed[0], 1, 0, &[]);
    flush.dead.push(portero_store::DeadLetter {
        position: 1,
        receipt_id: fixture.event("evt_1").receipt_id,
        entity: portero_types::EntityHash(1),
        attempts: 1,
        interruptions: 0,
        reason_code: "MARKED_REASON".to_owned(),
        reason_text: String::new(),
        first_failed_at: portero_store::testing::fixture::NOW,
        died_at: portero_store::testing::fixture::NOW,
    });
    proxy.lose_answer("COMMIT");
    assert_fails(store.flush_lanes(session.id, &[flush.clone()]).await, ErrorKind::OutcomeUnknown);
    let written = store.flush_lanes(session.id, &[flush.clone()]).await.expect("the store has recovered");
    assert_eq!(written, [flush.lane]);
    assert_eq!(store.dead_letters(subscription.no, None, 10).await.expect("read").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_shut_down_in_the_middle_of_a_batch_leaves_nothing_behind() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let mut holder = database.raw().await;
    holder.execute("BEGIN").await.expect("begun");
    holder.execute("SELECT pg_advisory_xact_lock(1886351988, 0)").await.expect("locked");
    let event = fixture.event_in(Shard(0), "evt_1");
    let (store, batch) = (fixture.store.clone(), [event.clone()]);
    let accept = tokio::spawn(async move { store.accept(&batch).await });
    database.until_somebody_waits("advisory").await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event = 'advisory'";
    holder.execute(kill).await.expect("terminated");
    assert_fails(accept.await.expect("no panic"), ErrorKind::OutcomeUnknown);
    holder.execute("ROLLBACK").await.expect("released");
    assert_eq!(fixture.accepted(&event).await.shard, Shard(0));
}

/// F12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_database_is_unavailable_and_says_so_to_health() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    database.run(format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name())).await;
    let store = database.store().await;
    assert_fails(store.accept(&[fixture.event("evt_1")]).await, ErrorKind::Unavailable);
    assert_fails(store.check_writable().await, ErrorKind::Unavailable);
}
