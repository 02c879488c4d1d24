//! A client that freezes in the middle of a message, with a shard's lock in its hands.

use std::time::Duration;

use portero_store::testing::eventually;
use portero_store::testing::fixture::{Fixture, again, position};
use portero_store::{AcceptStore, ErrorKind, Verdict};
use portero_store_postgres::{PoolSizes, PostgresConfig, PostgresStore};
use portero_types::Shard;
use tokio::time::Instant;

use super::harness::TestDatabase;
use super::proxy::Proxy;

/// F5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_frozen_in_the_middle_of_a_message_holds_up_its_shard_only_and_not_for_long() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let proxy = Proxy::before(TestDatabase::address()).await;
    let config = PostgresConfig {
        pools: PoolSizes { ingest: 1, ..PoolSizes::default() },
        ..database.config_at("127.0.0.1", proxy.port())
    };
    let frozen = PostgresStore::connect(config).await.expect("connected");
    // The statement is prepared by then, and comes in one message from now on.
    frozen.accept(&[fixture.event_in(Shard(0), "evt_warm")]).await.expect("accepted");
    let stuck = fixture.event_in(Shard(0), "evt_frozen");
    proxy.freeze("evt_frozen");
    let (store, batch) = (frozen.clone(), [stuck.clone()]);
    let freezing = tokio::spawn(async move { store.accept(&batch).await });
    let held = "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'
                AND l.granted AND a.datname = current_database() AND a.wait_event = 'ClientRead'";
    let mut watch = database.raw().await;
    super::harness::loop_until(&mut watch, held).await;
    let since = Instant::now();

    for shard in [1, 2, 3] {
        fixture.fill(Shard(shard), 20).await;
    }
    assert_eq!(database.run(held).await.len(), 1, "other shards flow meanwhile");
    let waiting = fixture.event_in(Shard(0), "evt_waiting");
    let verdict = eventually("the shard recovers", async || {
        match fixture.store.accept(std::slice::from_ref(&waiting)).await {
            Ok(verdicts) => Some(verdicts[0]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                None
            }
        }
    })
    .await;
    position(verdict);
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());

    // Whoever was frozen learns that it does not know, and nothing of its statement is left.
    let outcome = freezing.await.expect("no panic").expect_err("the connection is gone");
    assert_eq!(outcome.kind(), ErrorKind::OutcomeUnknown);
    let retry = fixture.store.accept(&[again(&stuck)]).await.expect("accepted")[0];
    assert!(matches!(retry, Verdict::Accepted { .. }), "{retry:?}");
}
