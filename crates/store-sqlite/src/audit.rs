//! The audit log. There is one writer, so each row sees the one before it.

use async_trait::async_trait;
use portero_store::{
    AUDIT_PAGE_MAX, Actor, AuditEntry, AuditFilter, AuditHash, AuditOrder, AuditStore, NewAuditEntry, Page,
    Result,
};
use portero_types::TenantNo;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use crate::SqliteStore;
use crate::config::{one_more, page};
use crate::error::statement;
use crate::row::{bytes, get, parse, signed, timestamp, unsigned};

/// Entries that a filter lets through; the rest of the statement follows.
macro_rules! filtered {
    ($rest:literal) => {
        concat!(
            "SELECT * FROM audit_log WHERE (?1 IS NULL OR tenant_id = ?1) AND (?2 IS NULL OR tenant_no = ?2) ",
            "AND (?3 IS NULL OR subject = ?3) AND (?4 IS NULL OR action = ?4) ",
            $rest
        )
    };
}

#[async_trait]
impl AuditStore for SqliteStore {
    async fn append(&self, entry: NewAuditEntry) -> Result<()> {
        self.writer.write(move |connection| Box::pin(append_in(connection, entry))).await
    }

    async fn audit_entries(&self, filter: AuditFilter, limit: u32) -> Result<Page<AuditEntry>> {
        let limit = limit.min(AUDIT_PAGE_MAX);
        let sql = match filter.order {
            AuditOrder::OldestFirst => filtered!("AND seq > coalesce(?5, 0) ORDER BY seq LIMIT ?6"),
            AuditOrder::NewestFirst => filtered!("AND (?5 IS NULL OR seq < ?5) ORDER BY seq DESC LIMIT ?6"),
        };
        let rows = sqlx::query(sql)
            .bind(filter.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
            .bind(filter.tenant_no.map(|no| no.0))
            .bind(filter.subject)
            .bind(filter.action)
            .bind(filter.after_seq.map(|seq| signed(seq, "the number")).transpose()?)
            .bind(one_more(limit))
            .fetch_all(self.readers.pool())
            .await
            .map_err(statement)?;
        page(&rows, limit, read)
    }

    async fn audit_head(&self) -> Result<(u64, AuditHash)> {
        let row = sqlx::query(HEAD).fetch_optional(self.readers.pool()).await.map_err(statement)?;
        row.map_or(Ok((0, AuditHash::GENESIS)), |row| head(&row))
    }
}

const HEAD: &str = "SELECT seq, hash FROM audit_log ORDER BY seq DESC LIMIT 1";

/// Appends to the log within the writer's transaction.
pub(crate) async fn append_in(connection: &mut SqliteConnection, entry: NewAuditEntry) -> Result<()> {
    let last = sqlx::query(HEAD).fetch_optional(&mut *connection).await.map_err(statement)?;
    let last = last.map_or(Ok((0, AuditHash::GENESIS)), |row| head(&row))?;
    // A deleted tenant's number is the newest of its name.
    let sql = "SELECT coalesce((SELECT tenant_no FROM tenants WHERE tenant_id = ?1 AND deleted_at IS NULL), \
               (SELECT max(tenant_no) FROM tenants WHERE tenant_id = ?1)) AS tenant_no";
    let row = sqlx::query(sql)
        .bind(entry.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
        .fetch_one(&mut *connection)
        .await
        .map_err(statement)?;
    let entry = entry.following(last, get::<Option<i64>>(&row, "tenant_no")?.map(TenantNo));
    let sql = "INSERT INTO audit_log (seq, changed_at, tenant_no, tenant_id, issuer, subject, action, resource, \
               request_id, reason, view_before, view_after, prev_hash, hash) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    sqlx::query(sql)
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
        .bind(entry.hash.0.as_slice())
        .execute(connection)
        .await
        .map(drop)
        .map_err(statement)
}

fn head(row: &SqliteRow) -> Result<(u64, AuditHash)> {
    Ok((unsigned(row, "seq")?, AuditHash(bytes(row, "hash")?)))
}

fn read(row: &SqliteRow) -> Result<AuditEntry> {
    let tenant = match get::<Option<&str>>(row, "tenant_id")? {
        Some(_) => Some(parse(row, "tenant_id")?),
        None => None,
    };
    Ok(AuditEntry {
        seq: unsigned(row, "seq")?,
        at: timestamp(row, "changed_at")?,
        actor: Actor { issuer: get(row, "issuer")?, subject: get(row, "subject")? },
        action: get(row, "action")?,
        resource: get(row, "resource")?,
        tenant,
        tenant_no: get::<Option<i64>>(row, "tenant_no")?.map(TenantNo),
        request_id: get(row, "request_id")?,
        reason: get(row, "reason")?,
        before: get(row, "view_before")?,
        after: get(row, "view_after")?,
        prev_hash: AuditHash(bytes(row, "prev_hash")?),
        hash: AuditHash(bytes(row, "hash")?),
    })
}
