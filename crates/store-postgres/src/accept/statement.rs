//! The accept statement.
//!
//! One statement, one commit, no round trip between. In the order in which it must happen:
//!
//! 1. `fresh`: receipts in the order of their keys, without those of revoked secrets and deleted sources, which are looked up
//!    once for the whole batch; keys that exist are passed over. Waits here for other batches that are about to commit the
//!    same keys, all in one direction.
//! 2. `stored`: the bodies of those that are new, and with `placed` everything that is to be logged. Nothing after this
//!    point reads or writes anything large.
//! 3. `locked`: the advisory lock of each shard that gets an entry, in ascending order; none when nothing is new. The lock
//!    lasts until the commit is visible, and waits for nothing but other accept statements at this very step.
//! 4. The sort above the gate `(SELECT count(*) FROM locked)` yields its first row only when all locks are held; positions
//!    are drawn above the sort, in the order of the batch. Then the narrow log rows.
//!
//! What is refused is one array, secrets below zero, and one test: a test more has the planner expect so few rows that it joins
//! by nested loops.
//!
//! Order is enforced by data: each step reads the one before to its end. A unit test looks at the plan.

use std::fmt::Write as _;
use std::sync::Arc;

use portero_store::Result;
use portero_types::{NewEvent, Position, ReceiptId, Shard, ShardCount};
use sqlx::postgres::{PgArguments, PgBindIterExt, PgRow};
use sqlx::{Arguments, AssertSqlSafe};

use super::batch::{Batch, Placed};
use super::stalled;
use crate::error::{Effect, corrupt, is_undone_by_others, is_wait_in_vain, refused, store_error};
use crate::lease::{PgQuery, rows};
use crate::pools::{Pool, Pools};
use crate::row::{byte, get, signed32, unsigned};

/// First key of the shards' advisory locks ("port"); the second is the shard.
pub(super) const SHARD_LOCKS: i32 = 0x706f_7274;
/// How often a batch is tried again that the server undid because of others.
const TRIES: u32 = 5;

/// The accept statement of this installation.
#[derive(Debug)]
pub(crate) struct Statement {
    shards: ShardCount,
    sql: Arc<str>,
}

impl Statement {
    /// Reads how many shards the installation has.
    pub(crate) async fn load(pool: &Pool) -> Result<Self> {
        let found = rows(pool, sqlx::query("SELECT shards FROM installation"), Effect::None).await?;
        let row = found.first().ok_or_else(|| corrupt("installation"))?;
        let shards = u16::try_from(get::<i32>(row, "shards")?).ok().and_then(|n| ShardCount::new(n).ok());
        shards.map(Self::new).ok_or_else(|| corrupt("installation.shards"))
    }

    fn new(shards: ShardCount) -> Self {
        Self { shards, sql: accept_sql(shards).into() }
    }

    pub(crate) const fn shards(&self) -> ShardCount {
        self.shards
    }

    /// Runs it. What it placed is committed when this returns; with any error but `OutcomeUnknown` nothing is.
    ///
    /// Who waited for a lock in vain looks for the one who stalls with it, so that a later try gets through.
    pub(super) async fn run(&self, pools: &Pools, batch: &Batch<'_>) -> Result<Placed> {
        let mut tries = 1;
        loop {
            let query = self.query(batch)?;
            let mut lease = pools.ingest.lease().await?;
            let outcome = lease.rows(query).await;
            let again = outcome.as_ref().is_err_and(is_undone_by_others) && tries < TRIES;
            let in_vain = outcome.as_ref().is_err_and(is_wait_in_vain);
            let outcome = lease.done(outcome, Effect::Commits);
            if in_vain {
                stalled::end_holders(&pools.control).await;
            }
            if !again {
                return outcome?.iter().map(placed).collect();
            }
            tries += 1;
        }
    }

    fn query(&self, batch: &Batch<'_>) -> Result<PgQuery<'static>> {
        let arguments = arguments(batch, self.shards)
            .map_err(|error| store_error(&sqlx::Error::Encode(error), Effect::None))?;
        Ok(sqlx::query_with(AssertSqlSafe(Arc::clone(&self.sql)), arguments))
    }
}

fn placed(row: &PgRow) -> Result<(ReceiptId, Position)> {
    let position = Position { shard: Shard(byte(row, "shard")?), n: unsigned(row, "position")? };
    Ok((ReceiptId(get(row, "receipt_id")?), position))
}

/// Encodes the batch column by column, straight from the events into the message: a body is copied once.
fn arguments(
    batch: &Batch<'_>,
    shards: ShardCount,
) -> std::result::Result<PgArguments, Box<dyn std::error::Error + Send + Sync>> {
    let events = || batch.leaders().map(|(_, event)| event);
    let mut columns = Columns { arguments: PgArguments::default(), batch };
    let bytes: usize = events().map(|event| event.content.len() + 1024).sum();
    columns.arguments.reserve(COLUMNS.len(), bytes);

    columns.add(|event| event.receipt_id.0)?;
    columns.add(|event| event.tenant_no.0)?;
    columns.add(|event| event.source_no.0)?;
    columns.add(|event| event.secret_no.map(|no| no.0))?;
    columns.add(|event| event.provider.as_str())?;
    columns.add(|event| event.event_id.as_str())?;
    columns.add(|event| event.id_derived)?;
    columns.add(|event| event.event_type.as_str())?;
    columns.add(|event| event.ordering_key.as_str())?;
    columns.add(|event| event.body_digest.as_slice())?;
    columns.add(|event| event.received_at.as_micros())?;
    columns.add(|event| event.expires_at.as_micros())?;
    columns.add(|event| event.request_id.0)?;
    columns.add(|event| event.trace_parent.as_str())?;
    let sizes = events().map(|event| signed32(event.body_bytes, "a body")).collect::<Result<Vec<_>>>()?;
    columns.arguments.add(sizes)?;
    columns.add(|event| &event.content[..])?;
    columns.add(|event| i16::from(event.shard(shards).0))?;
    columns.add(|event| i16::from(event.entity.slot().0))?;
    columns.add(|event| event.entity.to_bits())?;
    let places: Option<Vec<i32>> = batch.leaders().map(|(place, _)| i32::try_from(place).ok()).collect();
    columns.arguments.add(places.ok_or_else(|| refused("a batch's length"))?)?;
    columns.arguments.add(batch.secrets())?;
    columns.arguments.add(batch.sources())?;
    Ok(columns.arguments)
}

struct Columns<'b> {
    arguments: PgArguments,
    batch: &'b Batch<'b>,
}

impl<'b> Columns<'b> {
    fn add<T>(
        &mut self,
        column: impl Fn(&'b NewEvent) -> T,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        T: sqlx::Encode<'b, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + sqlx::postgres::PgHasArrayType,
    {
        self.arguments.add(self.batch.leaders().map(|(_, event)| column(event)).bind_iter())
    }
}

/// The columns that [`arguments`] sends, in its order, with their types.
const COLUMNS: [(&str, &str); 20] = [
    ("receipt_id", "uuid"),
    ("tenant_no", "bigint"),
    ("source_no", "bigint"),
    ("secret_no", "bigint"),
    ("provider", "text"),
    ("event_id", "text"),
    ("id_derived", "boolean"),
    ("event_type", "text"),
    ("ordering_key", "text"),
    ("body_digest", "bytea"),
    ("received_at", "bigint"),
    ("expires_at", "bigint"),
    ("request_id", "uuid"),
    ("trace_parent", "text"),
    ("body_bytes", "integer"),
    ("content", "bytea"),
    ("shard", "smallint"),
    ("slot", "smallint"),
    ("entity_hash", "bigint"),
    ("place", "integer"),
];

/// `unnest($1::uuid[], …) AS name (receipt_id, …)` over some columns.
fn unnest(name: &str, columns: &[&str]) -> String {
    let mut values = String::new();
    for column in columns {
        let number = COLUMNS.iter().position(|(known, _)| known == column).expect("a known column");
        let comma = if values.is_empty() { "" } else { ", " };
        write!(values, "{comma}${}::{}[]", number + 1, COLUMNS[number].1).expect("writing to a string");
    }
    format!("unnest({values}) AS {name} ({})", columns.join(", "))
}

fn accept_sql(shards: ShardCount) -> String {
    let receipt: Vec<&str> = COLUMNS[..14].iter().map(|(name, _)| *name).collect();
    let sequences: Vec<String> =
        shards.shards().map(|shard| format!("'log_position_{shard}'::regclass")).collect();
    format!(
        "WITH fresh AS (
    INSERT INTO receipts ({receipt_columns})
    SELECT {receipt_columns} FROM {receipts}
    WHERE (ARRAY[r.source_no, -r.secret_no] && ARRAY(
        SELECT d.source_no FROM sources d WHERE d.source_no = ANY (${sources}::bigint[]) AND d.deleted_at IS NOT NULL
        UNION ALL
        SELECT -x.secret_no FROM revoked_secrets x WHERE x.secret_no = ANY (${secrets}::bigint[])
    )) IS NOT TRUE
    ON CONFLICT (tenant_no, provider, event_id) DO NOTHING
    RETURNING receipt_id, tenant_no, source_no, event_type, received_at
), stored AS (
    INSERT INTO events (receipt_id, content)
    SELECT e.receipt_id, e.content FROM {events}
    WHERE e.receipt_id IN (SELECT receipt_id FROM fresh)
    RETURNING receipt_id
), placed AS MATERIALIZED (
    SELECT p.*, f.tenant_no, f.source_no, f.event_type, f.received_at
    FROM stored s JOIN fresh f USING (receipt_id) JOIN {places} USING (receipt_id)
), locked AS MATERIALIZED (
    SELECT pg_advisory_xact_lock({SHARD_LOCKS}, s.shard)
    FROM (SELECT DISTINCT shard FROM placed ORDER BY shard) s
)
INSERT INTO log (shard, position, receipt_id, tenant_no, source_no, event_type, slot, entity_hash, accepted_at, body_bytes)
SELECT q.shard, nextval((ARRAY[{sequences}])[q.shard + 1]), q.receipt_id, q.tenant_no, q.source_no, q.event_type,
       q.slot, q.entity_hash, q.received_at, q.body_bytes
FROM (
    SELECT p.* FROM placed p WHERE (SELECT count(*) FROM locked) > 0 ORDER BY p.shard, p.place
) q
RETURNING receipt_id, shard, position",
        secrets = COLUMNS.len() + 1,
        sources = COLUMNS.len() + 2,
        receipt_columns = receipt.join(", "),
        receipts = unnest("r", &receipt),
        events = unnest("e", &["receipt_id", "content"]),
        places = unnest("p", &["receipt_id", "body_bytes", "shard", "slot", "entity_hash", "place"]),
        sequences = sequences.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F13.
    #[test]
    fn the_statement_waits_for_nobody_and_notifies_nobody() {
        let sql = accept_sql(ShardCount::DEFAULT).to_lowercase();
        assert!(!sql.contains("notify") && !sql.contains("for update") && !sql.contains("update "));
        assert_eq!(sql.matches("pg_advisory_xact_lock").count(), 1);
        assert_eq!(sql.matches("nextval").count(), 1);
    }

    #[test]
    fn each_shard_draws_from_its_own_sequence() {
        let sql = accept_sql(ShardCount::new(2).expect("valid"));
        assert!(sql.contains("ARRAY['log_position_0'::regclass, 'log_position_1'::regclass]"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_plan_has_no_loop_over_the_batch_and_scans_no_table() {
        let database = crate::harness::TestDatabase::create().await;
        portero_store::testing::migrated(&database).await;
        let mut types: Vec<String> = COLUMNS.iter().map(|(_, kind)| format!("{kind}[]")).collect();
        types.extend(["bigint[]", "bigint[]"].map(str::to_owned));
        let sql = accept_sql(ShardCount::DEFAULT);
        let rows = database
            .run(format!(
                "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
                 PREPARE accept ({}) AS {sql};
                 EXPLAIN (COSTS OFF) EXECUTE accept ({});",
                types.join(", "),
                vec!["NULL"; COLUMNS.len() + 2].join(", ")
            ))
            .await;
        let plan: Vec<String> = rows.iter().map(|row| sqlx::Row::get(row, 0)).collect();
        // Revoked secrets and deleted sources are looked up once for the batch, each in an index that holds nothing else.
        let (looked_up, plan): (Vec<String>, Vec<String>) =
            plan.into_iter().partition(|line| line.contains("revoked_secrets") || line.contains(" sources"));
        for index in ["revoked_secrets_pkey", "sources_deleted"] {
            assert!(
                looked_up.iter().any(|line| line.ends_with(&format!("Index Scan on {index}"))),
                "{looked_up:?}"
            );
        }
        let plan = plan.join("\n");
        for unwanted in ["Nested Loop", "Seq Scan", "Index Scan"] {
            assert!(!plan.contains(unwanted), "{unwanted} in\n{plan}");
        }
        let step = |line: &str| plan.find(line).unwrap_or_else(|| panic!("{line} is not in\n{plan}"));
        let order = [
            step("Conflict Arbiter Indexes: receipts_pkey"),
            step("Insert on events"),
            step("CTE locked"),
            step("One-Time Filter"),
        ];
        assert!(order.is_sorted(), "{plan}");
        assert!(plan[step("CTE locked")..].contains("Sort Key: p.shard, p.place"), "{plan}");
    }
}
