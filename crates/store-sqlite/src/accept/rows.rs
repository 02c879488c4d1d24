//! The statements of a batch. Each statement carries many rows, in a few sizes, so that all stay prepared.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use portero_store::Result;
use portero_types::{NewEvent, ReceiptId, SecretNo, SourceNo};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, SqliteConnection};

use super::batch::{Known, Placed};
use crate::error::{corrupt, statement};
use crate::row::{bytes, receipt_id, signed, unsigned};

/// How many rows a statement carries, largest first. The widest row has 18 values; SQLite takes 32,766 in one statement.
const SIZES: [usize; 4] = [64, 16, 4, 1];

type Query<'q> = sqlx::query::Query<'q, Sqlite, SqliteArguments>;

/// The texts of one statement for each of [`SIZES`].
struct Texts([String; SIZES.len()]);

impl Texts {
    /// `before`, then `row` so many times with commas between, then `after`.
    fn new(before: &str, row: &str, after: &str) -> Self {
        Self(SIZES.map(|size| format!("{before}{}{after}", vec![row; size].join(","))))
    }

    /// The statements and ranges of rows that together make `rows` rows.
    fn for_rows(&'static self, rows: usize) -> impl Iterator<Item = (&'static str, Range<usize>)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let index = SIZES.iter().position(|size| *size <= rows - next)?;
            let range = next..next + SIZES[index];
            next = range.end;
            Some((self.0[index].as_str(), range))
        })
    }
}

static FIND: LazyLock<Texts> = LazyLock::new(|| {
    // CROSS JOIN keeps the order: for each wanted key one search of the unique index.
    Texts::new(
        "WITH wanted (key, tenant_no, provider, event_id) AS (VALUES ",
        "(?,?,?,?)",
        ") SELECT wanted.key, receipts.receipt_id, receipts.body_digest FROM wanted CROSS JOIN receipts \
         ON receipts.tenant_no = wanted.tenant_no AND receipts.provider = wanted.provider \
         AND receipts.event_id = wanted.event_id",
    )
});

/// The receipts of those keys that have one, by the key's number.
pub(super) async fn find_known(
    connection: &mut SqliteConnection,
    batch: &[NewEvent],
    firsts: &[usize],
) -> Result<HashMap<usize, Known>> {
    let mut known = HashMap::new();
    for (sql, range) in FIND.for_rows(firsts.len()) {
        let mut query = sqlx::query(sql);
        for key in range {
            let event = &batch[firsts[key]];
            query = query
                .bind(i64::try_from(key).expect("a batch in memory is countable"))
                .bind(event.tenant_no.0)
                .bind(event.provider.as_str())
                .bind(event.event_id.as_str());
        }
        for row in query.fetch_all(&mut *connection).await.map_err(statement)? {
            let first = Known {
                receipt_id: receipt_id(&row)?,
                body_digest: bytes(&row, "body_digest")?,
                duplicates: 0,
                conflicts: 0,
            };
            known.insert(unsigned(&row, "key")?, first);
        }
    }
    Ok(known)
}

/// Those of a batch's secrets of which nothing is accepted.
pub(super) async fn find_revoked(
    connection: &mut SqliteConnection,
    batch: &[NewEvent],
) -> Result<HashSet<SecretNo>> {
    let secrets: BTreeSet<SecretNo> = batch.iter().filter_map(|event| event.secret_no).collect();
    let mut revoked = HashSet::new();
    for no in secrets {
        let probe = sqlx::query("SELECT 1 FROM revoked_secrets WHERE secret_no = ?").bind(no.0);
        if probe.fetch_optional(&mut *connection).await.map_err(statement)?.is_some() {
            revoked.insert(no);
        }
    }
    Ok(revoked)
}

/// Those of a batch's sources that are deleted.
pub(super) async fn find_deleted(
    connection: &mut SqliteConnection,
    batch: &[NewEvent],
) -> Result<HashSet<SourceNo>> {
    let sources: BTreeSet<SourceNo> = batch.iter().map(|event| event.source_no).collect();
    let mut deleted = HashSet::new();
    for no in sources {
        let probe =
            sqlx::query("SELECT 1 FROM sources WHERE source_no = ? AND deleted_at IS NOT NULL").bind(no.0);
        if probe.fetch_optional(&mut *connection).await.map_err(statement)?.is_some() {
            deleted.insert(no);
        }
    }
    Ok(deleted)
}

async fn insert<'q>(
    connection: &mut SqliteConnection,
    texts: &'static Texts,
    placed: &'q [Placed<'q>],
    bind: impl Fn(Query<'q>, &'q Placed<'q>) -> Result<Query<'q>> + Send,
) -> Result<()> {
    for (sql, range) in texts.for_rows(placed.len()) {
        let query = placed[range].iter().try_fold(sqlx::query(sql), &bind)?;
        query.execute(&mut *connection).await.map_err(statement)?;
    }
    Ok(())
}

static RECEIPTS: LazyLock<Texts> = LazyLock::new(|| {
    Texts::new(
        "INSERT INTO receipts (tenant_no, provider, event_id, receipt_id, source_no, secret_no, id_derived, event_type, \
         ordering_key, body_digest, received_at, expires_at, request_id, trace_parent, shard, position, duplicates, \
         conflicts) VALUES ",
        "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        "",
    )
});

pub(super) async fn insert_receipts<'q>(
    connection: &mut SqliteConnection,
    placed: &'q [Placed<'q>],
) -> Result<()> {
    insert(connection, &RECEIPTS, placed, |query, placed| {
        let event = placed.event;
        Ok(query
            .bind(event.tenant_no.0)
            .bind(event.provider.as_str())
            .bind(event.event_id.as_str())
            .bind(event.receipt_id.0.as_bytes().as_slice())
            .bind(event.source_no.0)
            .bind(event.secret_no.map(|no| no.0))
            .bind(event.id_derived)
            .bind(event.event_type.as_str())
            .bind(event.ordering_key.as_str())
            .bind(event.body_digest.as_slice())
            .bind(event.received_at.as_micros())
            .bind(event.expires_at.as_micros())
            .bind(event.request_id.0.as_bytes().as_slice())
            .bind(event.trace_parent.as_str())
            .bind(placed.position.shard.0)
            .bind(signed(placed.position.n, "a position")?)
            .bind(placed.duplicates)
            .bind(placed.conflicts))
    })
    .await
}

static EVENTS: LazyLock<Texts> =
    LazyLock::new(|| Texts::new("INSERT INTO events (receipt_id, content) VALUES ", "(?,?)", ""));

pub(super) async fn insert_events<'q>(
    connection: &mut SqliteConnection,
    placed: &'q [Placed<'q>],
) -> Result<()> {
    insert(connection, &EVENTS, placed, |query, placed| {
        Ok(query.bind(placed.event.receipt_id.0.as_bytes().as_slice()).bind(&placed.event.content[..]))
    })
    .await
}

static LOG: LazyLock<Texts> = LazyLock::new(|| {
    Texts::new(
        "INSERT INTO log (shard, position, receipt_id, tenant_no, source_no, event_type, slot, entity_hash, accepted_at, \
         body_bytes) VALUES ",
        "(?,?,?,?,?,?,?,?,?,?)",
        "",
    )
});

pub(super) async fn insert_log<'q>(
    connection: &mut SqliteConnection,
    placed: &'q [Placed<'q>],
) -> Result<()> {
    insert(connection, &LOG, placed, |query, placed| {
        let event = placed.event;
        Ok(query
            .bind(placed.position.shard.0)
            .bind(signed(placed.position.n, "a position")?)
            .bind(event.receipt_id.0.as_bytes().as_slice())
            .bind(event.tenant_no.0)
            .bind(event.source_no.0)
            .bind(event.event_type.as_str())
            .bind(event.entity.slot().0)
            .bind(event.entity.to_bits())
            .bind(event.received_at.as_micros())
            .bind(event.body_bytes))
    })
    .await
}

/// Adds what came again to the receipts that were there before.
pub(super) async fn count_repeats(
    connection: &mut SqliteConnection,
    known: impl Iterator<Item = &Known> + Send,
) -> Result<()> {
    let sql =
        "UPDATE receipts SET duplicates = duplicates + ?, conflicts = conflicts + ? WHERE receipt_id = ?";
    for first in known {
        let updated = sqlx::query(sql)
            .bind(first.duplicates)
            .bind(first.conflicts)
            .bind(first.receipt_id.0.as_bytes().as_slice())
            .execute(&mut *connection)
            .await
            .map_err(statement)?;
        if updated.rows_affected() != 1 {
            return Err(corrupt("receipts.receipt_id"));
        }
    }
    Ok(())
}

/// Adds what came again and was recognised before; a receipt that is gone is passed over.
pub(super) async fn count_recognised(
    connection: &mut SqliteConnection,
    counts: Vec<(ReceiptId, u32)>,
) -> Result<()> {
    for (receipt_id, duplicates) in counts {
        sqlx::query("UPDATE receipts SET duplicates = duplicates + ? WHERE receipt_id = ?")
            .bind(duplicates)
            .bind(receipt_id.0.as_bytes().as_slice())
            .execute(&mut *connection)
            .await
            .map_err(statement)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_row_once() {
        for rows in [0, 1, 3, 4, 63, 64, 65, 100, 4_096] {
            let ranges: Vec<_> = EVENTS.for_rows(rows).map(|(_, range)| range).collect();
            assert_eq!(ranges.iter().cloned().flatten().collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
        }
        assert_eq!(EVENTS.for_rows(100).count(), 4);
    }
}
