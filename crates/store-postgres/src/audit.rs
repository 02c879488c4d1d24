//! The audit log. Rows are appended under the lock of the configuration's revision, which every change of configuration holds,
//! so that each sees the one before it.

use async_trait::async_trait;
use portero_store::{
    AUDIT_PAGE_MAX, Actor, AuditEntry, AuditFilter, AuditHash, AuditOrder, AuditStore, NewAuditEntry, Page,
    Result,
};
use portero_types::{TenantNo, Timestamp};
use sqlx::postgres::PgRow;

use crate::PostgresStore;
use crate::config::{one, one_more, page};
use crate::error::{Effect, corrupt};
use crate::lease::{Tx, rows};
use crate::row::{get, parse, signed, unsigned};

/// Entries that a filter lets through; the rest of the statement follows.
macro_rules! filtered {
    ($rest:literal) => {
        concat!(
            "SELECT * FROM audit_log
             WHERE ($1::text IS NULL OR tenant_id = $1) AND ($2::bigint IS NULL OR tenant_no = $2)
               AND ($3::text IS NULL OR subject = $3) AND ($4::text IS NULL OR action = $4) ",
            $rest
        )
    };
}

#[async_trait]
impl AuditStore for PostgresStore {
    async fn append(&self, entry: NewAuditEntry) -> Result<()> {
        let mut tx = Tx::begin(&self.pools.admin).await?;
        let outcome = async {
            lock(&mut tx).await?;
            append_in(&mut tx, entry).await
        };
        match outcome.await {
            Ok(()) => tx.commit().await,
            Err(error) => {
                tx.roll_back().await;
                Err(error)
            }
        }
    }

    async fn audit_entries(&self, filter: AuditFilter, limit: u32) -> Result<Page<AuditEntry>> {
        let limit = limit.min(AUDIT_PAGE_MAX);
        let sql = match filter.order {
            AuditOrder::OldestFirst => filtered!("AND seq > coalesce($5, 0) ORDER BY seq LIMIT $6"),
            AuditOrder::NewestFirst => {
                filtered!("AND ($5::bigint IS NULL OR seq < $5) ORDER BY seq DESC LIMIT $6")
            }
        };
        let query = sqlx::query(sql)
            .bind(filter.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
            .bind(filter.tenant_no.map(|no| no.0))
            .bind(filter.subject)
            .bind(filter.action)
            .bind(filter.after_seq.map(|seq| signed(seq, "the number")).transpose()?)
            .bind(one_more(limit));
        page(&rows(&self.pools.admin, query, Effect::None).await?, limit, read)
    }

    async fn audit_head(&self) -> Result<(u64, AuditHash)> {
        let query = sqlx::query("SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1");
        let found = rows(&self.pools.admin, query, Effect::None).await?;
        let head = one(&found, |row| Ok((unsigned(row, "seq")?, hash(row, "hash")?)))?;
        Ok(head.unwrap_or((0, AuditHash::GENESIS)))
    }
}

/// Locks the row of `config_revision`, for what appends to the log and changes no configuration.
pub(crate) async fn lock(tx: &mut Tx) -> Result<()> {
    tx.rows(sqlx::query("SELECT revision FROM config_revision FOR UPDATE")).await.map(|_| ())
}

/// Appends to the log within a transaction that holds the row of `config_revision`.
pub(crate) async fn append_in(tx: &mut Tx, entry: NewAuditEntry) -> Result<()> {
    // A deleted tenant's number is the newest of its name.
    let last = sqlx::query(
        "SELECT l.seq, l.hash, coalesce(
                    (SELECT tenant_no FROM tenants WHERE tenant_id = $1 AND deleted_at IS NULL),
                    (SELECT max(tenant_no) FROM tenants WHERE tenant_id = $1)) AS tenant_no
         FROM (SELECT) one LEFT JOIN (SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1) l ON true",
    )
    .bind(entry.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()));
    let found = tx.rows(last).await?;
    let row = found.first().ok_or_else(|| corrupt("audit_log"))?;
    let head = match get::<Option<i64>>(row, "seq")? {
        Some(_) => (unsigned(row, "seq")?, hash(row, "hash")?),
        None => (0, AuditHash::GENESIS),
    };
    let entry = entry.following(head, get::<Option<i64>>(row, "tenant_no")?.map(TenantNo));
    let insert = sqlx::query(
        "INSERT INTO audit_log (seq, changed_at, tenant_no, tenant_id, issuer, subject, action, resource, request_id,
                                reason, view_before, view_after, prev_hash, hash)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
    )
    .bind(signed(entry.seq, "the number")?)
    .bind(entry.at.as_micros())
    .bind(entry.tenant_no.map(|no| no.0))
    .bind(entry.tenant.as_ref().map(|tenant| tenant.as_str()))
    .bind(entry.actor.issuer.as_str())
    .bind(entry.actor.subject.as_str())
    .bind(entry.action.as_str())
    .bind(entry.resource.as_str())
    .bind(entry.request_id.as_str())
    .bind(entry.reason.as_deref())
    .bind(entry.before.as_deref())
    .bind(entry.after.as_deref())
    .bind(entry.prev_hash.0.as_slice())
    .bind(entry.hash.0.as_slice());
    tx.rows(insert).await.map(|_| ())
}

fn read(row: &PgRow) -> Result<AuditEntry> {
    let tenant = match get::<Option<&str>>(row, "tenant_id")? {
        Some(_) => Some(parse(row, "tenant_id")?),
        None => None,
    };
    Ok(AuditEntry {
        seq: unsigned(row, "seq")?,
        at: Timestamp::from_micros(get(row, "changed_at")?),
        actor: Actor { issuer: get(row, "issuer")?, subject: get(row, "subject")? },
        action: get(row, "action")?,
        resource: get(row, "resource")?,
        tenant,
        tenant_no: get::<Option<i64>>(row, "tenant_no")?.map(TenantNo),
        request_id: get(row, "request_id")?,
        reason: get(row, "reason")?,
        before: get(row, "view_before")?,
        after: get(row, "view_after")?,
        prev_hash: hash(row, "prev_hash")?,
        hash: hash(row, "hash")?,
    })
}

fn hash(row: &PgRow, column: &'static str) -> Result<AuditHash> {
    get::<&[u8]>(row, column)?.try_into().map(AuditHash).map_err(|_| corrupt(column))
}
