//! A store that fails where a test wants it to.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use portero_store::{
    ClaimedLane, DeadLetter, DynStore, Error, ErrorKind, Hint, HintStore, Hints, LaneFlush, LaneKey,
    LaneRequest, LaneStore, LogEntry, LogPage, LogStore, NewSession, PageRequest, ParkedListing, Result,
    Roll, StoredEvent,
};
use portero_types::{EntityHash, Generation, LaneCount, LaneNo, ReceiptId, SessionId, Shard, SubscriptionNo};
use tokio::sync::watch;

/// What becomes of the next flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushes {
    /// They are written.
    Work,
    /// They are written, and nobody hears of it.
    LoseAnswer,
    /// They are not written, and nobody hears of it.
    LoseBoth,
}

/// Passes calls on to a real store, but for what is switched.
pub struct Faulty {
    inner: DynStore,
    flushes: Mutex<Flushes>,
    /// Flushes that were asked for: lane, its number, watermark.
    pub asked: Mutex<Vec<(LaneNo, u64, u64)>>,
    /// Closed, flushes wait before they are written.
    pub flush_gate: Gate,
    /// Closed, renewals wait before they are made.
    pub renew_gate: Gate,
    poisonous: Mutex<HashSet<ReceiptId>>,
    /// Nobody can listen to hints.
    pub is_deaf: AtomicBool,
    /// How often it was listened.
    pub listened: AtomicUsize,
    broken: watch::Sender<usize>,
}

/// Lets calls through, or not.
pub struct Gate(watch::Sender<bool>);

impl Gate {
    fn new() -> Self {
        Self(watch::Sender::new(true))
    }

    pub fn close(&self) {
        self.0.send_replace(false);
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn pass(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

impl Faulty {
    pub fn new(inner: DynStore) -> Arc<Self> {
        Arc::new(Self {
            inner,
            flushes: Mutex::new(Flushes::Work),
            asked: Mutex::default(),
            flush_gate: Gate::new(),
            renew_gate: Gate::new(),
            poisonous: Mutex::default(),
            is_deaf: AtomicBool::new(false),
            listened: AtomicUsize::new(0),
            broken: watch::Sender::new(0),
        })
    }

    pub fn flushes(&self, what: Flushes) {
        *self.flushes.lock().expect("sound") = what;
    }

    /// From now on whoever reads this event's body panics.
    pub fn poison(&self, receipt: ReceiptId) {
        self.poisonous.lock().expect("sound").insert(receipt);
    }

    /// Breaks the connections of those who listen.
    pub fn break_listeners(&self) {
        self.broken.send_modify(|times| *times += 1);
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::OutcomeUnknown, "the connection broke at the commit")
}

#[async_trait]
impl LaneStore for Faulty {
    async fn generation(&self) -> Result<Generation> {
        self.inner.generation().await
    }

    async fn raise_generation(&self, seen: Generation) -> Result<Generation> {
        self.inner.raise_generation(seen).await
    }

    async fn incarnation(&self) -> Result<Generation> {
        self.inner.incarnation().await
    }

    async fn open_session(&self, session: &NewSession) -> Result<()> {
        self.renew_gate.pass().await;
        self.inner.open_session(session).await
    }

    async fn renew_session(&self, session: SessionId, ttl: Duration) -> Result<()> {
        self.renew_gate.pass().await;
        self.inner.renew_session(session, ttl).await
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.inner.close_session(session).await
    }

    async fn claim_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: LaneCount,
        weight: u32,
    ) -> Result<Vec<ClaimedLane>> {
        self.inner.claim_lanes(session, subscription, lanes, weight).await
    }

    async fn attend(&self, session: SessionId, subscription: SubscriptionNo, weight: u32) -> Result<()> {
        self.inner.attend(session, subscription, weight).await
    }

    async fn roll(&self, session: SessionId) -> Result<Roll> {
        self.inner.roll(session).await
    }

    async fn join(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> Result<()> {
        self.inner.join(session, subscription, instance, boot).await
    }

    async fn leave(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        instance: &str,
        boot: &str,
    ) -> Result<()> {
        self.inner.leave(session, subscription, instance, boot).await
    }

    async fn flush_lanes(&self, session: SessionId, flushes: &[LaneFlush]) -> Result<Vec<LaneKey>> {
        let asked = flushes.iter().map(|flush| (flush.lane.lane, flush.state.seq, flush.state.watermark));
        self.asked.lock().expect("sound").extend(asked);
        self.flush_gate.pass().await;
        let what = *self.flushes.lock().expect("sound");
        match what {
            Flushes::Work => self.inner.flush_lanes(session, flushes).await,
            Flushes::LoseAnswer => {
                self.inner.flush_lanes(session, flushes).await?;
                Err(unknown())
            }
            Flushes::LoseBoth => Err(unknown()),
        }
    }

    async fn release_lanes(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
        lanes: Option<&[LaneNo]>,
    ) -> Result<()> {
        self.inner.release_lanes(session, subscription, lanes).await
    }

    async fn request(&self, subscription: SubscriptionNo, request: LaneRequest) -> Result<()> {
        self.inner.request(subscription, request).await
    }

    async fn take_requests(
        &self,
        session: SessionId,
        subscription: SubscriptionNo,
    ) -> Result<Vec<LaneRequest>> {
        self.inner.take_requests(session, subscription).await
    }

    async fn parked_entities(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, EntityHash)>,
        limit: u32,
    ) -> Result<Vec<ParkedListing>> {
        self.inner.parked_entities(subscription, after, limit).await
    }

    async fn dead_letters(
        &self,
        subscription: SubscriptionNo,
        after: Option<(LaneNo, u64)>,
        limit: u32,
    ) -> Result<Vec<(LaneNo, DeadLetter)>> {
        self.inner.dead_letters(subscription, after, limit).await
    }
}

#[async_trait]
impl LogStore for Faulty {
    async fn heads(&self) -> Result<Vec<u64>> {
        self.inner.heads().await
    }

    async fn page(&self, request: PageRequest) -> Result<LogPage> {
        self.inner.page(request).await
    }

    async fn entries_at(&self, shard: Shard, positions: &[u64]) -> Result<Vec<LogEntry>> {
        self.inner.entries_at(shard, positions).await
    }

    async fn events(&self, receipts: &[ReceiptId]) -> Result<Vec<StoredEvent>> {
        let is_poisonous = {
            let poisonous = self.poisonous.lock().expect("sound");
            receipts.iter().any(|receipt| poisonous.contains(receipt))
        };
        assert!(!is_poisonous, "a defect that this event brings to light");
        self.inner.events(receipts).await
    }
}

#[async_trait]
impl HintStore for Faulty {
    async fn hint(&self, hint: Hint) -> Result<()> {
        self.inner.hint(hint).await
    }

    async fn listen(&self) -> Result<Box<dyn Hints>> {
        if self.is_deaf.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "nobody listens"));
        }
        self.listened.fetch_add(1, Ordering::SeqCst);
        let mut broken = self.broken.subscribe();
        broken.mark_unchanged();
        Ok(Box::new(Breakable { inner: self.inner.listen().await?, broken }))
    }
}

struct Breakable {
    inner: Box<dyn Hints>,
    broken: watch::Receiver<usize>,
}

#[async_trait]
impl Hints for Breakable {
    async fn next(&mut self) -> Result<Hint> {
        tokio::select! {
            _ = self.broken.changed() => Err(Error::new(ErrorKind::Unavailable, "the connection broke")),
            hint = self.inner.next() => hint,
        }
    }
}
