//! Who waits for whom: shards apart, fences against flushes, pools apart.

use std::time::Duration;

use portero_store::testing::assert_fails;
use portero_store::testing::fixture::{Fixture, again, new_rejection, position};
use portero_store::testing::lanes::flush;
use portero_store::{ErrorKind, Hint, Verdict};
use portero_types::{Generation, Shard};
use sqlx::{Executor, Row};

use super::harness::TestDatabase;

/// First key of the shards' advisory locks.
const SHARD_LOCKS: i32 = 0x706f_7274;

/// F5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_writer_stops_its_own_shard_only_and_for_a_bounded_time() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let mut stalled = database.raw().await;
    stalled.execute("BEGIN").await.expect("begun");
    sqlx::query("SELECT pg_advisory_xact_lock($1, 0)")
        .bind(SHARD_LOCKS)
        .execute(&mut stalled)
        .await
        .expect("locked");

    let blocked = fixture.event_in(Shard(0), "evt_blocked");
    let (store, batch) = (fixture.store.clone(), [blocked.clone()]);
    let waiting = tokio::spawn(async move { store.accept(&batch).await });
    database.until_somebody_waits("advisory").await;
    for shard in [1, 2, 3] {
        fixture.fill(Shard(shard), 20).await;
    }
    assert_fails(waiting.await.expect("no panic"), ErrorKind::Unavailable);
    let found = fixture.store.receipt(blocked.tenant_no, blocked.receipt_id).await.expect("read");
    assert_eq!(found, None, "what is unavailable was not written");
    stalled.execute("ROLLBACK").await.expect("released");
    fixture.accepted(&blocked).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_do_not_touch_a_shards_lock() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let event = fixture.event_in(Shard(0), "evt_1");
    fixture.accepted(&event).await;
    let mut stalled = database.raw().await;
    stalled.execute("BEGIN").await.expect("begun");
    sqlx::query("SELECT pg_advisory_xact_lock($1, 0)")
        .bind(SHARD_LOCKS)
        .execute(&mut stalled)
        .await
        .expect("locked");
    let verdicts = fixture.store.accept(&[again(&event)]).await.expect("answered");
    assert_eq!(verdicts, [Verdict::Duplicate { first: event.receipt_id }]);
}

/// F3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_the_server_undid_for_a_deadlock_is_tried_again() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let batch = [fixture.event("evt_a"), fixture.event("evt_b")];
    let insert = |id: &str| {
        format!(
            "INSERT INTO receipts SELECT {}, {}, NULL, 0, 0, 0, 0, gen_random_uuid(), gen_random_uuid(), false,
                    '{}', '{id}', '', '', sha256(''), ''",
            fixture.tenant.no, fixture.source.no, fixture.source.provider
        )
    };
    let mut other = database.raw().await;
    other.execute("BEGIN").await.expect("begun");
    other.execute("SET LOCAL deadlock_timeout = '60s'").await.expect("set");
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert("evt_b"))).execute(&mut other).await.expect("inserted");
    let store = fixture.store.clone();
    let accept = tokio::spawn(async move { store.accept(&batch).await });
    database.until_somebody_waits("transactionid").await;
    // Now each waits for the other; the server ends the one that looks first, which is ours.
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert("evt_a"))).execute(&mut other).await.expect("inserted");
    other.execute("ROLLBACK").await.expect("undone");
    let verdicts = accept.await.expect("no panic").expect("tried again");
    verdicts.into_iter().for_each(|verdict| assert!(position(verdict).n >= 1));
}

/// F9: looks come from every gateway whenever the database was away for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_at_the_incarnation_waits_for_no_claim_when_nothing_was_lost() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    fixture.fill(Shard(0), 10).await;
    let session = fixture.session("pod-1").await;
    let claim =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    fixture.store.flush_lanes(session, &[flush(&claim[0], 1, 3, &[5, 10])]).await.expect("written");
    let mut claiming = database.raw().await;
    claiming.execute("BEGIN").await.expect("begun");
    claiming.execute("SELECT FROM subscriptions FOR NO KEY UPDATE").await.expect("locked");
    let looked = tokio::time::timeout(Duration::from_secs(3), fixture.store.incarnation()).await;
    assert_eq!(looked.expect("at once").expect("looked"), Generation(1));
    claiming.execute("ROLLBACK").await.expect("released");
}

/// F15, F16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_waits_for_a_fence_and_then_writes_nothing() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    let session = fixture.session("pod-1").await;
    let claim =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    let mut fence = database.raw().await;
    fence.execute("BEGIN").await.expect("begun");
    fence.execute("UPDATE replica_sessions SET fenced = true").await.expect("fenced");
    let (store, late) = (fixture.store.clone(), flush(&claim[0], 1, 0, &[]));
    let flushing = tokio::spawn(async move { store.flush_lanes(session, &[late]).await });
    database.until_somebody_waits("transactionid").await;
    fence.execute("COMMIT").await.expect("committed");
    assert_fails(flushing.await.expect("no panic"), ErrorKind::Fenced);
    let rows = database.run("SELECT count(*) AS rows FROM lane_journal").await;
    assert_eq!(rows[0].get::<i64, _>("rows"), 0);
}

/// F16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_waits_for_a_flush_under_way_and_finds_what_it_wrote() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    fixture.fill(Shard(0), 10).await;
    let first = fixture.session("pod-1").await;
    fixture.store.claim_lanes(first, subscription.no, subscription.lanes, 1).await.expect("claimed");
    // A flush, frozen just before its commit.
    let mut frozen = database.raw().await;
    frozen.execute("BEGIN").await.expect("begun");
    frozen.execute("SELECT * FROM replica_sessions FOR SHARE").await.expect("shared");
    sqlx::query("INSERT INTO lane_journal (subscription_no, lane, epoch, seq, watermark, acked, detours) VALUES ($1, 0, 1, 1, 7, '', '')")
        .bind(subscription.no.0)
        .execute(&mut frozen)
        .await
        .expect("appended");
    let store = fixture.store.clone();
    let takeover = tokio::spawn(async move {
        let second = portero_store::testing::fixture::new_session("pod-1", 60_000);
        store.open_session(&second).await?;
        store.claim_lanes(second.id, subscription.no, subscription.lanes, 1).await
    });
    database.until_somebody_waits("transactionid").await;
    frozen.execute("COMMIT").await.expect("committed");
    let claim = takeover.await.expect("no panic").expect("taken over");
    assert_eq!((claim[0].state.watermark, claim[0].epoch.0), (7, 2));
}

/// F44.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_live_while_accepting_is_stuck() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    let session = fixture.session("pod-1").await;
    let mut stalled = database.raw().await;
    stalled.execute("BEGIN").await.expect("begun");
    sqlx::query("SELECT pg_advisory_xact_lock($1, 0)")
        .bind(SHARD_LOCKS)
        .execute(&mut stalled)
        .await
        .expect("locked");
    let mut accepts = tokio::task::JoinSet::new();
    for n in 0..32 {
        let (store, event) = (fixture.store.clone(), fixture.event_in(Shard(0), &format!("evt_{n}")));
        accepts.spawn(async move { store.accept(&[event]).await.map(|_| ()) });
    }
    database.until_somebody_waits("advisory").await;
    for _ in 0..5 {
        fixture.store.renew_session(session, Duration::from_secs(12)).await.expect("renewed");
        fixture.store.roll(session).await.expect("a roll");
        fixture.store.hint(Hint::Lanes).await.expect("told");
        fixture.store.revision().await.expect("read");
    }
    let claim =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    fixture.store.flush_lanes(session, &[flush(&claim[0], 1, 0, &[])]).await.expect("written");
    fixture.store.heads().await.expect("the log is read");
    fixture.store.subscription(&subscription.id).await.expect("admin goes on");
    stalled.execute("ROLLBACK").await.expect("released");
    accepts.join_all().await.into_iter().filter_map(Result::err).for_each(|error| {
        assert_eq!(
            error.kind(),
            ErrorKind::Unavailable,
            "only a machine so slow that the lock time-out has passed"
        );
    });
}

/// F44: a subscription that nobody can claim, and everybody tries to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_live_while_claims_are_stuck() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    let session = fixture.session("pod-1").await;
    let mut stalled = database.raw().await;
    stalled.execute("BEGIN; SELECT FROM subscriptions FOR UPDATE").await.expect("locked");
    let mut claims = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (store, no, lanes) = (fixture.store.clone(), subscription.no, subscription.lanes);
        claims.spawn(async move { store.claim_lanes(session, no, lanes, 1).await });
    }
    database.until_somebody_waits("transactionid").await;
    for _ in 0..20 {
        fixture.store.renew_session(session, Duration::from_secs(12)).await.expect("renewed");
        fixture.store.roll(session).await.expect("a roll");
    }
    stalled.execute("ROLLBACK").await.expect("released");
    let claimed = claims.join_all().await.into_iter().filter_map(Result::ok).map(|lanes| lanes.len());
    assert_eq!(claimed.sum::<usize>(), 16);
}

/// F6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_snapshot_stops_neither_accepting_nor_flushing() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    let session = fixture.session("pod-1").await;
    let claim =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    let mut dump = database.raw().await;
    dump.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.expect("begun");
    dump.execute("SELECT count(*) FROM log").await.expect("a snapshot");
    let mut head = 0;
    for seq in 1..=50 {
        head = fixture.fill(Shard(0), 10).await;
        fixture.store.flush_lanes(session, &[flush(&claim[0], seq, head, &[])]).await.expect("written");
    }
    assert_eq!(fixture.store.heads().await.expect("heads")[0], head);
    let seen = dump.fetch_one("SELECT count(*) AS rows FROM log").await.expect("the old snapshot");
    assert_eq!(seen.get::<i64, _>("rows"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_rejections_that_cannot_be_written_holds_up_nothing_else() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let mut stalled = database.raw().await;
    stalled.execute("BEGIN; LOCK TABLE rejections IN ACCESS EXCLUSIVE MODE").await.expect("locked");
    let mut flood = tokio::task::JoinSet::new();
    for secs in 0..40 {
        let (store, rejection) = (fixture.store.clone(), new_rejection(&fixture.source, secs));
        flood.spawn(async move { store.record(vec![rejection]).await });
    }
    database.until_somebody_waits("relation").await;
    let sessions = "SELECT count(*) AS waiting FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event = 'relation'";
    for n in 0..20 {
        fixture.accepted(&fixture.event(&format!("evt_{n}"))).await;
        fixture.store.revision().await.expect("control goes on");
        fixture.store.source(&fixture.tenant.id, &fixture.source.id).await.expect("admin goes on");
        assert!(database.run(sessions).await[0].get::<i64, _>("waiting") <= 1, "one connection, not more");
    }
    stalled.execute("ROLLBACK").await.expect("released");
    for outcome in flood.join_all().await {
        if let Err(error) = outcome {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
    }
    fixture.store.record(vec![new_rejection(&fixture.source, 99)]).await.expect("recorded");
}

/// F1: duplicates are removed before positions are handed out, so that there is no hole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_at_once_leave_no_hole_in_the_positions() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let events: Vec<_> = (0..60).map(|n| fixture.event_in(Shard(0), &format!("evt_{n}"))).collect();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..6 {
        let (store, events) = (fixture.store.clone(), events.clone());
        writers.spawn(async move {
            for round in 0..12 {
                let some = (0..10).map(|n| again(&events[(writer * 7 + round * 5 + n * 3) % events.len()]));
                store.accept(&some.collect::<Vec<_>>()).await.expect("accepted");
            }
        });
    }
    writers.join_all().await;
    let rows =
        database.run("SELECT count(*) AS entries, max(position) AS head FROM log WHERE shard = 0").await;
    let (entries, head) = (rows[0].get::<i64, _>("entries"), rows[0].get::<i64, _>("head"));
    assert_eq!(entries, head);
    let receipts = database.run("SELECT count(*) AS receipts FROM receipts").await;
    assert_eq!(receipts[0].get::<i64, _>("receipts"), entries);
}
