//! Sessions, lanes, journal, parked entities, dead letters.
//!
//! One process owns the database and one writer writes, so a session that is opened fences all others in one transaction, and
//! no flush can be under way beside a claim.

mod claim;
mod flush;
mod load;
mod session;

use std::time::Duration;

use async_trait::async_trait;
use portero_store::{ClaimedLane, DeadLetter, LaneFlush, LaneKey, LaneStore, NewSession, Result};
use portero_types::{Generation, LaneCount, LaneNo, SessionId, SubscriptionNo};

use crate::SqliteStore;
use crate::error::statement;
use crate::row::get;

#[async_trait]
impl LaneStore for SqliteStore {
    async fn generation(&self) -> Result<Generation> {
        let sql = "SELECT generation FROM installation";
        let row = sqlx::query(sql).fetch_one(self.readers.pool()).await.map_err(statement)?;
        get(&row, "generation").map(Generation)
    }

    async fn open_session(&self, new: &NewSession) -> Result<()> {
        let new = new.clone();
        self.writer.write(move |connection| Box::pin(session::open(connection, new))).await
    }

    async fn renew_session(&self, session: SessionId, ttl: Duration) -> Result<()> {
        self.writer.write(move |connection| Box::pin(session::renew(connection, session, ttl))).await
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.writer.write(move |connection| Box::pin(session::close(connection, session))).await
    }

    async fn claim_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: LaneCount,
    ) -> Result<Vec<ClaimedLane>> {
        let shards = self.shards().await?;
        self.writer
            .write(move |connection| Box::pin(claim::claim(connection, session, subscription, lanes, shards)))
            .await
    }

    async fn flush_lanes(&self, session: SessionId, flushes: &[LaneFlush]) -> Result<Vec<LaneKey>> {
        let flushes = flushes.to_vec();
        self.writer.write(move |connection| Box::pin(flush::flush(connection, session, flushes))).await
    }

    async fn release_lanes(&self, session: SessionId, subscription: SubscriptionNo) -> Result<()> {
        self.writer.write(move |connection| Box::pin(claim::release(connection, session, subscription))).await
    }

    async fn dead_letters(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, u64)>,
        limit: u32,
    ) -> Result<Vec<(LaneNo, DeadLetter)>> {
        load::dead_letters(self.readers.pool(), subscription, after, limit).await
    }
}
