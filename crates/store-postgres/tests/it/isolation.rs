//! Calls that are dropped half-way leave nothing open behind them.

use portero_store::testing::fixture::{Fixture, fresh, new_tenant, tester};
use portero_store::{ConfigStore, LaneFlush};
use portero_types::EntityHash;
use tokio::task::JoinSet;

use super::harness::{TestDatabase, loop_until};

/// F43.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_aborted_in_the_middle_of_transactions_leave_no_transaction_open() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    let session = fixture.session("pod-1").await;
    let claim =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    let mut handlers = JoinSet::new();
    for n in 0..10_000_u64 {
        let store = fixture.store.clone();
        let lane = claim[0].clone();
        let abort = handlers.spawn(async move {
            let flush = LaneFlush {
                unpark: vec![EntityHash(n)],
                ..portero_store::testing::lanes::flush(&lane, 1, lane.state.watermark, &[])
            };
            let flushes = [flush];
            let change = tester();
            let _ = tokio::join!(
                store.create_tenant(new_tenant(&format!("tenant-{n}")), &change),
                store.flush_lanes(session, &flushes),
                store.snapshot(),
            );
        });
        for _ in 0..n % 23 {
            tokio::task::yield_now().await;
        }
        abort.abort();
    }
    while handlers.join_next().await.is_some() {}

    let before = fixture.store.revision().await.expect("read");
    let tenant = format!("after-{}", fresh());
    fixture.store.create_tenant(new_tenant(&tenant), &tester()).await.expect("a write goes through");
    let other = database.store().await;
    assert!(other.revision().await.expect("read") > before, "and is visible to others");
    let mut watch = database.raw().await;
    loop_until(
        &mut watch,
        "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%')",
    )
    .await;
}
