//! A store in memory with faults on demand, for this crate's tests.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use portero_directory::Source;
use portero_store::{
    AcceptStore, Error, ErrorKind, NewRejection, Page, Receipt, Rejection, RejectionStore, Result,
    StoredRejection, Verdict,
};
use portero_types::{
    EntityHash, NewEvent, Position, ProviderName, ReceiptId, Redacted, RequestId, SecretNo, Shard, SourceId,
    SourceNo, TenantId, TenantNo, Timestamp,
};
use tokio::sync::Semaphore;

use crate::{SecretNotWritten, SecretWriter};

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Unavailable,
    /// The commit happened, its answer was lost.
    LostAnswer,
    /// The connection broke before the commit.
    LostCommit,
    Corrupt,
    Panic,
}

#[derive(Default)]
pub(crate) struct FakeState {
    pub(crate) rows: HashMap<(TenantNo, String, String), (ReceiptId, [u8; 32])>,
    /// Event ids in log order.
    pub(crate) log: Vec<String>,
    /// Every call's event ids, failed calls too.
    pub(crate) calls: Vec<Vec<String>>,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) refused: HashSet<String>,
    pub(crate) revoked: HashSet<SecretNo>,
    pub(crate) deleted: HashSet<SourceNo>,
    /// Repeats counted apart from commits.
    pub(crate) repeats: HashMap<ReceiptId, u32>,
    pub(crate) in_flight: usize,
    pub(crate) in_flight_max: usize,
}

/// Each call takes a permit of `gate` before it does anything, and does not give it back.
pub(crate) struct FakeStore {
    pub(crate) state: Mutex<FakeState>,
    pub(crate) gate: Semaphore,
}

impl FakeStore {
    /// One whose gate stands open.
    pub(crate) fn open() -> Arc<Self> {
        Self::gated(Semaphore::MAX_PERMITS / 2)
    }

    /// One that lets so many calls through.
    pub(crate) fn gated(calls: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), gate: Semaphore::new(calls) })
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut FakeState) -> T) -> T {
        look(&mut self.state.lock().expect("no test panics in here"))
    }

    /// Waits until so many calls are at the gate.
    pub(crate) async fn until_in_flight(&self, calls: usize) {
        while self.with(|state| state.in_flight) < calls {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl AcceptStore for FakeStore {
    async fn accept(&self, batch: &[NewEvent]) -> Result<Vec<Verdict>> {
        self.with(|state| {
            state.calls.push(batch.iter().map(|event| event.event_id.clone()).collect());
            state.in_flight += 1;
            state.in_flight_max = state.in_flight_max.max(state.in_flight);
        });
        self.gate.acquire().await.expect("never closed").forget();
        let fault = self.with(|state| {
            state.in_flight -= 1;
            state.faults.pop_front()
        });
        match fault {
            Some(Fault::Unavailable) => return Err(Error::new(ErrorKind::Unavailable, "down")),
            Some(Fault::LostCommit) => return Err(Error::new(ErrorKind::OutcomeUnknown, "lost")),
            Some(Fault::Corrupt) => return Err(Error::new(ErrorKind::Corrupt, "a row is odd")),
            Some(Fault::Panic) => panic!("the store panics, as the test wants"),
            Some(Fault::LostAnswer) | None => {}
        }
        let verdicts = self.with(|state| commit(state, batch))?;
        match fault {
            Some(_) => Err(Error::new(ErrorKind::OutcomeUnknown, "lost")),
            None => Ok(verdicts),
        }
    }

    async fn settle_accepts(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    async fn count_repeats(&self, counts: &[(ReceiptId, u32)]) -> Result<()> {
        self.with(|state| {
            if state.faults.pop_front().is_some() {
                return Err(Error::new(ErrorKind::Unavailable, "down"));
            }
            for (receipt_id, count) in counts {
                *state.repeats.entry(*receipt_id).or_default() += count;
            }
            Ok(())
        })
    }

    async fn receipt_by_event_id(&self, _: TenantNo, _: &ProviderName, _: &str) -> Result<Option<Receipt>> {
        Ok(None)
    }

    async fn receipt(&self, _: TenantNo, _: ReceiptId) -> Result<Option<Receipt>> {
        Ok(None)
    }
}

fn commit(state: &mut FakeState, batch: &[NewEvent]) -> Result<Vec<Verdict>> {
    if batch.iter().any(|event| state.refused.contains(&event.event_id)) {
        return Err(Error::new(ErrorKind::Refused, "a row is refused"));
    }
    let verdicts = batch.iter().map(|event| {
        if state.deleted.contains(&event.source_no) {
            return Verdict::SourceDeleted;
        }
        if event.secret_no.is_some_and(|no| state.revoked.contains(&no)) {
            return Verdict::Revoked;
        }
        let key = (event.tenant_no, event.provider.to_string(), event.event_id.clone());
        match state.rows.get(&key) {
            Some((first, digest)) if *digest == event.body_digest => Verdict::Duplicate { first: *first },
            Some((first, _)) => Verdict::Conflict { first: *first },
            None => {
                state.rows.insert(key, (event.receipt_id, event.body_digest));
                state.log.push(event.event_id.clone());
                state.events.push(event.clone());
                let n = u64::try_from(state.log.len()).expect("small");
                Verdict::Accepted { position: Position { shard: Shard(0), n } }
            }
        }
    });
    Ok(verdicts.collect())
}

/// Rejections in memory. Each record takes a permit of `gate` before it does anything, and does not give it back.
pub(crate) struct FakeRejections {
    pub(crate) rows: Mutex<Vec<NewRejection>>,
    pub(crate) swept: Mutex<Vec<(Timestamp, u32)>>,
    pub(crate) down: AtomicBool,
    pub(crate) gate: Semaphore,
}

impl FakeRejections {
    pub(crate) fn open() -> Arc<Self> {
        let gate = Semaphore::new(Semaphore::MAX_PERMITS / 2);
        Arc::new(Self { rows: Mutex::default(), swept: Mutex::default(), down: AtomicBool::new(false), gate })
    }

    pub(crate) fn rows(&self) -> Vec<NewRejection> {
        self.rows.lock().expect("no test panics in here").clone()
    }
}

#[async_trait]
impl RejectionStore for FakeRejections {
    async fn record(&self, rejections: Vec<NewRejection>) -> Result<()> {
        self.gate.acquire().await.expect("never closed").forget();
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "down"));
        }
        self.rows.lock().expect("no test panics in here").extend(rejections);
        Ok(())
    }

    async fn list(
        &self,
        _: &TenantId,
        _: &SourceId,
        _: Option<RequestId>,
        _: u32,
    ) -> Result<Page<Rejection>> {
        Err(Error::new(ErrorKind::Unavailable, "the edge does not list"))
    }

    async fn get(&self, _: &TenantId, _: RequestId) -> Result<Option<StoredRejection>> {
        Err(Error::new(ErrorKind::Unavailable, "the edge does not look"))
    }

    async fn sweep(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let mut swept = self.swept.lock().expect("no test panics in here");
        swept.push((before, limit));
        // The first two find as many as they may.
        Ok(if swept.len() < 3 { u64::from(limit) } else { 7 })
    }
}

/// Takes secrets of handshakes. Each write takes a permit of `gate` before it does anything.
pub(crate) struct FakeSecrets {
    pub(crate) written: Mutex<Vec<(SourceNo, String)>>,
    pub(crate) answers: Mutex<std::result::Result<bool, SecretNotWritten>>,
    pub(crate) waiting: AtomicUsize,
    pub(crate) gate: Semaphore,
}

impl FakeSecrets {
    pub(crate) fn gated(writes: usize) -> Arc<Self> {
        let gate = Semaphore::new(writes);
        Arc::new(Self {
            written: Mutex::default(),
            answers: Mutex::new(Ok(true)),
            waiting: AtomicUsize::new(0),
            gate,
        })
    }

    pub(crate) fn written(&self) -> Vec<(SourceNo, String)> {
        self.written.lock().expect("no test panics in here").clone()
    }

    pub(crate) fn answer(&self, answer: std::result::Result<bool, SecretNotWritten>) {
        *self.answers.lock().expect("no test panics in here") = answer;
    }
}

#[async_trait]
impl SecretWriter for FakeSecrets {
    async fn write(
        &self,
        source: &Source,
        secret: &Redacted<String>,
        _: Timestamp,
    ) -> std::result::Result<bool, SecretNotWritten> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.expect("never closed").forget();
        let secret = (source.no, secret.expose_secret().clone());
        self.written.lock().expect("no test panics in here").push(secret);
        *self.answers.lock().expect("no test panics in here")
    }
}

/// An event of a tenant named `acme`; `n` makes the receipt id.
pub(crate) fn event(n: u128, event_id: &str, ordering_key: &str) -> NewEvent {
    let now = Timestamp::from_secs(1_750_000_000);
    let tenant = TenantId::new("acme").expect("valid");
    NewEvent {
        receipt_id: ReceiptId::new(now, n),
        tenant_no: TenantNo(1),
        source_no: SourceNo(1),
        secret_no: None,
        provider: ProviderName::new("stripe").expect("valid"),
        event_id: event_id.to_owned(),
        id_derived: false,
        event_type: String::new(),
        ordering_key: ordering_key.to_owned(),
        entity: EntityHash::of(&tenant, ordering_key),
        body_digest: [1; 32],
        received_at: now,
        expires_at: now,
        request_id: RequestId::new(now, n),
        trace_parent: String::new(),
        body_bytes: 2,
        content: Bytes::from_static(b"sealed"),
    }
}
