//! The inbox's statements; Postgres and SQLite understand the same ones.

use std::future::Future;

use sqlx::{Row as _, Transaction};

use super::Entry;

/// The inbox's tables, for Postgres and SQLite alike.
pub const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS portero_inbox (
    consumer TEXT NOT NULL,
    receipt_id TEXT NOT NULL,
    event_key TEXT,
    entity TEXT NOT NULL,
    generation BIGINT NOT NULL,
    shard BIGINT NOT NULL,
    position BIGINT NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (consumer, receipt_id),
    UNIQUE (consumer, event_key)
);
CREATE INDEX IF NOT EXISTS portero_inbox_received_at ON portero_inbox (consumer, received_at);
CREATE TABLE IF NOT EXISTS portero_inbox_entity (
    consumer TEXT NOT NULL,
    entity TEXT NOT NULL,
    generation BIGINT NOT NULL,
    shard BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (consumer, entity)
);
";

const INSERT: &str = "\
INSERT INTO portero_inbox
    (consumer, receipt_id, event_key, entity, generation, shard, position, received_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT DO NOTHING";

const FORGOTTEN: &str = "\
SELECT COUNT(*) FROM portero_inbox_entity
WHERE consumer = $1 AND entity = $2 AND (generation, shard, position) >= ($3, $4, $5)";

const FENCE: &str = "\
INSERT INTO portero_inbox_entity (consumer, entity, generation, shard, position)
SELECT consumer, entity, generation, shard, position FROM (
    SELECT consumer, entity, generation, shard, position,
           ROW_NUMBER() OVER (PARTITION BY entity ORDER BY generation DESC, shard DESC, position DESC) AS place
    FROM portero_inbox WHERE consumer = $1 AND received_at < $2
) AS ranked
WHERE place = 1
ON CONFLICT (consumer, entity) DO UPDATE
SET generation = excluded.generation, shard = excluded.shard, position = excluded.position
WHERE (excluded.generation, excluded.shard, excluded.position)
    > (portero_inbox_entity.generation, portero_inbox_entity.shard, portero_inbox_entity.position)";

const DELETE: &str = "DELETE FROM portero_inbox WHERE consumer = $1 AND received_at < $2";

mod sealed {
    pub trait Sealed {}
}

/// A database that can hold an inbox: `sqlx::Postgres` and `sqlx::Sqlite`, by feature. Sealed.
pub trait Dialect: sqlx::Database + sealed::Sealed {
    #[doc(hidden)]
    fn execute(
        tx: &mut Transaction<'_, Self>,
        sql: &'static str,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "nobody else can implement or call it")]
    fn insert(
        tx: &mut Transaction<'_, Self>,
        entry: &Entry<'_>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "nobody else can implement or call it")]
    fn is_forgotten(
        tx: &mut Transaction<'_, Self>,
        entry: &Entry<'_>,
    ) -> impl Future<Output = Result<bool, sqlx::Error>> + Send;
    #[doc(hidden)]
    fn fence(
        tx: &mut Transaction<'_, Self>,
        consumer: &str,
        before: i64,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    #[doc(hidden)]
    fn delete(
        tx: &mut Transaction<'_, Self>,
        consumer: &str,
        before: i64,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

/// The two drivers share no trait that would let one generic function run these statements.
macro_rules! dialect {
    ($database:ty) => {
        impl sealed::Sealed for $database {}

        #[expect(private_interfaces, reason = "nobody else can implement or call it")]
        impl Dialect for $database {
            async fn execute(tx: &mut Transaction<'_, Self>, sql: &'static str) -> Result<(), sqlx::Error> {
                sqlx::query(sql).execute(&mut **tx).await.map(|_| ())
            }

            async fn insert(tx: &mut Transaction<'_, Self>, entry: &Entry<'_>) -> Result<bool, sqlx::Error> {
                let done = sqlx::query(INSERT)
                    .bind(entry.consumer)
                    .bind(entry.receipt_id)
                    .bind(entry.event_key.as_deref())
                    .bind(entry.entity.as_str())
                    .bind(entry.generation)
                    .bind(entry.shard)
                    .bind(entry.position)
                    .bind(entry.received_at)
                    .execute(&mut **tx)
                    .await?;
                Ok(done.rows_affected() == 1)
            }

            async fn is_forgotten(
                tx: &mut Transaction<'_, Self>,
                entry: &Entry<'_>,
            ) -> Result<bool, sqlx::Error> {
                let row = sqlx::query(FORGOTTEN)
                    .bind(entry.consumer)
                    .bind(entry.entity.as_str())
                    .bind(entry.generation)
                    .bind(entry.shard)
                    .bind(entry.position)
                    .fetch_one(&mut **tx)
                    .await?;
                Ok(row.try_get::<i64, _>(0)? > 0)
            }

            async fn fence(
                tx: &mut Transaction<'_, Self>,
                consumer: &str,
                before: i64,
            ) -> Result<(), sqlx::Error> {
                sqlx::query(FENCE).bind(consumer).bind(before).execute(&mut **tx).await.map(|_| ())
            }

            async fn delete(
                tx: &mut Transaction<'_, Self>,
                consumer: &str,
                before: i64,
            ) -> Result<u64, sqlx::Error> {
                let done = sqlx::query(DELETE).bind(consumer).bind(before).execute(&mut **tx).await?;
                Ok(done.rows_affected())
            }
        }
    };
}

#[cfg(feature = "inbox-postgres")]
dialect!(sqlx::Postgres);
#[cfg(feature = "inbox-sqlite")]
dialect!(sqlx::Sqlite);
