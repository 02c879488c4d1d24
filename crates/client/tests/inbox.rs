//! The inbox on real databases.
#![cfg(any(feature = "inbox-sqlite", feature = "inbox-postgres"))]

use portero_client::inbox::{Dialect, Once, create_tables, once, prune};
use portero_client::{Delivery, v1};
use portero_types::Timestamp;
use sqlx::Pool;

#[derive(Clone)]
struct Offer {
    receipt: &'static str,
    event: &'static str,
    derived: bool,
    generation: i64,
    position: u64,
    received_secs: i64,
}

impl Offer {
    fn new(receipt: &'static str, event: &'static str, position: u64) -> Self {
        Self { receipt, event, derived: false, generation: 1, position, received_secs: 100 }
    }

    fn delivery(&self) -> Delivery {
        let event = v1::Event {
            receipt_id: self.receipt.to_owned(),
            tenant: "acme".to_owned(),
            provider: "pagora".to_owned(),
            event_id: self.event.to_owned(),
            event_id_derived: self.derived,
            ordering_key: "order-1".to_owned(),
            received_at: Some(prost_types::Timestamp { seconds: self.received_secs, nanos: 0 }),
            ..v1::Event::default()
        };
        Delivery::detached(v1::Delivery {
            generation: self.generation,
            position: self.position,
            event: Some(event),
            ..v1::Delivery::default()
        })
    }
}

async fn committed<DB: Dialect>(pool: &Pool<DB>, consumer: &str, offer: &Offer) -> Once {
    let mut tx = pool.begin().await.expect("begin");
    let once = once(&mut tx, consumer, &offer.delivery()).await.expect("an answer");
    tx.commit().await.expect("commit");
    once
}

/// Everything an inbox promises, on one empty database.
async fn keeps_its_promises<DB: Dialect>(pool: &Pool<DB>) {
    let mut tx = pool.begin().await.expect("begin");
    create_tables(&mut tx).await.expect("tables");
    create_tables(&mut tx).await.expect("again, without harm");
    tx.commit().await.expect("commit");

    // Once per consumer.
    let first = Offer::new("rcpt_1", "evt_1", 10);
    assert_eq!(committed(pool, "billing", &first).await, Once::Fresh);
    assert_eq!(committed(pool, "billing", &first).await, Once::Seen);
    assert_eq!(committed(pool, "mails", &first).await, Once::Fresh);

    // Rolled back with the effects.
    let second = Offer::new("rcpt_2", "evt_2", 11);
    let mut tx = pool.begin().await.expect("begin");
    assert_eq!(once(&mut tx, "billing", &second.delivery()).await.expect("an answer"), Once::Fresh);
    tx.rollback().await.expect("rollback");
    assert_eq!(committed(pool, "billing", &second).await, Once::Fresh);

    // The same event under a new receipt, after the gateway's database was restored.
    let restored = Offer { generation: 2, ..Offer::new("rcpt_9", "evt_1", 3) };
    assert_eq!(committed(pool, "billing", &restored).await, Once::Seen);
    // A derived id says nothing beyond its receipt.
    let derived = Offer { derived: true, ..Offer::new("rcpt_3", "sha_1", 12) };
    let again = Offer { derived: true, ..Offer::new("rcpt_4", "sha_1", 13) };
    assert_eq!(committed(pool, "billing", &derived).await, Once::Fresh);
    assert_eq!(committed(pool, "billing", &again).await, Once::Fresh);

    // A deferred event comes after later ones of its entity.
    let deferred = Offer::new("rcpt_5", "evt_5", 5);
    assert_eq!(committed(pool, "billing", &deferred).await, Once::Fresh);

    // What was forgotten is fenced; later events and other consumers are not.
    let mut tx = pool.begin().await.expect("begin");
    let forgotten = prune(&mut tx, "billing", Timestamp::from_secs(200)).await.expect("pruned");
    tx.commit().await.expect("commit");
    assert_eq!(forgotten, 5);
    assert_eq!(committed(pool, "billing", &first).await, Once::Seen);
    assert_eq!(committed(pool, "billing", &again).await, Once::Seen);
    let later = Offer { received_secs: 300, ..Offer::new("rcpt_6", "evt_6", 14) };
    assert_eq!(committed(pool, "billing", &later).await, Once::Fresh);
    let new_log = Offer { generation: 2, received_secs: 300, ..Offer::new("rcpt_7", "evt_7", 1) };
    assert_eq!(committed(pool, "billing", &new_log).await, Once::Fresh);
    assert_eq!(committed(pool, "mails", &second).await, Once::Fresh);

    // A second pruning never lowers a fence.
    let mut tx = pool.begin().await.expect("begin");
    prune(&mut tx, "billing", Timestamp::from_secs(400)).await.expect("pruned");
    tx.commit().await.expect("commit");
    assert_eq!(committed(pool, "billing", &new_log).await, Once::Seen);
    assert_eq!(committed(pool, "billing", &later).await, Once::Seen);
}

#[cfg(feature = "inbox-sqlite")]
#[tokio::test]
async fn an_inbox_in_sqlite_keeps_its_promises() {
    let folder = tempfile::tempdir().expect("folder");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(folder.path().join("consumer.db"))
        .create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.expect("opens");
    keeps_its_promises(&pool).await;
    pool.close().await;
}

#[cfg(feature = "inbox-sqlite")]
#[tokio::test]
async fn of_two_transactions_with_one_event_one_applies_it() {
    let folder = tempfile::tempdir().expect("folder");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(folder.path().join("consumer.db"))
        .create_if_missing(true)
        .journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let pool = sqlx::SqlitePool::connect_with(options).await.expect("opens");
    let mut tx = pool.begin().await.expect("begin");
    create_tables(&mut tx).await.expect("tables");
    tx.commit().await.expect("commit");
    let offer = Offer::new("rcpt_1", "evt_1", 1);
    let results = futures::future::join_all((0..8).map(|_| async {
        let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.expect("begin");
        let answer = once(&mut tx, "billing", &offer.delivery()).await.expect("an answer");
        tx.commit().await.expect("commit");
        answer
    }))
    .await;
    assert_eq!(results.iter().filter(|answer| **answer == Once::Fresh).count(), 1);
    pool.close().await;
}

/// In a schema of its own, on the server of the environment; without one there is nothing to test against.
#[cfg(feature = "inbox-postgres")]
#[tokio::test]
async fn an_inbox_in_postgres_keeps_its_promises() {
    use std::str::FromStr as _;

    #[expect(clippy::disallowed_methods, reason = "where the test server is, only the environment knows")]
    let url = std::env::var("PORTERO_TEST_POSTGRES_URL").expect(
        "PORTERO_TEST_POSTGRES_URL names no Postgres: run the tests with scripts/test, which starts one",
    );
    let options = sqlx::postgres::PgConnectOptions::from_str(&url).expect("a good URL");
    let schema = format!("inbox_{}", std::process::id());
    let admin = sqlx::PgPool::connect_with(options.clone()).await.expect("opens");
    let run = |sql: String| sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&admin);
    run(format!("CREATE SCHEMA {schema}")).await.expect("a schema");
    let pool =
        sqlx::PgPool::connect_with(options.options([("search_path", schema.as_str())])).await.expect("opens");
    keeps_its_promises(&pool).await;

    // Two at once: the second waits for the first and then sees the event.
    let offer = Offer { generation: 2, ..Offer::new("rcpt_race", "evt_race", 90) };
    let mut first = pool.begin().await.expect("begin");
    assert_eq!(once(&mut first, "billing", &offer.delivery()).await.expect("an answer"), Once::Fresh);
    let second = tokio::spawn({
        let (pool, offer) = (pool.clone(), offer.clone());
        async move { committed(&pool, "billing", &offer).await }
    });
    first.commit().await.expect("commit");
    assert_eq!(second.await.expect("no panic"), Once::Seen);
    pool.close().await;
    run(format!("DROP SCHEMA {schema} CASCADE")).await.expect("cleaned up");
}
