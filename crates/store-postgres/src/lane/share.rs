//! Weights, shares and streams: who should have how many lanes, and which session an instance of a consumer is at.

use portero_store::{Error, ErrorKind, Result, Roll, Share, balance};
use portero_types::{Generation, LaneCount, LaneNo, SessionId, SubscriptionNo};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::fenced;
use crate::error::{Effect, corrupt};
use crate::lease::{PgQuery, Tx, rows};
use crate::pools::Pool;
use crate::row::get;

/// Begins a statement about session `$1` and subscription `$2`: whether both are there.
macro_rules! found {
    ($rest:literal) => {
        concat!(
            "WITH found AS MATERIALIZED (
                 SELECT EXISTS (SELECT FROM replica_sessions WHERE session_id = $1 AND NOT fenced) AS alive,
                        EXISTS (SELECT FROM subscriptions WHERE subscription_no = $2) AS there
             ), ",
            $rest
        )
    };
}

/// Everything about all subscriptions of a session, from one snapshot.
///
/// Whatever is looked up is found by a key that begins with the subscription or the session. For each subscription of the
/// session that is one range of `lane_shares`, a row per gateway; the session's own lanes and streams are read once, by
/// session. Only where it lacks lanes are the others' counted. With 1,000 subscriptions of 16 lanes it takes the server about
/// 10 ms while nobody shares them, and 35 ms when three gateways share them all.
const ROLL: &str = "
WITH me AS MATERIALIZED (
    SELECT session_id FROM replica_sessions WHERE session_id = $1 AND NOT fenced
), live AS MATERIALIZED (
    SELECT array_agg(session_id) AS sessions FROM replica_sessions
    WHERE NOT fenced AND (session_id = $1 OR expires_at > clock_timestamp())
), owned AS MATERIALIZED (
    SELECT subscription_no, count(*)::integer AS lanes FROM lane_owners WHERE session_id = $1 GROUP BY subscription_no
), mine AS MATERIALIZED (
    SELECT subscription_no FROM lane_shares WHERE session_id = $1 UNION SELECT subscription_no FROM owned
)
SELECT i.generation, m.*
FROM installation i CROSS JOIN me LEFT JOIN (
    SELECT m.subscription_no, u.lanes, coalesce(o.lanes, 0) AS owned, w.sessions, w.weights,
           CASE WHEN o.lanes = u.lanes THEN 0 ELSE u.lanes - (
               SELECT count(*)::integer FROM lane_owners l WHERE l.subscription_no = m.subscription_no
               AND l.session_id = ANY ((SELECT sessions FROM live)::uuid[])
           ) END AS free,
           array(
               SELECT c.instance FROM consumer_streams c
               WHERE c.session_id = $1 AND c.subscription_no = m.subscription_no AND (c.replaced OR EXISTS (
                   SELECT FROM consumer_streams n WHERE n.subscription_no = c.subscription_no
                   AND n.instance = c.instance AND n.joined > c.joined
               )) ORDER BY c.instance
           ) AS replaced,
           (
               SELECT true FROM lane_requests r WHERE r.subscription_no = m.subscription_no AND $1 = (
                   SELECT l.session_id FROM lane_owners l WHERE l.subscription_no = r.subscription_no AND l.lane = r.lane
               ) LIMIT 1
           ) IS NOT NULL AS has_requests
    FROM mine m JOIN subscriptions u USING (subscription_no) LEFT JOIN owned o USING (subscription_no)
    CROSS JOIN LATERAL (
        SELECT array_agg(s.session_id) AS sessions, array_agg(s.weight) AS weights FROM lane_shares s
        WHERE s.subscription_no = m.subscription_no AND s.session_id = ANY ((SELECT sessions FROM live)::uuid[])
    ) w
) m ON true
ORDER BY m.subscription_no";

/// Whether anything changed.
pub(super) async fn attend(
    pool: &Pool,
    session: SessionId,
    subscription: SubscriptionNo,
    weight: u32,
) -> Result<bool> {
    let query = sqlx::query(found!(
        "written AS (
             INSERT INTO lane_shares AS w (subscription_no, session_id, weight)
             SELECT $2, $1, $3 FROM found WHERE alive AND there AND $3 > 0
             ON CONFLICT (subscription_no, session_id) DO UPDATE SET weight = excluded.weight
             WHERE w.weight <> excluded.weight RETURNING 1
         ), gone AS (
             DELETE FROM lane_shares WHERE subscription_no = $2 AND session_id = $1 AND $3 = 0 RETURNING 1
         )
         SELECT alive, there, EXISTS (SELECT FROM written) OR EXISTS (SELECT FROM gone) AS changed FROM found"
    ));
    let query = query.bind(session.0).bind(subscription.0).bind(i64::from(weight));
    let answer = rows(pool, query, Effect::Commits).await?;
    let row = check_found(&answer)?;
    get(row, "changed")
}

pub(super) async fn join(
    pool: &Pool,
    session: SessionId,
    subscription: SubscriptionNo,
    instance: &str,
    boot: &str,
) -> Result<()> {
    let query = sqlx::query(found!(
        "forgotten AS (
             DELETE FROM consumer_streams c USING replica_sessions s
             WHERE c.subscription_no = $2 AND c.instance = $3 AND s.session_id = c.session_id AND s.fenced
         ), joined AS (
             INSERT INTO consumer_streams (subscription_no, session_id, joined, instance, boot)
             SELECT $2, $1, nextval('consumer_joins'), $3, $4 FROM found WHERE alive AND there
             ON CONFLICT (subscription_no, instance, session_id) DO UPDATE
             SET joined = excluded.joined, boot = excluded.boot, replaced = false
         )
         SELECT alive, there FROM found"
    ));
    let query = query.bind(session.0).bind(subscription.0).bind(instance.to_owned()).bind(boot.to_owned());
    let answer = rows(pool, query, Effect::Commits).await?;
    check_found(&answer).map(|_| ())
}

/// Older streams of the instance stay replaced, although the newest is gone.
pub(super) async fn leave(
    pool: &Pool,
    session: SessionId,
    subscription: SubscriptionNo,
    instance: &str,
    boot: &str,
) -> Result<()> {
    let query = sqlx::query(
        "WITH gone AS (
             DELETE FROM consumer_streams
             WHERE subscription_no = $2 AND instance = $3 AND session_id = $1 AND boot = $4 RETURNING joined
         )
         UPDATE consumer_streams c SET replaced = true FROM gone g
         WHERE c.subscription_no = $2 AND c.instance = $3 AND c.joined < g.joined AND NOT c.replaced",
    );
    let query = query.bind(session.0).bind(subscription.0).bind(instance.to_owned()).bind(boot.to_owned());
    rows(pool, query, Effect::Commits).await.map(|_| ())
}

pub(super) async fn roll(pool: &Pool, session: SessionId) -> Result<Roll> {
    let found = rows(pool, sqlx::query(ROLL).bind(session.0), Effect::None).await?;
    let generation = Generation(get(found.first().ok_or_else(fenced)?, "generation")?);
    let mut shares = Vec::with_capacity(found.len());
    for row in &found {
        if let Some(subscription) = get::<Option<i64>>(row, "subscription_no")? {
            shares.push(share(session, SubscriptionNo(subscription), row)?);
        }
    }
    Ok(Roll { generation, shares })
}

fn share(session: SessionId, subscription: SubscriptionNo, row: &PgRow) -> Result<Share> {
    let lanes = LaneCount::new(count(row, "lanes")?).map_err(|_| corrupt("subscriptions.lanes"))?;
    let sessions: Vec<Uuid> = get::<Option<_>>(row, "sessions")?.unwrap_or_default();
    let weights: Vec<i64> = get::<Option<_>>(row, "weights")?.unwrap_or_default();
    let weights = sessions.into_iter().map(SessionId).zip(weights);
    Ok(Share {
        subscription,
        owned: count(row, "owned")?,
        free: count(row, "free")?,
        target: target(session, lanes, weights)?,
        replaced: get(row, "replaced")?,
        has_requests: get(row, "has_requests")?,
    })
}

/// How many lanes the session should have.
fn target(
    session: SessionId,
    lanes: LaneCount,
    weights: impl Iterator<Item = (SessionId, i64)>,
) -> Result<u16> {
    let weights: Result<Vec<_>> = weights
        .map(|(id, weight)| Ok((id, u32::try_from(weight).map_err(|_| corrupt("lane_shares.weight"))?)))
        .collect();
    let targets = balance::targets(lanes, &weights?);
    Ok(targets.into_iter().find(|(id, _)| *id == session).map_or(0, |(_, lanes)| lanes))
}

fn count(row: &PgRow, column: &'static str) -> Result<u16> {
    u16::try_from(get::<i32>(row, column)?).map_err(|_| corrupt(column))
}

/// Records a weight within a claim, and says how many lanes the session may take beyond those it has.
pub(super) async fn weigh(
    tx: &mut Tx,
    session: SessionId,
    subscription: SubscriptionNo,
    lanes: LaneCount,
    weight: u32,
) -> Result<u16> {
    let set: PgQuery<'_> = if weight == 0 {
        sqlx::query("DELETE FROM lane_shares WHERE subscription_no = $2 AND session_id = $1")
            .bind(session.0)
            .bind(subscription.0)
    } else {
        sqlx::query(
            "INSERT INTO lane_shares AS w (subscription_no, session_id, weight) VALUES ($2, $1, $3)
             ON CONFLICT (subscription_no, session_id) DO UPDATE SET weight = excluded.weight
             WHERE w.weight <> excluded.weight",
        )
        .bind(session.0)
        .bind(subscription.0)
        .bind(i64::from(weight))
    };
    tx.rows(set).await?;
    let standing = sqlx::query(
        "SELECT w.session_id, w.weight, (
             SELECT count(*)::integer FROM lane_owners WHERE subscription_no = $2 AND session_id = $1
         ) AS owned
         FROM lane_shares w JOIN replica_sessions s USING (session_id)
         WHERE w.subscription_no = $2 AND NOT s.fenced AND s.expires_at > clock_timestamp()",
    );
    let standing = tx.rows(standing.bind(session.0).bind(subscription.0)).await?;
    let owned = standing.first().map(|row| count(row, "owned")).transpose()?.unwrap_or(0);
    let mut weights = Vec::with_capacity(standing.len());
    for row in &standing {
        weights.push((SessionId(get(row, "session_id")?), get(row, "weight")?));
    }
    Ok(target(session, lanes, weights.into_iter())?.saturating_sub(owned))
}

/// Gives up lanes, which waits for flushes of them. All of them when none are named, and the weight with them.
pub(super) async fn release(
    pool: &Pool,
    session: SessionId,
    subscription: SubscriptionNo,
    lanes: Option<&[LaneNo]>,
) -> Result<()> {
    let named: Option<Vec<i16>> = lanes.map(|lanes| lanes.iter().map(|lane| i16::from(lane.0)).collect());
    let mut tx = Tx::begin(pool).await?;
    // One lane after the other in the order in which flushes lock them.
    let lock = sqlx::query(
        "SELECT lane FROM lane_owners WHERE session_id = $1 AND subscription_no = $2
         AND ($3::smallint[] IS NULL OR lane = ANY ($3)) ORDER BY lane FOR UPDATE",
    );
    tx.rows(lock.bind(session.0).bind(subscription.0).bind(&named)).await?;
    let give_up = sqlx::query(
        "UPDATE lane_owners SET session_id = NULL WHERE session_id = $1 AND subscription_no = $2
         AND ($3::smallint[] IS NULL OR lane = ANY ($3))",
    );
    tx.rows(give_up.bind(session.0).bind(subscription.0).bind(&named)).await?;
    if named.is_none() {
        let rest = sqlx::query("DELETE FROM lane_shares WHERE session_id = $1 AND subscription_no = $2");
        tx.rows(rest.bind(session.0).bind(subscription.0)).await?;
    }
    tx.commit().await
}

fn check_found(answer: &[PgRow]) -> Result<&PgRow> {
    let row = answer.first().ok_or_else(fenced)?;
    if !get::<bool>(row, "alive")? {
        return Err(fenced());
    }
    if !get::<bool>(row, "there")? {
        return Err(no_subscription());
    }
    Ok(row)
}

pub(super) fn no_subscription() -> Error {
    Error::new(ErrorKind::NotFound, "there is no such subscription")
}

#[cfg(test)]
mod tests {
    use sqlx::Row;

    use crate::harness::TestDatabase;

    const SESSION: &str = "00000000-0000-0000-0000-000000000001";

    /// A database with 1,000 subscriptions of 16 lanes. Session 1 owns all lanes of `alone`, session 2 those of the others,
    /// and 1 attends `attended` of those too.
    async fn crowded(alone: u32, attended: u32) -> TestDatabase {
        let database = TestDatabase::create().await;
        portero_store::testing::migrated(&database).await;
        database
            .run(format!(
                "INSERT INTO subscriptions (subscription_id, sources, event_types, lanes, attempts_max, defer_deadline_ms,
                                            dead_letter_policy, starts_after, created_at)
                 SELECT 's-' || n, '{{}}', '{{}}', 16, 10, 1, 'continue', '{{0,0,0,0}}', 0 FROM generate_series(1, 1000) n;
                 INSERT INTO replica_sessions (session_id, instance, expires_at)
                 SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, n, now() + interval '1 hour'
                 FROM generate_series(1, 3) n;
                 INSERT INTO lane_owners (subscription_no, lane, session_id, epoch)
                 SELECT s, l, ('00000000-0000-0000-0000-00000000000' || CASE WHEN s <= {alone} THEN 1 ELSE 2 END)::uuid, 1
                 FROM generate_series(1, 1000) s, generate_series(0, 15) l;
                 INSERT INTO lane_shares (subscription_no, session_id, weight)
                 SELECT s, '{SESSION}', 1 FROM generate_series(1, {alone} + {attended}) s;
                 INSERT INTO lane_shares (subscription_no, session_id, weight)
                 SELECT s, '00000000-0000-0000-0000-000000000002', 1 FROM generate_series({alone} + 1, 1000) s;
                 INSERT INTO consumer_streams (subscription_no, session_id, joined, instance, boot)
                 SELECT s, '{SESSION}', nextval('consumer_joins'), 'worker', 'boot' FROM generate_series(1, 1000) s;
                 INSERT INTO lane_requests (subscription_no, lane, entity_hash, action, requested_by, requested_at)
                 SELECT s, 0, n, 'retry', '', 0 FROM generate_series({alone} + {attended} + 1, 1000) s, generate_series(1, 20) n;
                 ANALYZE",
            ))
            .await;
        database
    }

    /// The plan as it ran the second time, and how many pages it looked at.
    async fn plan(database: &TestDatabase) -> (String, u64) {
        let explain = format!(
            "PREPARE roll (uuid) AS {}; EXECUTE roll ('{SESSION}');
             EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE roll ('{SESSION}')",
            super::ROLL
        );
        let rows = database.run(explain).await;
        // The rows of the call itself come first.
        let lines: Vec<String> = rows.iter().filter_map(|row| row.try_get("QUERY PLAN").ok()).collect();
        let plan = lines.join("\n");
        let pages = plan.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared hit="));
        let pages = pages.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok());
        (plan, pages.unwrap_or(u64::MAX))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_roll_of_a_few_subscriptions_among_many_reads_only_theirs() {
        let (plan, pages) = plan(&crowded(5, 5).await).await;
        for table in ["lane_owners", "lane_shares", "consumer_streams", "lane_requests"] {
            assert!(!plan.contains(&format!("Seq Scan on {table}")), "{table} in\n{plan}");
        }
        assert!(pages < 400, "{pages} pages in\n{plan}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_roll_of_a_thousand_subscriptions_costs_a_few_pages_each() {
        for (alone, attended) in [(1_000, 0), (0, 1_000)] {
            let (plan, pages) = plan(&crowded(alone, attended).await).await;
            assert!(pages < 40_000, "{pages} pages in\n{plan}");
        }
    }
}
