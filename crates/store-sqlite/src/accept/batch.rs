//! One batch: find what is known, number what is new, write it, count the rest.

use std::collections::HashMap;

use portero_store::{Result, Verdict};
use portero_types::{NewEvent, Position, ReceiptId, Shard, ShardCount};
use sqlx::SqliteConnection;

use super::rows;
use crate::error::{corrupt, statement};
use crate::row::{signed, unsigned};

/// The receipt that a key has, before or by this batch, and what came again.
pub(super) struct Known {
    pub(super) receipt_id: ReceiptId,
    pub(super) body_digest: [u8; 32],
    pub(super) duplicates: u32,
    pub(super) conflicts: u32,
}

/// An event that is new, with its place.
pub(super) struct Placed<'a> {
    pub(super) event: &'a NewEvent,
    pub(super) position: Position,
    /// Repeats of it in the same batch.
    pub(super) duplicates: u32,
    pub(super) conflicts: u32,
}

/// Accepts a batch inside the writer's transaction. Because there is one writer, what is unknown now stays unknown until the
/// commit.
pub(super) async fn accept(
    connection: &mut SqliteConnection,
    batch: Vec<NewEvent>,
    shards: ShardCount,
) -> Result<Vec<Verdict>> {
    let (key_of, firsts) = group(&batch);
    let revoked = rows::find_revoked(connection, &batch).await?;
    let deleted = rows::find_deleted(connection, &batch).await?;
    let mut known = rows::find_known(connection, &batch, &firsts).await?;
    let mut heads = Heads::read(connection).await?;

    let mut verdicts = Vec::with_capacity(batch.len());
    let mut placed: Vec<Placed<'_>> = Vec::new();
    // Where a new key's event stands in `placed`.
    let mut new_at: HashMap<usize, usize> = HashMap::new();
    for (event, key) in batch.iter().zip(key_of) {
        verdicts.push(if deleted.contains(&event.source_no) {
            Verdict::SourceDeleted
        } else if event.secret_no.is_some_and(|no| revoked.contains(&no)) {
            Verdict::Revoked
        } else if let Some(first) = known.get_mut(&key) {
            repeat(event, first.receipt_id, first.body_digest, &mut first.duplicates, &mut first.conflicts)
        } else if let Some(first) = new_at.get(&key).map(|index| &mut placed[*index]) {
            let (id, digest) = (first.event.receipt_id, first.event.body_digest);
            repeat(event, id, digest, &mut first.duplicates, &mut first.conflicts)
        } else {
            let position = heads.next(event.shard(shards))?;
            new_at.insert(key, placed.len());
            placed.push(Placed { event, position, duplicates: 0, conflicts: 0 });
            Verdict::Accepted { position }
        });
    }

    rows::insert_receipts(connection, &placed).await?;
    rows::insert_events(connection, &placed).await?;
    rows::insert_log(connection, &placed).await?;
    heads.write(connection).await?;
    rows::count_repeats(connection, known.values()).await?;
    Ok(verdicts)
}

fn repeat(
    event: &NewEvent,
    first: ReceiptId,
    digest: [u8; 32],
    duplicates: &mut u32,
    conflicts: &mut u32,
) -> Verdict {
    if event.body_digest == digest {
        *duplicates += 1;
        Verdict::Duplicate { first }
    } else {
        *conflicts += 1;
        Verdict::Conflict { first }
    }
}

/// The distinct keys of a batch: for each event the number of its key, and for each key its first event.
fn group(batch: &[NewEvent]) -> (Vec<usize>, Vec<usize>) {
    let mut numbers = HashMap::with_capacity(batch.len());
    let mut firsts = Vec::with_capacity(batch.len());
    let key_of = batch
        .iter()
        .enumerate()
        .map(|(index, event)| {
            *numbers
                .entry((event.tenant_no, event.provider.as_str(), event.event_id.as_str()))
                .or_insert_with(|| {
                    firsts.push(index);
                    firsts.len() - 1
                })
        })
        .collect();
    (key_of, firsts)
}

/// The last position of each shard, while a batch takes new ones.
struct Heads {
    heads: Vec<u64>,
    moved: Vec<bool>,
}

impl Heads {
    async fn read(connection: &mut SqliteConnection) -> Result<Self> {
        let sql = "SELECT head FROM log_heads ORDER BY shard";
        let rows = sqlx::query(sql).fetch_all(connection).await.map_err(statement)?;
        let heads = rows.iter().map(|row| unsigned(row, "head")).collect::<Result<Vec<u64>>>()?;
        Ok(Self { moved: vec![false; heads.len()], heads })
    }

    fn next(&mut self, shard: Shard) -> Result<Position> {
        let index = usize::from(shard.0);
        let head = self.heads.get_mut(index).ok_or_else(|| corrupt("log_heads.shard"))?;
        *head += 1;
        self.moved[index] = true;
        Ok(Position { shard, n: *head })
    }

    async fn write(&self, connection: &mut SqliteConnection) -> Result<()> {
        for shard in (0_u8..).take(self.heads.len()) {
            let index = usize::from(shard);
            if self.moved[index] {
                sqlx::query("UPDATE log_heads SET head = ? WHERE shard = ?")
                    .bind(signed(self.heads[index], "a position")?)
                    .bind(shard)
                    .execute(&mut *connection)
                    .await
                    .map_err(statement)?;
            }
        }
        Ok(())
    }
}
