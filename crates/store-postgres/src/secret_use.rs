//! How often secrets verify. Counters are rows of their own, so that they never wait for a change of configuration.

use async_trait::async_trait;
use portero_store::{Day, Result, RetiringInUse, SecretUsage, SecretUse, SecretUseStore};
use portero_types::{SecretNo, Timestamp};
use sqlx::postgres::PgRow;

use crate::PostgresStore;
use crate::error::{Effect, corrupt};
use crate::lease::rows;
use crate::row::{get, parse, signed, unsigned};

#[async_trait]
impl SecretUseStore for PostgresStore {
    /// Rows are written in the order of their keys, like everywhere, and each once.
    async fn record_secret_uses(&self, uses: &[SecretUse]) -> Result<()> {
        if uses.is_empty() {
            return Ok(());
        }
        let counts = uses.iter().map(|used| signed(used.uses, "uses")).collect::<Result<Vec<i64>>>()?;
        let query = sqlx::query(
            "WITH given AS MATERIALIZED (
                 SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[])
                          AS g (secret_no, day, uses, first_at, last_at)
             ), days AS (
                 INSERT INTO secret_uses AS d (secret_no, day, uses)
                 SELECT secret_no, day, sum(uses) FROM given GROUP BY secret_no, day ORDER BY secret_no, day
                 ON CONFLICT (secret_no, day) DO UPDATE SET uses = d.uses + excluded.uses
             )
             INSERT INTO secret_usage AS u (secret_no, uses, first_used_at, last_used_at)
             SELECT secret_no, sum(uses), min(first_at), max(last_at) FROM given GROUP BY secret_no ORDER BY secret_no
             ON CONFLICT (secret_no) DO UPDATE
             SET uses = u.uses + excluded.uses, first_used_at = least(u.first_used_at, excluded.first_used_at),
                 last_used_at = greatest(u.last_used_at, excluded.last_used_at)",
        )
        .bind(uses.iter().map(|used| used.secret_no.0).collect::<Vec<_>>())
        .bind(uses.iter().map(|used| used.day.0).collect::<Vec<_>>())
        .bind(counts)
        .bind(uses.iter().map(|used| used.first_at.as_micros()).collect::<Vec<_>>())
        .bind(uses.iter().map(|used| used.last_at.as_micros()).collect::<Vec<_>>());
        rows(&self.pools.admin, query, Effect::Commits).await.map(drop)
    }

    async fn secret_usage(&self, secrets: &[SecretNo]) -> Result<Vec<SecretUsage>> {
        let query = sqlx::query(
            "SELECT u.*, array(SELECT d.day FROM secret_uses d WHERE d.secret_no = u.secret_no ORDER BY d.day) AS days,
                    array(SELECT d.uses FROM secret_uses d WHERE d.secret_no = u.secret_no ORDER BY d.day) AS day_uses
             FROM secret_usage u WHERE u.secret_no = ANY ($1) ORDER BY u.secret_no",
        )
        .bind(secrets.iter().map(|no| no.0).collect::<Vec<_>>());
        rows(&self.pools.admin, query, Effect::None).await?.iter().map(usage).collect()
    }

    async fn retiring_in_use(
        &self,
        now: Timestamp,
        ends_before: Timestamp,
        used_since: Timestamp,
        limit: u32,
    ) -> Result<Vec<RetiringInUse>> {
        let query = sqlx::query(
            "SELECT t.tenant_id, s.source_id, k.secret_id, k.not_after, u.last_used_at
             FROM secrets k JOIN secret_usage u USING (secret_no) JOIN sources s USING (source_no)
                  JOIN tenants t USING (tenant_no)
             WHERE k.not_after > $1 AND k.not_after < $2 AND k.revoked_at IS NULL AND u.last_used_at >= $3
               AND s.deleted_at IS NULL AND t.deleted_at IS NULL
             ORDER BY k.not_after, k.secret_no LIMIT $4",
        )
        .bind(now.as_micros())
        .bind(ends_before.as_micros())
        .bind(used_since.as_micros())
        .bind(i64::from(limit));
        rows(&self.pools.admin, query, Effect::None).await?.iter().map(retiring).collect()
    }

    async fn sweep_secret_uses(&self, day: Day) -> Result<()> {
        let query = sqlx::query(
            "WITH days AS (DELETE FROM secret_uses WHERE day < $1), gone AS (
                 DELETE FROM revoked_secrets x
                 WHERE x.revoked_at < $2 AND NOT EXISTS (SELECT FROM secrets k WHERE k.secret_no = x.secret_no)
             )
             DELETE FROM secret_usage WHERE last_used_at < $2",
        )
        .bind(day.0)
        .bind(day.begin().as_micros());
        rows(&self.pools.admin, query, Effect::Commits).await.map(drop)
    }
}

fn usage(row: &PgRow) -> Result<SecretUsage> {
    let days: Vec<i32> = get(row, "days")?;
    let uses: Vec<i64> = get(row, "day_uses")?;
    let pair = |(day, uses): (i32, i64)| match u64::try_from(uses) {
        Ok(uses) => Ok((Day(day), uses)),
        Err(_) => Err(corrupt("secret_uses.uses")),
    };
    Ok(SecretUsage {
        secret_no: SecretNo(get(row, "secret_no")?),
        first_used_at: Timestamp::from_micros(get(row, "first_used_at")?),
        last_used_at: Timestamp::from_micros(get(row, "last_used_at")?),
        uses: unsigned(row, "uses")?,
        days: days.into_iter().zip(uses).map(pair).collect::<Result<_>>()?,
    })
}

fn retiring(row: &PgRow) -> Result<RetiringInUse> {
    Ok(RetiringInUse {
        tenant: parse(row, "tenant_id")?,
        source: parse(row, "source_id")?,
        secret: parse(row, "secret_id")?,
        not_after: Timestamp::from_micros(get(row, "not_after")?),
        last_used_at: Timestamp::from_micros(get(row, "last_used_at")?),
    })
}
