//! Sessions own lanes; lanes progress by an append-only journal; what failed, waits or died has tables of its own.
//!
//! Locks, always in this order: subscription (claims and deletion are serial), session, lanes by number. A flush holds its
//! session's and its lanes' rows in share mode to its commit, so that fencing a session, releasing a lane and claiming it wait
//! for flushes under way and no later one gets through.

mod claim;
mod flush;
mod parked;
mod sessions;

use std::time::Duration;

use async_trait::async_trait;
use portero_store::{
    ClaimedLane, DeadLetter, Error, ErrorKind, LaneFlush, LaneKey, LaneStore, NewSession, Result,
};
use portero_types::{Generation, LaneCount, LaneNo, SessionId, SubscriptionNo};

use crate::PostgresStore;
use crate::error::{Effect, corrupt};
use crate::lease::rows;
use crate::row::get;

#[async_trait]
impl LaneStore for PostgresStore {
    async fn generation(&self) -> Result<Generation> {
        let query = sqlx::query("SELECT generation FROM installation");
        let found = rows(&self.pools.control, query, Effect::None).await?;
        let row = found.first().ok_or_else(|| corrupt("installation"))?;
        get(row, "generation").map(Generation)
    }

    async fn open_session(&self, session: &NewSession) -> Result<()> {
        sessions::open(&self.pools.control, session).await
    }

    async fn renew_session(&self, session: SessionId, ttl: Duration) -> Result<()> {
        sessions::renew(&self.pools.control, session, ttl).await
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        sessions::close(&self.pools.control, session).await
    }

    async fn claim_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: LaneCount,
    ) -> Result<Vec<ClaimedLane>> {
        let shards = self.shards().await?;
        claim::claim(&self.pools.control, shards, session, subscription, lanes).await
    }

    async fn flush_lanes(&self, session: SessionId, flushes: &[LaneFlush]) -> Result<Vec<LaneKey>> {
        flush::flush(&self.pools.flush, session, flushes).await
    }

    async fn release_lanes(&self, session: SessionId, subscription: SubscriptionNo) -> Result<()> {
        sessions::release(&self.pools.control, session, subscription).await
    }

    async fn dead_letters(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, u64)>,
        limit: u32,
    ) -> Result<Vec<(LaneNo, DeadLetter)>> {
        parked::dead_letters(&self.pools.admin, subscription, after, limit).await
    }
}

fn fenced() -> Error {
    Error::new(ErrorKind::Fenced, "this session was fenced or has expired")
}
