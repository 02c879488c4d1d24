//! Sessions, lanes, journal, parked entities, dead letters.
//!
//! One process owns the database and one writer writes, so a session that is opened fences all others in one transaction, and
//! no flush can be under way beside a claim.

mod claim;
mod flush;
mod history;
mod load;
mod requests;
mod session;
mod share;

use std::time::Duration;

use async_trait::async_trait;
use portero_store::{
    ClaimedLane, DeadLetter, Hint, HintStore as _, LaneFlush, LaneKey, LaneRequest, LaneStore, NewSession,
    ParkedListing, Result, Roll,
};
use portero_types::{EntityHash, Generation, LaneCount, LaneNo, SessionId, SubscriptionNo};

use crate::SqliteStore;

#[async_trait]
impl LaneStore for SqliteStore {
    async fn generation(&self) -> Result<Generation> {
        history::generation(self.readers.pool()).await
    }

    async fn raise_generation(&self, seen: Generation) -> Result<Generation> {
        self.writer.write(move |connection| Box::pin(history::raise(connection, seen))).await
    }

    async fn incarnation(&self) -> Result<Generation> {
        let shards = self.shards().await?;
        // Before anything is accepted, so that no lost position was given again.
        self.writer.write(move |connection| Box::pin(claim::cut_all(connection, shards))).await?;
        history::recognise(self).await
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
        weight: u32,
    ) -> Result<Vec<ClaimedLane>> {
        let shards = self.shards().await?;
        self.writer
            .write(move |connection| {
                Box::pin(claim::claim(connection, session, subscription, lanes, weight, shards))
            })
            .await
    }

    async fn attend(&self, session: SessionId, subscription: SubscriptionNo, weight: u32) -> Result<()> {
        let attend = self
            .writer
            .write(move |connection| Box::pin(share::attend(connection, session, subscription, weight)));
        if attend.await? {
            self.hint(Hint::Lanes).await?;
        }
        Ok(())
    }

    async fn roll(&self, session: SessionId) -> Result<Roll> {
        share::roll(self.readers.pool(), session).await
    }

    async fn join(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> Result<()> {
        let (instance, boot) = (instance.to_owned(), boot.to_owned());
        self.writer
            .write(move |connection| Box::pin(share::join(connection, session, subscription, instance, boot)))
            .await?;
        self.hint(Hint::Lanes).await
    }

    async fn leave(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> Result<()> {
        let (instance, boot) = (instance.to_owned(), boot.to_owned());
        self.writer
            .write(move |connection| {
                Box::pin(share::leave(connection, session, subscription, instance, boot))
            })
            .await
    }

    async fn flush_lanes(&self, session: SessionId, flushes: &[LaneFlush]) -> Result<Vec<LaneKey>> {
        let flushes = flushes.to_vec();
        self.writer.write(move |connection| Box::pin(flush::flush(connection, session, flushes))).await
    }

    async fn release_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: Option<&[LaneNo]>,
    ) -> Result<()> {
        let lanes = lanes.map(<[LaneNo]>::to_vec);
        self.writer
            .write(move |connection| Box::pin(share::release(connection, session, subscription, lanes)))
            .await?;
        self.hint(Hint::Lanes).await
    }

    async fn request(&self, subscription: SubscriptionNo, request: LaneRequest) -> Result<()> {
        self.writer
            .write(move |connection| Box::pin(requests::ask(connection, subscription, request)))
            .await?;
        self.hint(Hint::Lanes).await
    }

    async fn take_requests(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
    ) -> Result<Vec<LaneRequest>> {
        self.writer.write(move |connection| Box::pin(requests::take(connection, session, subscription))).await
    }

    async fn parked_entities(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, EntityHash)>,
        limit: u32,
    ) -> Result<Vec<ParkedListing>> {
        requests::parked(self.readers.pool(), subscription, after, limit).await
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
