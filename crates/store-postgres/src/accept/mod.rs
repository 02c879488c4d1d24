//! Accepting a batch: sort and thin out its keys, run the accept statement, then look up what was there before.

mod batch;
mod repeats;
mod settle;
mod stalled;
mod statement;

use std::time::Duration;

use async_trait::async_trait;
use portero_store::{AcceptStore, Error, ErrorKind, Receipt, Result, Verdict};
use portero_types::{
    NewEvent, Position, ProviderName, ReceiptId, RequestId, SecretNo, Shard, SourceNo, TenantNo, Timestamp,
};
use sqlx::postgres::PgRow;
use uuid::Uuid;

pub(crate) use self::statement::Statement;

use self::batch::{Batch, Count};
use crate::PostgresStore;
use crate::error::{Effect, corrupt};
use crate::lease::rows;
use crate::row::{byte, get, parse, unsigned};

#[async_trait]
impl AcceptStore for PostgresStore {
    async fn accept(&self, events: &[NewEvent]) -> Result<Vec<Verdict>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut verdicts = self.accept_keys(events).await?;
        // An event is left over when the one that stood for its key was refused for another secret or source: it stands for
        // itself.
        loop {
            let left: Vec<usize> = (0..events.len()).filter(|index| verdicts[*index].is_none()).collect();
            if left.is_empty() {
                return Ok(verdicts.into_iter().flatten().collect());
            }
            let nothing = !verdicts.iter().any(|verdict| matches!(verdict, Some(Verdict::Accepted { .. })));
            let again: Vec<_> = left.iter().map(|index| events[*index].clone()).collect();
            let found = self.accept_keys(&again).await.map_err(|error| in_doubt(error, nothing))?;
            for (index, verdict) in left.into_iter().zip(found) {
                verdicts[index] = verdict;
            }
        }
    }

    async fn settle_accepts(&self, patience: Duration) -> Result<()> {
        settle::settle(&self.pools.control, patience).await
    }

    async fn count_repeats(&self, counts: &[(ReceiptId, u32)]) -> Result<()> {
        if counts.is_empty() {
            return Ok(());
        }
        let counts: Vec<_> = counts
            .iter()
            .map(|(id, count)| (*id, Count { duplicates: i64::from(*count), conflicts: 0 }))
            .collect();
        repeats::add(&self.pools.repeats, &counts, Effect::Commits).await
    }

    async fn receipt_by_event_id(
        &self,
        tenant_no: TenantNo,
        provider: &ProviderName,
        event_id: &str,
    ) -> Result<Option<Receipt>> {
        if event_id.contains('\0') {
            return Ok(None);
        }
        let query = sqlx::query(
            "SELECT r.*, l.shard, l.position FROM receipts r LEFT JOIN log l USING (receipt_id)
             WHERE r.tenant_no = $1 AND r.provider = $2 AND r.event_id = $3",
        )
        .bind(tenant_no.0)
        .bind(provider.as_str())
        .bind(event_id);
        rows(&self.pools.admin, query, Effect::None).await?.first().map(receipt).transpose()
    }

    async fn receipt(&self, tenant_no: TenantNo, receipt_id: ReceiptId) -> Result<Option<Receipt>> {
        let query = sqlx::query(
            "SELECT r.*, l.shard, l.position FROM receipts r LEFT JOIN log l USING (receipt_id)
             WHERE r.tenant_no = $1 AND r.receipt_id = $2",
        )
        .bind(tenant_no.0)
        .bind(receipt_id.0);
        rows(&self.pools.admin, query, Effect::None).await?.first().map(receipt).transpose()
    }
}

impl PostgresStore {
    /// Accepts one event of each key. Only those have no verdict whose key's event was refused for its secret or
    /// source; that one has.
    async fn accept_keys(&self, events: &[NewEvent]) -> Result<Vec<Option<Verdict>>> {
        let statement = self.accept_statement().await?;
        let batch = Batch::new(events);
        let placed = statement.run(&self.pools, &batch).await?;
        let mut verdicts = batch.verdicts(&placed);
        let repeated = batch.repeated(&placed);
        if repeated.is_empty() && batch.has_each_key_once() {
            return Ok(verdicts);
        }
        let found = repeats::find(&self.pools.repeats, &batch, &repeated).await;
        let found = found.map_err(|error| in_doubt(error, placed.is_empty()))?;
        batch.judge_repeats(&mut verdicts, &found);
        if batch.is_lost(&verdicts) {
            let lost =
                Error::new(ErrorKind::Unavailable, "a receipt was removed while its repeat was looked up");
            return Err(in_doubt(lost, placed.is_empty()));
        }
        let counts = batch.counts(&verdicts);
        if !counts.is_empty() {
            repeats::count(&self.pools.repeats, &counts).await;
        }
        Ok(verdicts)
    }
}

/// What to answer when verdicts cannot be found out: the new events of the batch are committed by then.
fn in_doubt(error: Error, nothing_was_written: bool) -> Error {
    if nothing_was_written {
        return error;
    }
    Error::with_source(
        ErrorKind::OutcomeUnknown,
        "events were committed, but what became of their repeats could not be found out",
        error,
    )
}

fn receipt(row: &PgRow) -> Result<Receipt> {
    let position = match get::<Option<i16>>(row, "shard")? {
        Some(_) => Some(Position { shard: Shard(byte(row, "shard")?), n: unsigned(row, "position")? }),
        None => None,
    };
    Ok(Receipt {
        receipt_id: ReceiptId(get(row, "receipt_id")?),
        tenant_no: TenantNo(get(row, "tenant_no")?),
        source_no: SourceNo(get(row, "source_no")?),
        secret_no: get::<Option<i64>>(row, "secret_no")?.map(SecretNo),
        provider: parse(row, "provider")?,
        event_id: get(row, "event_id")?,
        id_derived: get(row, "id_derived")?,
        event_type: get(row, "event_type")?,
        ordering_key: get(row, "ordering_key")?,
        body_digest: digest(row)?,
        received_at: Timestamp::from_micros(get(row, "received_at")?),
        expires_at: Timestamp::from_micros(get(row, "expires_at")?),
        request_id: RequestId(get::<Uuid>(row, "request_id")?),
        position,
        duplicates: unsigned(row, "duplicates")?,
        conflicts: unsigned(row, "conflicts")?,
    })
}

fn digest(row: &PgRow) -> Result<[u8; 32]> {
    get::<&[u8]>(row, "body_digest")?.try_into().map_err(|_| corrupt("receipts.body_digest"))
}
