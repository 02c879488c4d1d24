//! How often secrets verify.

use async_trait::async_trait;
use portero_store::{Day, Result, RetiringInUse, SecretUsage, SecretUse, SecretUseStore};
use portero_types::{SecretNo, Timestamp};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use crate::SqliteStore;
use crate::error::{corrupt, statement};
use crate::row::{get, parse, signed, timestamp, unsigned};

#[async_trait]
impl SecretUseStore for SqliteStore {
    async fn record_secret_uses(&self, uses: &[SecretUse]) -> Result<()> {
        if uses.is_empty() {
            return Ok(());
        }
        let uses = uses.to_vec();
        self.writer.write(move |connection| Box::pin(record(connection, uses))).await
    }

    async fn secret_usage(&self, secrets: &[SecretNo]) -> Result<Vec<SecretUsage>> {
        let secrets = secrets.to_vec();
        self.readers.snapshot(move |connection| Box::pin(usage(connection, secrets))).await
    }

    async fn retiring_in_use(
        &self,
        now: Timestamp,
        ends_before: Timestamp,
        used_since: Timestamp,
        limit: u32,
    ) -> Result<Vec<RetiringInUse>> {
        let sql = "SELECT t.tenant_id, s.source_id, k.secret_id, k.not_after, u.last_used_at \
                   FROM secrets k JOIN secret_usage u USING (secret_no) JOIN sources s USING (source_no) \
                   JOIN tenants t USING (tenant_no) \
                   WHERE k.not_after > ? AND k.not_after < ? AND k.revoked_at IS NULL AND u.last_used_at >= ? \
                   AND s.deleted_at IS NULL AND t.deleted_at IS NULL ORDER BY k.not_after, k.secret_no LIMIT ?";
        let rows = sqlx::query(sql)
            .bind(now.as_micros())
            .bind(ends_before.as_micros())
            .bind(used_since.as_micros())
            .bind(limit)
            .fetch_all(self.readers.pool())
            .await
            .map_err(statement)?;
        rows.iter().map(retiring).collect()
    }

    async fn sweep_secret_uses(&self, day: Day) -> Result<()> {
        self.writer.write(move |connection| Box::pin(sweep(connection, day))).await
    }
}

async fn record(connection: &mut SqliteConnection, uses: Vec<SecretUse>) -> Result<()> {
    for used in uses {
        let count = signed(used.uses, "uses")?;
        let sql = "INSERT INTO secret_uses AS d (secret_no, day, uses) VALUES (?, ?, ?) \
                   ON CONFLICT (secret_no, day) DO UPDATE SET uses = d.uses + excluded.uses";
        let day = sqlx::query(sql).bind(used.secret_no.0).bind(used.day.0).bind(count);
        day.execute(&mut *connection).await.map_err(statement)?;
        let sql = "INSERT INTO secret_usage AS u (secret_no, uses, first_used_at, last_used_at) VALUES (?, ?, ?, ?) \
                   ON CONFLICT (secret_no) DO UPDATE SET uses = u.uses + excluded.uses, \
                   first_used_at = min(u.first_used_at, excluded.first_used_at), \
                   last_used_at = max(u.last_used_at, excluded.last_used_at)";
        let sum = sqlx::query(sql)
            .bind(used.secret_no.0)
            .bind(count)
            .bind(used.first_at.as_micros())
            .bind(used.last_at.as_micros());
        sum.execute(&mut *connection).await.map_err(statement)?;
    }
    Ok(())
}

async fn usage(connection: &mut SqliteConnection, mut secrets: Vec<SecretNo>) -> Result<Vec<SecretUsage>> {
    secrets.sort_unstable();
    secrets.dedup();
    let mut found = Vec::new();
    for no in secrets {
        let sum = sqlx::query("SELECT * FROM secret_usage WHERE secret_no = ?").bind(no.0);
        let Some(sum) = sum.fetch_optional(&mut *connection).await.map_err(statement)? else { continue };
        let days =
            sqlx::query("SELECT day, uses FROM secret_uses WHERE secret_no = ? ORDER BY day").bind(no.0);
        let days = days.fetch_all(&mut *connection).await.map_err(statement)?;
        found.push(SecretUsage {
            secret_no: no,
            first_used_at: timestamp(&sum, "first_used_at")?,
            last_used_at: timestamp(&sum, "last_used_at")?,
            uses: unsigned(&sum, "uses")?,
            days: days.iter().map(day).collect::<Result<_>>()?,
        });
    }
    Ok(found)
}

fn day(row: &SqliteRow) -> Result<(Day, u64)> {
    let day = i32::try_from(get::<i64>(row, "day")?).map_err(|_| corrupt("secret_uses.day"))?;
    Ok((Day(day), unsigned(row, "uses")?))
}

fn retiring(row: &SqliteRow) -> Result<RetiringInUse> {
    Ok(RetiringInUse {
        tenant: parse(row, "tenant_id")?,
        source: parse(row, "source_id")?,
        secret: parse(row, "secret_id")?,
        not_after: timestamp(row, "not_after")?,
        last_used_at: timestamp(row, "last_used_at")?,
    })
}

async fn sweep(connection: &mut SqliteConnection, day: Day) -> Result<()> {
    let days = sqlx::query("DELETE FROM secret_uses WHERE day < ?").bind(day.0);
    days.execute(&mut *connection).await.map_err(statement)?;
    let sums = sqlx::query("DELETE FROM secret_usage WHERE last_used_at < ?").bind(day.begin().as_micros());
    sums.execute(&mut *connection).await.map_err(statement)?;
    let gone = sqlx::query(
        "DELETE FROM revoked_secrets WHERE revoked_at < ? AND secret_no NOT IN (SELECT secret_no FROM secrets)",
    );
    gone.bind(day.begin().as_micros()).execute(connection).await.map(drop).map_err(statement)
}
