//! What must hold of the server and the role, and what the store leaves on disk.

use portero_store::testing::fixture::Fixture;
use portero_store::testing::lanes::flush;
use portero_store::testing::{Database, assert_fails, migrated};
use portero_store::{AcceptStore, ErrorKind, LogStore, SchemaState, SchemaStore};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use portero_types::{Redacted, Shard, ShardCount};
use sqlx::Row;

use super::harness::TestDatabase;

/// F8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynchronous_commit_is_refused() {
    let database = TestDatabase::create().await;
    database.run(format!("ALTER DATABASE {} SET synchronous_commit = off", database.name())).await;
    let error = PostgresStore::connect(database.config()).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::FailedPrecondition);
    assert!(error.to_string().contains("synchronous_commit"), "{error}");
}

/// F8: set after the start, it is met by the next connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynchronous_commit_that_comes_later_stops_new_connections() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let config = PostgresConfig { acquire_timeout: std::time::Duration::from_secs(1), ..database.config() };
    let store = PostgresStore::connect(config).await.expect("connected");
    database.run(format!("ALTER DATABASE {} SET synchronous_commit = off", database.name())).await;
    assert_fails(store.accept(&[fixture.event("evt_1")]).await, ErrorKind::Unavailable);
    let rows = database.run("SELECT count(*) AS receipts FROM receipts").await;
    assert_eq!(rows[0].get::<i64, _>("receipts"), 0);
}

/// F2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_default_isolation_changes_nothing() {
    for isolation in ["serializable", "repeatable read"] {
        let database = TestDatabase::create().await;
        let name = database.name();
        database
            .run(format!("ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'"))
            .await;
        portero_store::testing::log::pages_never_miss_an_entry_while_writers_run(&database).await;
        let database = TestDatabase::create().await;
        let name = database.name();
        database
            .run(format!("ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'"))
            .await;
        portero_store::testing::sessions::claims_at_once_never_share_a_lane(&database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_role_that_owns_its_database_can_do_everything() {
    let database = TestDatabase::create().await;
    let name = database.name();
    database.run(format!("CREATE ROLE {name} LOGIN PASSWORD 'pass/word'")).await;
    database.run(format!("ALTER DATABASE {name} OWNER TO {name}")).await;
    let (host, port) = TestDatabase::address();
    let config = PostgresConfig {
        password: Some(Redacted::new("pass/word".to_owned())),
        ..PostgresConfig::new(format!("postgres://{name}@{host}:{port}/{name}"))
    };
    let store = PostgresStore::connect(config).await.expect("connected");
    store.migrate().await.expect("migrated");
    store.check_writable().await.expect("writable");
    assert_eq!(
        store.identity().await.expect("identity"),
        database.open().await.identity().await.expect("identity")
    );
    let fixture = Fixture::new(&database).await;
    store.accept(&[fixture.event("evt_1")]).await.expect("accepted");
    store.close().await;
    database.run(format!("ALTER DATABASE {name} OWNER TO CURRENT_USER")).await;
    database
        .run(format!("REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}; DROP ROLE {name}"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schemas_of_one_database_are_two_installations() {
    let database = TestDatabase::create().await;
    let open = async |schema: &str, shards: u16| {
        let config = PostgresConfig {
            schema: Some(schema.to_owned()),
            shards: ShardCount::new(shards).expect("valid"),
            ..database.config()
        };
        PostgresStore::connect(config).await.expect("connected")
    };
    let (one, two) = (open("one", 1).await, open("two", 8).await);
    one.migrate().await.expect("migrated");
    assert_eq!(two.schema_state().await.expect("state"), SchemaState::Empty);
    two.migrate().await.expect("migrated");
    assert_eq!((one.heads().await.expect("heads").len(), two.heads().await.expect("heads").len()), (1, 8));
    assert_ne!(one.identity().await.expect("identity"), two.identity().await.expect("identity"));
    assert_fails(database.open().await.heads().await, ErrorKind::SchemaMismatch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_migration_is_told() {
    let database = TestDatabase::create().await;
    let store = migrated(&database).await;
    database.run("UPDATE _sqlx_migrations SET checksum = '\\x00'").await;
    assert_eq!(store.schema_state().await.expect("state"), SchemaState::Damaged { version: 1 });
    assert_fails(store.migrate().await, ErrorKind::SchemaMismatch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_two_kibibytes_stay_in_their_row_uncompressed() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let mut event = fixture.event("evt_1");
    event.content = bytes::Bytes::from(vec![b' '; 2_048]);
    fixture.accepted(&event).await;
    let rows = database
        .run(
            "SELECT pg_column_size(content) AS stored, pg_relation_size(c.reltoastrelid) AS toast
              FROM events, pg_class c WHERE c.relname = 'events_default'",
        )
        .await;
    assert!(rows[0].get::<i32, _>("stored") >= 2_048, "not compressed");
    assert_eq!(rows[0].get::<i64, _>("toast"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_does_not_grow_with_the_number_of_flushes() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let subscription = fixture.subscription("billing").await;
    fixture.fill(Shard(0), 2).await;
    let session = fixture.session("pod-1").await;
    let claim =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    for seq in 1..=600 {
        fixture.store.flush_lanes(session, &[flush(&claim[0], seq, 1, &[])]).await.expect("written");
    }
    let rows = database.run("SELECT count(*) AS rows FROM lane_journal").await;
    assert!(rows[0].get::<i64, _>("rows") <= 256);
    let session = fixture.session("pod-1").await;
    let claim =
        fixture.store.claim_lanes(session, subscription.no, subscription.lanes, 1).await.expect("claimed");
    assert_eq!(claim[0].state.watermark, 1);
    let rows = database.run("SELECT count(*) AS rows FROM lane_journal").await;
    assert_eq!(rows[0].get::<i64, _>("rows"), 1);
}
