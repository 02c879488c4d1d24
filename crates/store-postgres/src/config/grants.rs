//! Grants. They name tenants and subscriptions by number, so that what is created again under a name grants nobody anything.

use portero_store::{Change, Grant, NewAuditEntry, NewGrant, Page, Result, Revision};
use portero_types::{GrantId, GrantNo, SubscriptionId, Timestamp};
use sqlx::postgres::PgRow;

use super::{Changing, not_found, one, one_more, page};
use crate::error::{Effect, corrupt};
use crate::lease::{PgQuery, rows};
use crate::pools::Pool;
use crate::row::{get, parse, unsigned};

/// Grants with the names of their tenants and subscriptions; the rest of the statement follows.
macro_rules! named {
    ($rest:literal) => {
        concat!(
            "SELECT g.*, t.tenant_id,
                    ARRAY(SELECT u.subscription_id FROM grant_subscriptions s JOIN subscriptions u USING (subscription_no)
                          WHERE s.grant_no = g.grant_no ORDER BY u.subscription_id) AS subscriptions
             FROM grants g LEFT JOIN tenants t USING (tenant_no) ",
            $rest
        )
    };
}

pub(super) fn read(row: &PgRow) -> Result<Grant> {
    let tenant = match get::<Option<i64>>(row, "tenant_no")? {
        Some(_) => Some(parse(row, "tenant_id")?),
        None => None,
    };
    let subscriptions: Vec<String> = get(row, "subscriptions")?;
    let subscriptions = subscriptions.into_iter().map(SubscriptionId::new);
    Ok(Grant {
        no: GrantNo(get(row, "grant_no")?),
        id: parse(row, "grant_id")?,
        issuer: get(row, "issuer")?,
        subject: get(row, "subject")?,
        role: get(row, "role")?,
        tenant,
        subscriptions: subscriptions
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| corrupt("subscriptions.subscription_id"))?,
        created_at: Timestamp::from_micros(get(row, "created_at")?),
    })
}

pub(super) fn all() -> PgQuery<'static> {
    sqlx::query(named!("ORDER BY g.grant_id"))
}

/// Those whose last change is later than a revision.
pub(super) fn changed(since: Revision) -> PgQuery<'static> {
    sqlx::query(named!("WHERE g.revision > $1")).bind(since.0)
}

pub(super) async fn create(pool: &Pool, grant: NewGrant, change: &Change) -> Result<Grant> {
    grant.check()?;
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = create_in(&mut changing, grant).await;
    changing.end(outcome).await
}

async fn create_in(changing: &mut Changing, mut new: NewGrant) -> Result<Grant> {
    check_room(changing, &new).await?;
    new.subscriptions.sort();
    new.subscriptions.dedup();
    let insert = sqlx::query(
        "INSERT INTO grants (grant_id, tenant_no, issuer, subject, role, created_at)
         SELECT $1, t.tenant_no, $3, $4, $5, $6
         FROM (SELECT tenant_no FROM tenants WHERE tenant_id = $2 AND deleted_at IS NULL
               UNION ALL SELECT NULL WHERE $2 IS NULL) t
         RETURNING grant_no",
    )
    .bind(new.id.as_str())
    .bind(new.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
    .bind(new.issuer.as_str())
    .bind(new.subject.as_str())
    .bind(new.role.as_str())
    .bind(new.created_at.as_micros());
    let row = changing.create(insert, "grant", "tenant").await?;
    let no: i64 = get(&row, "grant_no")?;
    let names: Vec<String> = new.subscriptions.iter().map(|id| id.as_str().to_owned()).collect();
    let name = sqlx::query(
        "INSERT INTO grant_subscriptions (grant_no, subscription_no)
         SELECT $1, subscription_no FROM subscriptions WHERE subscription_id = ANY ($2)
         RETURNING subscription_no",
    );
    if changing.rows(name.bind(no).bind(&names)).await?.len() < names.len() {
        return Err(not_found("subscription"));
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
    changing.record(NewAuditEntry::grant(&changing.change, "CreateGrant", None, Some(&grant))).await?;
    Ok(grant)
}

/// Changes are serial, so nobody adds one in between.
async fn check_room(changing: &mut Changing, new: &NewGrant) -> Result<()> {
    let query = sqlx::query(
        "SELECT count(*) AS kept FROM grants WHERE ($1::text IS NULL AND tenant_no IS NULL)
         OR tenant_no = (SELECT tenant_no FROM tenants WHERE tenant_id = $1 AND deleted_at IS NULL)",
    )
    .bind(new.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()));
    let found = changing.rows(query).await?;
    let row = found.first().ok_or_else(|| corrupt("grants"))?;
    new.check_room(unsigned(row, "kept")?)
}

pub(super) async fn get_one(pool: &Pool, id: &GrantId) -> Result<Option<Grant>> {
    let query = sqlx::query(named!("WHERE g.grant_id = $1")).bind(id.as_str());
    one(&rows(pool, query, Effect::None).await?, read)
}

pub(super) async fn list(pool: &Pool, after: Option<&GrantId>, limit: u32) -> Result<Page<Grant>> {
    let query = sqlx::query(named!("WHERE g.grant_id > $1 ORDER BY g.grant_id LIMIT $2"))
        .bind(after.map_or("", GrantId::as_str))
        .bind(one_more(limit));
    page(&rows(pool, query, Effect::None).await?, limit, read)
}

pub(super) async fn delete(pool: &Pool, id: &GrantId, change: &Change) -> Result<()> {
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = delete_in(&mut changing, id).await;
    changing.end(outcome).await
}

async fn delete_in(changing: &mut Changing, id: &GrantId) -> Result<()> {
    let found = changing.rows(sqlx::query(named!("WHERE g.grant_id = $1")).bind(id.as_str())).await?;
    let grant = one(&found, read)?.filter(|found| changing.change.concerns(found.tenant.as_ref()));
    remove(changing, &grant.ok_or_else(|| not_found("grant"))?).await
}

async fn remove(changing: &mut Changing, grant: &Grant) -> Result<()> {
    changing.rows(sqlx::query("DELETE FROM grants WHERE grant_no = $1").bind(grant.no.0)).await?;
    changing.record(NewAuditEntry::grant(&changing.change, "DeleteGrant", Some(grant), None)).await
}

/// Deletes the grants of a tenant that goes.
pub(super) async fn delete_of_tenant(changing: &mut Changing, tenant_no: i64) -> Result<()> {
    let query = sqlx::query(named!("WHERE g.tenant_no = $1 ORDER BY g.grant_id"));
    let found = changing.rows(query.bind(tenant_no)).await?;
    for grant in found.iter().map(read) {
        remove(changing, &grant?).await?;
    }
    Ok(())
}

/// Takes a subscription that goes out of the grants that name it. A consumer's grant goes with its last one.
pub(super) async fn forget_subscription(changing: &mut Changing, subscription_no: i64) -> Result<()> {
    let query = sqlx::query(named!(
        "WHERE EXISTS (SELECT FROM grant_subscriptions s WHERE s.grant_no = g.grant_no AND s.subscription_no = $1)
         ORDER BY g.grant_id"
    ));
    let found = changing.rows(query.bind(subscription_no)).await?;
    let take = sqlx::query("DELETE FROM grant_subscriptions WHERE subscription_no = $1");
    changing.rows(take.bind(subscription_no)).await?;
    for before in found.iter().map(read) {
        let before = before?;
        let after = changing.rows(sqlx::query(named!("WHERE g.grant_no = $1")).bind(before.no.0)).await?;
        let after = one(&after, read)?.ok_or_else(|| corrupt("grants"))?;
        if after.subscriptions.is_empty() {
            remove(changing, &before).await?;
        } else {
            let entry = NewAuditEntry::grant(&changing.change, "UpdateGrant", Some(&before), Some(&after));
            changing.record(entry).await?;
        }
    }
    Ok(())
}
