//! Migrations wait for nobody for long, and nobody waits for them for long.

use std::time::Duration;

use portero_store::testing::fixture::Fixture;
use portero_store::testing::{Database as _, assert_fails};
use portero_store::{ErrorKind, SchemaState};
use sqlx::Executor;
use tokio::time::Instant;

use super::harness::TestDatabase;

/// F45.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_meets_a_lock_gives_up_in_time_and_leaves_nothing_behind() {
    let database = TestDatabase::create().await;
    let store = database.open().await;
    let mut other = database.raw().await;
    other.execute("BEGIN; CREATE TABLE dead_letters (n integer)").await.expect("an open transaction");
    let since = Instant::now();
    assert_fails(store.migrate().await, ErrorKind::Unavailable);
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    other.execute("ROLLBACK").await.expect("undone");
    assert_eq!(store.schema_state().await.expect("state"), SchemaState::Empty);
    store.migrate().await.expect("migrated");
    assert!(matches!(store.schema_state().await.expect("state"), SchemaState::Current { .. }));
}

/// F45.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrating_again_while_events_flow_holds_nobody_up() {
    let database = TestDatabase::create().await;
    let fixture = Fixture::new(&database).await;
    let mut reader = database.raw().await;
    reader.execute("BEGIN; SELECT count(*) FROM log; SELECT count(*) FROM receipts").await.expect("a reader");
    let migrations = tokio::spawn({
        let store = database.open().await;
        async move {
            for _ in 0..10 {
                store.migrate().await.expect("nothing to do");
            }
        }
    });
    for _ in 0..20 {
        fixture.fill(portero_types::Shard(0), 5).await;
    }
    migrations.await.expect("no panic");
    assert_eq!(fixture.store.heads().await.expect("heads")[0], 100);
}

/// Tables that every event is written to.
const HOT: [&str; 6] = ["receipts", "events", "events_default", "log", "log_default", "lane_journal"];

/// Statements of a migration that lock a hot table for as long as it is large: a type change, a constraint or a default that
/// is checked row by row, an index that is not built concurrently.
fn blocking_statements(sql: &str) -> Vec<String> {
    let code: Vec<&str> = sql.lines().map(|line| line.split("--").next().unwrap_or("")).collect();
    let code = code.join(" ").to_lowercase();
    let statements = code.split(';').map(|s| s.split_whitespace().collect::<Vec<_>>().join(" "));
    statements.filter(|statement| is_blocking(statement)).collect()
}

fn is_blocking(statement: &str) -> bool {
    let is_hot = HOT.iter().any(|table| {
        [" table ", " table only ", " on ", " table if exists "].iter().any(|before| {
            let named = format!("{before}{table}");
            statement.match_indices(&named).any(|(at, _)| {
                !statement[at + named.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        })
    });
    let alters = statement.starts_with("alter table")
        && [" type ", " set not null", " set logged", " set unlogged", " set tablespace"]
            .iter()
            .any(|change| statement.contains(change));
    let checks = statement.contains("add constraint") && !statement.contains("not valid");
    let indexes = (statement.starts_with("create index") || statement.starts_with("create unique index"))
        && !statement.contains("concurrently");
    let rewrites = ["vacuum full", "cluster ", "lock table", "update ", "truncate "];
    is_hot && (alters || checks || indexes) || rewrites.iter().any(|word| statement.starts_with(word))
}

/// F45. The first migration makes the tables, and nobody waits for a table that is not there yet.
#[test]
fn no_later_migration_rewrites_a_hot_table() {
    for bad in [
        "ALTER TABLE log ALTER COLUMN slot TYPE integer",
        "CREATE INDEX log_tenant ON log (tenant_no)",
        "ALTER TABLE receipts ADD CONSTRAINT c CHECK (duplicates < 9)",
        "ALTER TABLE lane_journal ALTER COLUMN acked SET NOT NULL",
        "UPDATE receipts SET duplicates = 0",
    ] {
        assert_eq!(blocking_statements(&format!("-- why\n{bad};")).len(), 1, "{bad}");
    }
    for good in [
        "ALTER TABLE log ADD COLUMN note text",
        "CREATE INDEX CONCURRENTLY log_tenant ON log (tenant_no)",
        "ALTER TABLE receipts ADD CONSTRAINT c CHECK (duplicates < 9) NOT VALID",
        "CREATE INDEX tenants_name ON tenants (display_name)",
        "ALTER TABLE logbook ALTER COLUMN n TYPE bigint",
    ] {
        assert_eq!(blocking_statements(good), [""; 0]);
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/postgres");
    for file in std::fs::read_dir(folder).expect("a folder") {
        let path = file.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        if !name.starts_with("0001_") {
            let sql = std::fs::read_to_string(&path).expect("readable");
            assert_eq!(blocking_statements(&sql), [""; 0], "{name}");
        }
    }
}
