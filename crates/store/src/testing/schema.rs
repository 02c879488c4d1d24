//! The schema: told apart, brought up to date once, left alone when it is not ours to change.

use portero_types::Generation;

use super::{Database, assert_fails, migrated};
use crate::{ErrorKind, SchemaState};

pub async fn a_new_database_is_empty_until_it_is_migrated(database: &dyn Database) {
    let store = database.open().await;
    assert_eq!(store.schema_state().await.expect("state"), SchemaState::Empty);
    assert_fails(store.heads().await, ErrorKind::SchemaMismatch);
    store.migrate().await.expect("migrated");
    assert!(
        matches!(store.schema_state().await.expect("state"), SchemaState::Current { version } if version >= 1)
    );
    store.heads().await.expect("heads");
}

pub async fn migrating_again_changes_nothing(database: &dyn Database) {
    let store = migrated(database).await;
    let before = (store.schema_state().await.expect("state"), store.identity().await.expect("identity"));
    store.migrate().await.expect("migrated");
    let after = (store.schema_state().await.expect("state"), store.identity().await.expect("identity"));
    assert_eq!(before, after);
}

pub async fn concurrent_migrations_wait_for_each_other(database: &dyn Database) {
    let stores = [database.open().await, database.open().await, database.open().await];
    let [one, two, three] = &stores;
    let outcomes = tokio::join!(one.migrate(), two.migrate(), three.migrate(), one.migrate());
    outcomes.0.and(outcomes.1).and(outcomes.2).and(outcomes.3).expect("all succeed");
    assert!(matches!(one.schema_state().await.expect("state"), SchemaState::Current { .. }));
}

pub async fn a_schema_ahead_is_told_and_left_alone(database: &dyn Database) {
    let store = migrated(database).await;
    let SchemaState::Current { version } = store.schema_state().await.expect("state") else {
        panic!("migrated")
    };
    database.execute("UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1").await;
    let ahead = SchemaState::Ahead { found: 9_999, needed: version };
    assert_eq!(store.schema_state().await.expect("state"), ahead);
    assert_fails(store.migrate().await, ErrorKind::SchemaMismatch);
    assert_eq!(store.schema_state().await.expect("state"), ahead);
}

pub async fn a_schema_behind_is_told(database: &dyn Database) {
    let store = migrated(database).await;
    database.execute("UPDATE _sqlx_migrations SET version = 0 WHERE version = 1").await;
    let state = store.schema_state().await.expect("state");
    assert!(matches!(state, SchemaState::Behind { found: 0, needed } if needed >= 1), "{state:?}");
}

pub async fn an_interrupted_migration_is_told_and_left_alone(database: &dyn Database) {
    let store = migrated(database).await;
    database.execute("UPDATE _sqlx_migrations SET success = FALSE WHERE version = 1").await;
    assert_eq!(store.schema_state().await.expect("state"), SchemaState::Damaged { version: 1 });
    assert_fails(store.migrate().await, ErrorKind::SchemaMismatch);
}

pub async fn a_migrated_database_can_commit(database: &dyn Database) {
    let store = migrated(database).await;
    store.check_writable().await.expect("writable");
    store.check_writable().await.expect("still writable");
}

pub async fn a_database_has_one_identity(database: &dyn Database) {
    let store = migrated(database).await;
    let identity = store.identity().await.expect("identity");
    assert!((1..=200).contains(&identity.len()));
    assert!(identity.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.'));
    assert_eq!(database.open().await.identity().await.expect("identity"), identity);
}

pub async fn a_new_log_is_of_the_first_generation(database: &dyn Database) {
    let store = migrated(database).await;
    assert_eq!(store.generation().await.expect("generation"), Generation(1));
}
