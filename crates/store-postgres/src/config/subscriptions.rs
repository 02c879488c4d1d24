//! Subscriptions. Where one begins is read in the transaction that creates it.

use portero_store::{
    Change, DeadLetterPolicy, Error, ErrorKind, NewAuditEntry, NewSubscription, Page, Result, Revision,
    StartAt, Subscription, SubscriptionUpdate,
};
use portero_types::{LaneCount, ShardCount, SourceId, SubscriptionId, SubscriptionNo, Timestamp};
use sqlx::postgres::PgRow;

use super::{Changing, not_found, one, one_more, page};
use crate::error::{Effect, corrupt};
use crate::lease::{PgQuery, rows};
use crate::pools::Pool;
use crate::row::{get, parse, signed, signed32, unsigned, unsigned32};

/// Joins a subscription to its tenant's name.
macro_rules! named {
    ($rest:literal) => {
        concat!("SELECT u.*, t.tenant_id FROM subscriptions u LEFT JOIN tenants t USING (tenant_no) ", $rest)
    };
}

pub(super) fn read(row: &PgRow) -> Result<Subscription> {
    let sources: Vec<String> = get(row, "sources")?;
    let sources = sources.into_iter().map(SourceId::new).collect::<std::result::Result<_, _>>();
    let starts: Vec<i64> = get(row, "starts_after")?;
    let starts = starts.into_iter().map(u64::try_from).collect::<std::result::Result<_, _>>();
    let tenant = match get::<Option<i64>>(row, "tenant_no")? {
        Some(_) => Some(parse(row, "tenant_id")?),
        None => None,
    };
    Ok(Subscription {
        no: SubscriptionNo(get(row, "subscription_no")?),
        id: parse(row, "subscription_id")?,
        tenant,
        sources: sources.map_err(|_| corrupt("subscriptions.sources"))?,
        event_types: get(row, "event_types")?,
        lanes: lanes(row)?,
        attempts_max: unsigned32(row, "attempts_max")?,
        defer_deadline_ms: unsigned(row, "defer_deadline_ms")?,
        dead_letter_policy: DeadLetterPolicy::from_name(get(row, "dead_letter_policy")?)
            .ok_or_else(|| corrupt("subscriptions.dead_letter_policy"))?,
        starts_after: starts.map_err(|_| corrupt("subscriptions.starts_after"))?,
        expired: unsigned(row, "expired")?,
        created_at: Timestamp::from_micros(get(row, "created_at")?),
    })
}

fn lanes(row: &PgRow) -> Result<LaneCount> {
    let count = u16::try_from(get::<i32>(row, "lanes")?).ok();
    count.and_then(|count| LaneCount::new(count).ok()).ok_or_else(|| corrupt("subscriptions.lanes"))
}

pub(super) fn all() -> PgQuery<'static> {
    sqlx::query(named!("ORDER BY u.subscription_id"))
}

/// Those whose last change is later than a revision.
pub(super) fn changed(since: Revision) -> PgQuery<'static> {
    sqlx::query(named!("WHERE u.revision > $1")).bind(since.0)
}

pub(super) async fn create(
    pool: &Pool,
    shards: ShardCount,
    subscription: NewSubscription,
    change: &Change,
) -> Result<Subscription> {
    if subscription.lanes.get() < shards.get() {
        return Err(Error::new(
            ErrorKind::FailedPrecondition,
            format!("a subscription needs at least {} lanes, one for each shard of the log", shards.get()),
        ));
    }
    let attempts_max = signed32(subscription.attempts_max, "attempts_max")?;
    let defer_deadline_ms = signed(subscription.defer_deadline_ms, "defer_deadline_ms")?;
    let query = sqlx::query(
        "INSERT INTO subscriptions (subscription_id, tenant_no, sources, event_types, lanes, attempts_max,
                                    defer_deadline_ms, dead_letter_policy, starts_after, created_at)
         SELECT $1, t.tenant_no, $3, $4, $5, $6, $7, $10,
                (SELECT array_agg(CASE WHEN $8
                     THEN coalesce((SELECT max(position) FROM log WHERE shard = n), 0)
                     ELSE coalesce((SELECT min(position) - 1 FROM log WHERE shard = n), 0)
                 END ORDER BY n) FROM installation, generate_series(0, shards - 1) AS n),
                $9
         FROM (SELECT tenant_no FROM tenants WHERE tenant_id = $2 AND deleted_at IS NULL
               UNION ALL SELECT NULL WHERE $2 IS NULL) t
         RETURNING *, $2 AS tenant_id",
    )
    .bind(subscription.id.as_str())
    .bind(subscription.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()))
    .bind(subscription.sources.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>())
    .bind(&subscription.event_types)
    .bind(i32::from(subscription.lanes.get()))
    .bind(attempts_max)
    .bind(defer_deadline_ms)
    .bind(subscription.start_at == StartAt::Latest)
    .bind(subscription.created_at.as_micros())
    .bind(subscription.dead_letter_policy.name());
    let mut changing = Changing::begin(pool, change).await?;
    let room = of_tenant(&mut changing, &subscription).await.and_then(|count| subscription.check_room(count));
    let created = match room {
        Ok(()) => changing.create(query, "subscription", "tenant").await.and_then(|row| read(&row)),
        Err(full) => Err(full),
    };
    let outcome = recorded(&mut changing, "CreateSubscription", None, created).await;
    changing.end(outcome).await
}

/// How many its tenant has. Changes are serial, so nobody adds one in between.
async fn of_tenant(changing: &mut Changing, new: &NewSubscription) -> Result<u64> {
    let query = sqlx::query(
        "SELECT count(*) AS subscriptions FROM subscriptions JOIN tenants t USING (tenant_no)
         WHERE t.tenant_id = $1 AND t.deleted_at IS NULL",
    )
    .bind(new.tenant.as_ref().map(|tenant| tenant.as_str().to_owned()));
    let found = changing.rows(query).await?;
    unsigned(found.first().ok_or_else(|| corrupt("subscriptions"))?, "subscriptions")
}

pub(super) async fn update(pool: &Pool, update: SubscriptionUpdate, change: &Change) -> Result<Subscription> {
    let attempts_max = update.attempts_max.map(|max| signed32(max, "attempts_max")).transpose()?;
    let deadline = update.defer_deadline_ms.map(|ms| signed(ms, "defer_deadline_ms")).transpose()?;
    let query = sqlx::query(
        "UPDATE subscriptions u SET attempts_max = coalesce($2, attempts_max),
                defer_deadline_ms = coalesce($3, defer_deadline_ms),
                dead_letter_policy = coalesce($4, dead_letter_policy)
         WHERE subscription_id = $1
         RETURNING *, (SELECT tenant_id FROM tenants t WHERE t.tenant_no = u.tenant_no) AS tenant_id",
    )
    .bind(update.id.as_str())
    .bind(attempts_max)
    .bind(deadline)
    .bind(update.dead_letter_policy.map(DeadLetterPolicy::name));
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = match find_in(&mut changing, &update.id).await {
        Ok(before) => {
            let updated = changing.rows(query).await.and_then(|rows| one(&rows, read));
            let after = updated.and_then(|found| found.ok_or_else(|| not_found("subscription")));
            recorded(&mut changing, "UpdateSubscription", Some(&before), after).await
        }
        Err(error) => Err(error),
    };
    changing.end(outcome).await
}

/// The subscription, as the change finds it.
async fn find_in(changing: &mut Changing, id: &SubscriptionId) -> Result<Subscription> {
    let query = sqlx::query(named!("WHERE u.subscription_id = $1")).bind(id.as_str());
    let found = one(&changing.rows(query).await?, read)?;
    let found = found.filter(|found| changing.change.concerns(found.tenant.as_ref()));
    found.ok_or_else(|| not_found("subscription"))
}

/// Tells the audit log what became of a subscription.
async fn recorded(
    changing: &mut Changing,
    action: &str,
    before: Option<&Subscription>,
    after: Result<Subscription>,
) -> Result<Subscription> {
    let after = after?;
    changing.record(NewAuditEntry::subscription(&changing.change, action, before, Some(&after))).await?;
    Ok(after)
}

pub(super) async fn get_one(pool: &Pool, id: &SubscriptionId) -> Result<Option<Subscription>> {
    let query = sqlx::query(named!("WHERE u.subscription_id = $1")).bind(id.as_str());
    one(&rows(pool, query, Effect::None).await?, read)
}

pub(super) async fn list(
    pool: &Pool,
    after: Option<&SubscriptionId>,
    limit: u32,
) -> Result<Page<Subscription>> {
    let query = sqlx::query(named!("WHERE u.subscription_id > $1 ORDER BY u.subscription_id LIMIT $2"))
        .bind(after.map_or("", SubscriptionId::as_str))
        .bind(one_more(limit));
    page(&rows(pool, query, Effect::None).await?, limit, read)
}

/// The lock keeps claims out, and lanes go first: that waits for flushes under way, so that the journal is deleted after the
/// last of them. The lock is not the strongest one, because such a flush may still refer to the subscription.
pub(super) async fn delete(pool: &Pool, id: &SubscriptionId, change: &Change) -> Result<()> {
    let mut changing = Changing::begin(pool, change).await?;
    let outcome = delete_in(&mut changing, id).await;
    changing.end(outcome).await
}

pub(super) async fn delete_in(changing: &mut Changing, id: &SubscriptionId) -> Result<()> {
    let lock =
        sqlx::query("SELECT subscription_no FROM subscriptions WHERE subscription_id = $1 FOR NO KEY UPDATE");
    let found = changing.rows(lock.bind(id.as_str())).await?;
    let no: i64 = one(&found, |row| get(row, "subscription_no"))?.ok_or_else(|| not_found("subscription"))?;
    let before = find_in(changing, id).await?;
    super::grants::forget_subscription(changing, no).await?;
    super::freed::by_subscription(changing, id).await?;
    for statement in [
        "DELETE FROM lane_owners WHERE subscription_no = $1",
        "DELETE FROM lane_journal WHERE subscription_no = $1",
        "DELETE FROM subscriptions WHERE subscription_no = $1",
    ] {
        changing.rows(sqlx::query(statement).bind(no)).await?;
    }
    let entry = NewAuditEntry::subscription(&changing.change, "DeleteSubscription", Some(&before), None);
    changing.record(entry).await
}
