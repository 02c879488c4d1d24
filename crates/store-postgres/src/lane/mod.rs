//! Sessions own lanes; lanes progress by an append-only journal; what failed, waits or died has tables of its own.
//!
//! Locks, always in this order: subscription (claims and deletion are serial), session, lanes by number. A flush holds its
//! session's and its lanes' rows in share mode to its commit, so that fencing a session, releasing a lane and claiming it wait
//! for flushes under way and no later one gets through.

mod claim;
mod flush;
mod history;
mod parked;
mod requests;
mod sessions;
mod share;

use std::time::Duration;

use async_trait::async_trait;
use portero_store::{
    ClaimedLane, DeadLetter, Error, ErrorKind, Hint, HintStore as _, LaneFlush, LaneKey, LaneRequest,
    LaneStore, NewSession, ParkedListing, Result, Roll, SchemaStore as _,
};
use portero_types::{EntityHash, Generation, LaneCount, LaneNo, SessionId, SubscriptionNo};

use crate::PostgresStore;

#[async_trait]
impl LaneStore for PostgresStore {
    async fn generation(&self) -> Result<Generation> {
        history::generation(&self.pools.control).await
    }

    async fn raise_generation(&self, seen: Generation) -> Result<Generation> {
        history::raise(&self.pools.control, seen).await
    }

    async fn incarnation(&self) -> Result<Generation> {
        let incarnation = self.identity().await?;
        // Before anything is accepted here, so that no lost position was given again.
        claim::cut_all(&self.pools.lanes, self.shards().await?).await?;
        history::recognise(&self.pools.control, &incarnation).await
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
        weight: u32,
    ) -> Result<Vec<ClaimedLane>> {
        let shards = self.shards().await?;
        claim::claim(&self.pools.lanes, shards, session, subscription, lanes, weight).await
    }

    async fn attend(&self, session: SessionId, subscription: SubscriptionNo, weight: u32) -> Result<()> {
        if share::attend(&self.pools.lanes, session, subscription, weight).await? {
            self.tell_of_lanes().await;
        }
        Ok(())
    }

    async fn roll(&self, session: SessionId) -> Result<Roll> {
        share::roll(&self.pools.control, session).await
    }

    async fn join(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> Result<()> {
        share::join(&self.pools.lanes, session, subscription, instance, boot).await?;
        self.tell_of_lanes().await;
        Ok(())
    }

    async fn leave(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> Result<()> {
        share::leave(&self.pools.lanes, session, subscription, instance, boot).await
    }

    async fn flush_lanes(&self, session: SessionId, flushes: &[LaneFlush]) -> Result<Vec<LaneKey>> {
        flush::flush(&self.pools.flush, session, flushes).await
    }

    async fn release_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: Option<&[LaneNo]>,
    ) -> Result<()> {
        share::release(&self.pools.lanes, session, subscription, lanes).await?;
        self.tell_of_lanes().await;
        Ok(())
    }

    async fn request(&self, subscription: SubscriptionNo, request: LaneRequest) -> Result<()> {
        requests::ask(&self.pools.admin, subscription, &request).await?;
        self.tell_of_lanes().await;
        Ok(())
    }

    async fn take_requests(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
    ) -> Result<Vec<LaneRequest>> {
        requests::take(&self.pools.lanes, session, subscription).await
    }

    async fn parked_entities(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, EntityHash)>,
        limit: u32,
    ) -> Result<Vec<ParkedListing>> {
        requests::parked(&self.pools.admin, subscription, after, limit).await
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

impl PostgresStore {
    /// After a change that others would find out by themselves, only later: a hint that is lost is no failure.
    async fn tell_of_lanes(&self) {
        if let Err(error) = self.hint(Hint::Lanes).await {
            tracing::debug!(%error, "other gateways were not told of a change of lanes");
        }
    }
}

fn fenced() -> Error {
    Error::new(ErrorKind::Fenced, "this session was fenced or has expired")
}
