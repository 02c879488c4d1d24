//! Subscriptions.

use portero_store::{
    Change, DeadLetterPolicy, Name, NewAuditEntry, NewSubscription, Page, Result, Revision, StartAt,
    Subscription, SubscriptionUpdate,
};
use portero_types::{LaneCount, SubscriptionId, SubscriptionNo};
use sqlx::sqlite::SqliteRow;
use sqlx::{SqliteConnection, SqlitePool};

use super::{failed_precondition, insert_error, one_more, page, tenant};
use crate::audit::append_in;
use crate::error::{corrupt, not_found, statement};
use crate::log::json;
use crate::row::{from_json, get, parse, signed, timestamp, unsigned};

/// Subscriptions with the name of their tenant; a condition follows.
macro_rules! subscriptions {
    ($rest:literal) => {
        concat!(
            "SELECT subscriptions.*, tenants.tenant_id FROM subscriptions ",
            "LEFT JOIN tenants ON tenants.tenant_no = subscriptions.tenant_no ",
            $rest
        )
    };
}

pub(super) async fn create(
    connection: &mut SqliteConnection,
    new: NewSubscription,
    change: Change,
) -> Result<Subscription> {
    let tenant_no = match &new.tenant {
        Some(id) => Some(tenant::find(connection, id).await?.0),
        None => None,
    };
    let sql = "SELECT count(*) AS subscriptions FROM subscriptions WHERE tenant_no = ?";
    let row = sqlx::query(sql).bind(tenant_no).fetch_one(&mut *connection).await.map_err(statement)?;
    new.check_room(unsigned(&row, "subscriptions")?)?;
    let starts_after = starts_after(connection, new.start_at).await?;
    if usize::from(new.lanes.get()) < starts_after.len() {
        let shards = starts_after.len();
        return Err(failed_precondition(format!(
            "a subscription needs at least {shards} lanes, one for each shard"
        )));
    }
    let sql = "INSERT INTO subscriptions (subscription_id, tenant_no, sources, event_types, lanes, attempts_max, \
               defer_deadline_ms, dead_letter_policy, starts_after, created_at) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING subscription_no";
    let row = sqlx::query(sql)
        .bind(new.id.as_str())
        .bind(tenant_no)
        .bind(json(&new.sources))
        .bind(json(&new.event_types))
        .bind(new.lanes.get())
        .bind(new.attempts_max)
        .bind(signed(new.defer_deadline_ms, "the deadline")?)
        .bind(new.dead_letter_policy.name())
        .bind(json(&starts_after))
        .bind(new.created_at.as_micros())
        .fetch_one(&mut *connection)
        .await
        .map_err(insert_error)?;
    let created = Subscription {
        no: SubscriptionNo(get(&row, "subscription_no")?),
        id: new.id,
        tenant: new.tenant,
        sources: new.sources,
        event_types: new.event_types,
        lanes: new.lanes,
        attempts_max: new.attempts_max,
        defer_deadline_ms: new.defer_deadline_ms,
        dead_letter_policy: new.dead_letter_policy,
        starts_after,
        expired: 0,
        created_at: new.created_at,
    };
    append_in(connection, NewAuditEntry::subscription(&change, "CreateSubscription", None, Some(&created)))
        .await?;
    Ok(created)
}

pub(super) async fn update(
    connection: &mut SqliteConnection,
    update: SubscriptionUpdate,
    change: Change,
) -> Result<Subscription> {
    let before = find(connection, &update.id, &change).await?;
    let sql = "UPDATE subscriptions SET attempts_max = coalesce(?, attempts_max), \
               defer_deadline_ms = coalesce(?, defer_deadline_ms), \
               dead_letter_policy = coalesce(?, dead_letter_policy) \
               WHERE subscription_id = ? RETURNING subscription_no";
    let deadline = update.defer_deadline_ms.map(|deadline| signed(deadline, "the deadline")).transpose()?;
    let row = sqlx::query(sql)
        .bind(update.attempts_max)
        .bind(deadline)
        .bind(update.dead_letter_policy.map(DeadLetterPolicy::name))
        .bind(update.id.as_str())
        .fetch_optional(&mut *connection)
        .await
        .map_err(statement)?;
    let no = get(&row.ok_or_else(|| not_found("subscription"))?, "subscription_no")?;
    let after = by_no(connection, SubscriptionNo(no)).await?;
    let entry = NewAuditEntry::subscription(&change, "UpdateSubscription", Some(&before), Some(&after));
    append_in(connection, entry).await?;
    Ok(after)
}

/// The subscription, as a change finds it.
async fn find(
    connection: &mut SqliteConnection,
    id: &SubscriptionId,
    change: &Change,
) -> Result<Subscription> {
    let query = sqlx::query(subscriptions!("WHERE subscription_id = ?")).bind(id.as_str());
    let row = query.fetch_optional(connection).await.map_err(statement)?;
    let found = row.as_ref().map(subscription).transpose()?;
    found.filter(|found| change.concerns(found.tenant.as_ref())).ok_or_else(|| not_found("subscription"))
}

/// Position of each shard after which a subscription begins that is created now.
async fn starts_after(connection: &mut SqliteConnection, start_at: StartAt) -> Result<Vec<u64>> {
    let sql = match start_at {
        StartAt::Latest => "SELECT head AS starts_after FROM log_heads ORDER BY shard",
        StartAt::Earliest => {
            "SELECT coalesce((SELECT min(position) - 1 FROM log WHERE log.shard = log_heads.shard), head) AS starts_after \
             FROM log_heads ORDER BY shard"
        }
    };
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(|row| unsigned(row, "starts_after")).collect()
}

pub(super) async fn get_one(pool: &SqlitePool, id: &SubscriptionId) -> Result<Option<Subscription>> {
    let sql = subscriptions!("WHERE subscription_id = ?");
    let row = sqlx::query(sql).bind(id.as_str()).fetch_optional(pool).await.map_err(statement)?;
    row.map(|row| subscription(&row)).transpose()
}

/// A subscription by its row number.
pub(crate) async fn by_no(connection: &mut SqliteConnection, no: SubscriptionNo) -> Result<Subscription> {
    let sql = subscriptions!("WHERE subscription_no = ?");
    let row = sqlx::query(sql).bind(no.0).fetch_optional(connection).await.map_err(statement)?;
    subscription(&row.ok_or_else(|| not_found("subscription"))?)
}

pub(super) async fn list(
    pool: &SqlitePool,
    after: Option<&SubscriptionId>,
    limit: u32,
) -> Result<Page<Subscription>> {
    let rows = sqlx::query(subscriptions!("WHERE subscription_id > ? ORDER BY subscription_id LIMIT ?"))
        .bind(after.map_or("", SubscriptionId::as_str))
        .bind(one_more(limit))
        .fetch_all(pool)
        .await
        .map_err(statement)?;
    page(&rows, limit, subscription)
}

/// Every subscription.
pub(crate) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Subscription>> {
    let sql = subscriptions!("ORDER BY subscription_id");
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(subscription).collect()
}

/// Those whose last change is later than a revision.
pub(super) async fn changed(connection: &mut SqliteConnection, since: Revision) -> Result<Vec<Subscription>> {
    let sql = subscriptions!("WHERE subscriptions.revision > ?");
    let rows = sqlx::query(sql).bind(since.0).fetch_all(connection).await.map_err(statement)?;
    rows.iter().map(subscription).collect()
}

/// Deletes a subscription; its lanes and all that belongs to them go by foreign keys.
pub(super) async fn delete(
    connection: &mut SqliteConnection,
    id: SubscriptionId,
    change: Change,
) -> Result<()> {
    let before = find(connection, &id, &change).await?;
    super::grant::forget_subscription(connection, before.no, &change).await?;
    super::freed::insert(connection, &Name::Subscription(id), change.at).await?;
    let query = sqlx::query("DELETE FROM subscriptions WHERE subscription_no = ?").bind(before.no.0);
    query.execute(&mut *connection).await.map_err(statement)?;
    let entry = NewAuditEntry::subscription(&change, "DeleteSubscription", Some(&before), None);
    append_in(connection, entry).await
}

fn subscription(row: &SqliteRow) -> Result<Subscription> {
    let tenant = match get::<Option<i64>>(row, "tenant_no")? {
        Some(_) => Some(parse(row, "tenant_id")?),
        None => None,
    };
    Ok(Subscription {
        no: SubscriptionNo(get(row, "subscription_no")?),
        id: parse(row, "subscription_id")?,
        tenant,
        sources: from_json(row, "sources")?,
        event_types: from_json(row, "event_types")?,
        lanes: LaneCount::new(unsigned(row, "lanes")?).map_err(|_| corrupt("subscriptions.lanes"))?,
        attempts_max: unsigned(row, "attempts_max")?,
        defer_deadline_ms: unsigned(row, "defer_deadline_ms")?,
        dead_letter_policy: DeadLetterPolicy::from_name(get(row, "dead_letter_policy")?)
            .ok_or_else(|| corrupt("subscriptions.dead_letter_policy"))?,
        starts_after: from_json(row, "starts_after")?,
        expired: unsigned(row, "expired")?,
        created_at: timestamp(row, "created_at")?,
    })
}
