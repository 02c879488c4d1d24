//! Grants. They name tenants and subscriptions by number, so that what is created again under a name grants nobody anything.

use portero_store::{Change, Grant, NewAuditEntry, NewGrant, Page, Result, Revision};
use portero_types::{GrantId, GrantNo, SubscriptionNo, TenantNo};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::{insert_error, one_more, page, tenant};
use crate::audit::append_in;
use crate::error::{not_found, statement};
use crate::row::{from_json, get, parse, timestamp, unsigned};

/// Grants with the names of their tenants and subscriptions; the rest of the statement follows.
macro_rules! grants {
    ($rest:literal) => {
        concat!(
            "SELECT grants.*, tenants.tenant_id, (",
            "SELECT json_group_array(subscription_id) FROM (",
            "SELECT subscription_id FROM grant_subscriptions ",
            "JOIN subscriptions ON subscriptions.subscription_no = grant_subscriptions.subscription_no ",
            "WHERE grant_subscriptions.grant_no = grants.grant_no ORDER BY subscription_id)) AS subscriptions ",
            "FROM grants LEFT JOIN tenants ON tenants.tenant_no = grants.tenant_no ",
            $rest
        )
    };
}

pub(super) async fn create(
    connection: &mut SqliteConnection,
    mut new: NewGrant,
    change: Change,
) -> Result<Grant> {
    new.check()?;
    new.subscriptions.sort();
    new.subscriptions.dedup();
    let tenant_no = match &new.tenant {
        Some(id) => Some(tenant::find(connection, id).await?.0),
        None => None,
    };
    let sql = "SELECT count(*) AS kept FROM grants WHERE tenant_no IS ?";
    let row = sqlx::query(sql).bind(tenant_no).fetch_one(&mut *connection).await.map_err(statement)?;
    new.check_room(unsigned(&row, "kept")?)?;
    let sql = "INSERT INTO grants (grant_id, tenant_no, issuer, subject, role, created_at) \
               VALUES (?, ?, ?, ?, ?, ?) RETURNING grant_no";
    let row = sqlx::query(sql)
        .bind(new.id.as_str())
        .bind(tenant_no)
        .bind(new.issuer.as_str())
        .bind(new.subject.as_str())
        .bind(new.role.as_str())
        .bind(new.created_at.as_micros())
        .fetch_one(&mut *connection)
        .await
        .map_err(insert_error)?;
    let no: i64 = get(&row, "grant_no")?;
    for id in &new.subscriptions {
        let sql = "INSERT INTO grant_subscriptions (grant_no, subscription_no) \
                   SELECT ?, subscription_no FROM subscriptions WHERE subscription_id = ?";
        let query = sqlx::query(sql).bind(no).bind(id.as_str());
        if query.execute(&mut *connection).await.map_err(statement)?.rows_affected() == 0 {
            return Err(not_found("subscription"));
        }
    }
    let grant = Grant {
        no: GrantNo(no),
        id: new.id,
        issuer: new.issuer,
        subject: new.subject,
        role: new.role,
        tenant: new.tenant,
        subscriptions: new.subscriptions,
        created_at: new.created_at,
    };
    append_in(connection, NewAuditEntry::grant(&change, "CreateGrant", None, Some(&grant))).await?;
    Ok(grant)
}

pub(super) async fn get_one(pool: &SqlitePool, id: &GrantId) -> Result<Option<Grant>> {
    let query = sqlx::query(grants!("WHERE grant_id = ?")).bind(id.as_str());
    query.fetch_optional(pool).await.map_err(statement)?.map(|row| grant(&row)).transpose()
}

pub(super) async fn list(pool: &SqlitePool, after: Option<&GrantId>, limit: u32) -> Result<Page<Grant>> {
    let rows = sqlx::query(grants!("WHERE grant_id > ? ORDER BY grant_id LIMIT ?"))
        .bind(after.map_or("", GrantId::as_str))
        .bind(one_more(limit))
        .fetch_all(pool)
        .await
        .map_err(statement)?;
    page(&rows, limit, grant)
}

/// Every grant.
pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Grant>> {
    let rows = sqlx::query(grants!("ORDER BY grant_id")).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(grant).collect()
}

/// Those whose last change is later than a revision.
pub(super) async fn changed(connection: &mut SqliteConnection, since: Revision) -> Result<Vec<Grant>> {
    let query = sqlx::query(grants!("WHERE grants.revision > ?")).bind(since.0);
    query.fetch_all(connection).await.map_err(statement)?.iter().map(grant).collect()
}

pub(super) async fn delete(connection: &mut SqliteConnection, id: GrantId, change: Change) -> Result<()> {
    let query = sqlx::query(grants!("WHERE grant_id = ?")).bind(id.as_str());
    let row = query.fetch_optional(&mut *connection).await.map_err(statement)?;
    let found = row.as_ref().map(grant).transpose()?.filter(|found| change.concerns(found.tenant.as_ref()));
    remove(connection, &found.ok_or_else(|| not_found("grant"))?, &change).await
}

async fn remove(connection: &mut SqliteConnection, grant: &Grant, change: &Change) -> Result<()> {
    let query = sqlx::query("DELETE FROM grants WHERE grant_no = ?").bind(grant.no.0);
    query.execute(&mut *connection).await.map_err(statement)?;
    append_in(connection, NewAuditEntry::grant(change, "DeleteGrant", Some(grant), None)).await
}

/// Deletes the grants of a tenant that goes.
pub(super) async fn delete_of_tenant(
    connection: &mut SqliteConnection,
    no: TenantNo,
    change: &Change,
) -> Result<()> {
    let query = sqlx::query(grants!("WHERE grants.tenant_no = ? ORDER BY grant_id")).bind(no.0);
    for row in query.fetch_all(&mut *connection).await.map_err(statement)? {
        remove(connection, &grant(&row)?, change).await?;
    }
    Ok(())
}

/// Takes a subscription that goes out of the grants that name it. A consumer's grant goes with its last one.
pub(super) async fn forget_subscription(
    connection: &mut SqliteConnection,
    no: SubscriptionNo,
    change: &Change,
) -> Result<()> {
    let named = grants!(
        "WHERE grants.grant_no IN (SELECT grant_no FROM grant_subscriptions WHERE subscription_no = ?) ORDER BY grant_id"
    );
    let found = sqlx::query(named).bind(no.0).fetch_all(&mut *connection).await.map_err(statement)?;
    let take = sqlx::query("DELETE FROM grant_subscriptions WHERE subscription_no = ?").bind(no.0);
    take.execute(&mut *connection).await.map_err(statement)?;
    for before in found.iter().map(grant) {
        let before = before?;
        let query = sqlx::query(grants!("WHERE grants.grant_no = ?")).bind(before.no.0);
        let after = grant(&query.fetch_one(&mut *connection).await.map_err(statement)?)?;
        if after.subscriptions.is_empty() {
            remove(connection, &before, change).await?;
        } else {
            let entry = NewAuditEntry::grant(change, "UpdateGrant", Some(&before), Some(&after));
            append_in(connection, entry).await?;
        }
    }
    Ok(())
}

fn grant(row: &SqliteRow) -> Result<Grant> {
    let tenant = match get::<Option<i64>>(row, "tenant_no")? {
        Some(_) => Some(parse(row, "tenant_id")?),
        None => None,
    };
    Ok(Grant {
        no: GrantNo(get(row, "grant_no")?),
        id: parse(row, "grant_id")?,
        issuer: get(row, "issuer")?,
        subject: get(row, "subject")?,
        role: get(row, "role")?,
        tenant,
        subscriptions: from_json(row, "subscriptions")?,
        created_at: timestamp(row, "created_at")?,
    })
}
