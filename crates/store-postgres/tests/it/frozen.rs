//! A client that freezes in the middle of a message, with a shard's lock in its hands.

use std::time::Duration;

use portero_store::testing::fixture::{Fixture, again, new_secret, position, source_id, tenant_id, tester};
use portero_store::testing::{assert_fails, eventually};
use portero_store::{AcceptStore, ErrorKind, Verdict};
use portero_store_postgres::{PoolSizes, PostgresConfig, PostgresStore};
use portero_types::{NewEvent, Shard};
use sqlx::{Connection, Executor};
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

/// Its statement has seen the secret as good, is done, and waits for nothing but the end of its message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_does_not_wait_for_a_client_frozen_with_what_it_must_not_commit() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let proxy = Proxy::before(TestDatabase::address()).await;
    let config = PostgresConfig {
        pools: PoolSizes { ingest: 1, ..PoolSizes::default() },
        ..database.config_at("127.0.0.1", proxy.port())
    };
    let frozen = PostgresStore::connect(config).await.expect("connected");
    frozen.accept(&[fixture.event_in(Shard(0), "evt_warm")]).await.expect("accepted");
    let leaked = fixture.store.add_secret(new_secret("leaked"), &tester()).await.expect("added");
    let stuck = NewEvent { secret_no: Some(leaked.no), ..fixture.event_in(Shard(0), "evt_frozen") };
    proxy.freeze("evt_frozen");
    let (store, batch) = (frozen.clone(), [stuck.clone()]);
    let freezing = tokio::spawn(async move { store.accept(&batch).await });
    let held = "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'
                AND l.granted AND a.datname = current_database() AND a.wait_event = 'ClientRead'";
    super::harness::loop_until(&mut database.raw().await, held).await;

    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    let revoked = fixture.store.revoke_secret(&acme, &stripe, &leaked.id, &tester()).await;
    assert!(revoked.expect("revoked").revoked_at.is_some());
    let since = Instant::now();
    fixture.store.settle_accepts(Duration::from_secs(10)).await.expect("settled");
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    assert_eq!(database.run(held).await.len(), 0, "it is ended");

    let outcome = freezing.await.expect("no panic").expect_err("the connection is gone");
    assert_eq!(outcome.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(fixture.store.accept(&[again(&stuck)]).await.expect("answered"), [Verdict::Revoked]);
    let receipt = fixture.store.receipt_by_event_id(stuck.tenant_no, &stuck.provider, "evt_frozen").await;
    assert_eq!(receipt.expect("read"), None);
}

/// Roles of a gateway may have logins of their own, so that the one that faces the internet has fewer rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_waits_for_what_is_being_accepted_under_another_login() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let login = format!("edge_of_{}", database.name());
    database.run(format!("CREATE ROLE {login} LOGIN; GRANT INSERT ON log TO {login}")).await;
    let mut edge = database.raw_as(&login).await;
    let insert = "INSERT INTO log VALUES (1, 1, 1, 1, 1, 1, 0, 0, gen_random_uuid(), '')";
    edge.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(format!("BEGIN; {insert}")))).await.expect("under way");

    let early = fixture.store.settle_accepts(Duration::from_millis(100)).await;
    assert_fails(early, ErrorKind::Unavailable);
    let store = fixture.store.clone();
    let settling = tokio::spawn(async move { store.settle_accepts(Duration::from_secs(10)).await });
    edge.execute("COMMIT").await.expect("committed");
    settling.await.expect("no panic").expect("settled");
    edge.close().await.expect("closed");
    database.run(format!("DROP OWNED BY {login}; DROP ROLE {login}")).await;
}
