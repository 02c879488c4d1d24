//! A store that does what the real ones do: commits in order per shard, sessions that expire by its own clock, lanes with
//! epochs, flushes that are atomic and hold their session to the commit.

mod claiming;
mod flushing;
mod places;
mod reading;

use std::collections::BTreeMap;

use portero_engine::{DeadLetter, Deferred, Detour, Entry, ParkedEntity};
use portero_types::{
    EntityHash, Epoch, LaneCount, LaneNo, ReceiptId, Shard, ShardCount, TenantNo, Timestamp,
};

use flushing::OpenFlush;
pub(crate) use places::Place;

use crate::planted::Planted;
use crate::time::SEC;
use crate::words::{Answer, Ask, Process, Session};

/// How long a session lives without renewal.
const TTL: u64 = 12 * SEC;

pub(crate) struct SessionRow {
    slot: usize,
    expires_at: u64,
    fenced: bool,
    /// For how many streams it wants lanes.
    weight: usize,
}

/// What is written of one lane.
#[derive(Default)]
pub(crate) struct LaneRow {
    pub(crate) owner: Option<Session>,
    pub(crate) epoch: i64,
    /// Epoch and number of the journal's last state.
    written: (i64, u64),
    pub(crate) watermark: u64,
    pub(crate) acked: Vec<u64>,
    pub(crate) detours: Vec<Detour>,
    pub(crate) parked: BTreeMap<EntityHash, ParkedEntity>,
    pub(crate) deferred: BTreeMap<u64, Deferred>,
    pub(crate) dead: BTreeMap<u64, DeadLetter>,
}

pub(crate) struct SimStore {
    pub(crate) shards: ShardCount,
    pub(crate) lanes: LaneCount,
    planted: Option<Planted>,
    logs: Vec<Vec<Entry>>,
    /// Events that retention has dropped.
    dropped: Vec<(Shard, u64)>,
    sessions: BTreeMap<Session, SessionRow>,
    rows: BTreeMap<LaneNo, LaneRow>,
    /// Flushes under way, by number.
    open: BTreeMap<u64, OpenFlush>,
}

/// What the store makes of a question.
pub(crate) enum Step {
    Answer(Answer),
    /// A lock is held: ask again a little later.
    Wait,
    /// A flush began.
    Began,
}

impl SimStore {
    pub(crate) fn new(shards: ShardCount, lanes: LaneCount, planted: Option<Planted>) -> Self {
        Self {
            shards,
            lanes,
            planted,
            logs: shards.shards().map(|_| Vec::new()).collect(),
            dropped: Vec::new(),
            sessions: BTreeMap::new(),
            rows: lanes.lanes().map(|lane| (lane, LaneRow::default())).collect(),
            open: BTreeMap::new(),
        }
    }

    fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    pub(crate) fn row(&self, lane: LaneNo) -> &LaneRow {
        &self.rows[&lane]
    }

    fn row_mut(&mut self, lane: LaneNo) -> &mut LaneRow {
        self.rows.get_mut(&lane).expect("all lanes have rows")
    }

    /// Commits an event and hands out its position.
    pub(crate) fn accept(
        &mut self,
        tenant: TenantNo,
        entity: EntityHash,
        body_bytes: u32,
        now: u64,
    ) -> Entry {
        let shard = entity.slot().shard(self.shards);
        let log = &mut self.logs[usize::from(shard.0)];
        let n = log.len() as u64 + 1;
        let at = Timestamp::from_micros(i64::try_from(now).expect("small"));
        let receipt_id = ReceiptId::new(at, u128::from(n) << 8 | u128::from(shard.0));
        let entry = Entry { n, tenant, entity, receipt_id, body_bytes, accepted_at: at };
        log.push(entry);
        entry
    }

    pub(crate) fn drop_event(&mut self, shard: Shard, n: u64) {
        self.dropped.push((shard, n));
    }

    pub(crate) fn is_dropped(&self, shard: Shard, n: u64) -> bool {
        self.dropped.contains(&(shard, n))
    }

    fn log(&self, shard: Shard) -> &[Entry] {
        &self.logs[usize::from(shard.0)]
    }

    /// Whether a session may write.
    pub(crate) fn is_alive(&self, session: Session, now: u64) -> bool {
        self.sessions.get(&session).is_some_and(|row| !row.fenced && row.expires_at > now)
    }

    /// Whether a session was fenced, so that others may have its lanes.
    pub(crate) fn is_fenced(&self, session: Session) -> bool {
        self.sessions.get(&session).is_none_or(|row| row.fenced)
    }

    /// Whether the session owns the lane under that epoch.
    pub(crate) fn owns(&self, session: Session, lane: LaneNo, epoch: Epoch) -> bool {
        let row = self.row(lane);
        row.owner == Some(session) && row.epoch == epoch.0 && !self.is_fenced(session)
    }

    pub(crate) fn ask(&mut self, now: u64, from: Process, number: u64, ask: Ask) -> Step {
        Step::Answer(match ask {
            Ask::Open { session, slot } => {
                let others = |row: &SessionRow| row.slot == slot;
                return self.fence(
                    others,
                    || Answer::Done,
                    |store| {
                        let row = SessionRow { slot, expires_at: now + TTL, fenced: false, weight: 0 };
                        store.sessions.insert(session, row);
                    },
                );
            }
            Ask::Renew { session } => match self.sessions.get_mut(&session).filter(|row| !row.fenced) {
                Some(row) => {
                    row.expires_at = now + TTL;
                    Answer::Done
                }
                None => Answer::Fenced,
            },
            Ask::Close { session } => {
                if let Some(row) = self.sessions.get_mut(&session) {
                    row.fenced = true;
                }
                return self.fence(|_| false, || Answer::Done, |_| {});
            }
            Ask::Roll { session, weight } => self.roll(now, session, weight),
            Ask::Claim { session } => return self.claim(now, session),
            Ask::Release { session, lanes } => return self.release(session, lanes.as_deref()),
            Ask::Flush { session, flushes } => return self.begin_flush(now, from, number, session, flushes),
            Ask::Page { shard, after } => self.page(shard, after),
            Ask::Entries { lane, positions } => self.entries_at(lane, &positions),
            Ask::Side { lane, read } => self.side(lane, read),
        })
    }

    /// Whether a fenced session has a flush under way.
    fn waits_for_a_flush(&self) -> bool {
        let is_held = self.open.values().any(|flush| self.is_fenced(flush.session));
        is_held && !self.has(Planted::ReadsTheJournalBeforeTheFence)
    }

    /// Fences the sessions that `which` names; goes on once none of the fenced ones has a flush under way.
    fn fence(
        &mut self,
        which: impl Fn(&SessionRow) -> bool,
        answer: impl Fn() -> Answer,
        then: impl FnOnce(&mut Self),
    ) -> Step {
        for row in self.sessions.values_mut().filter(|row| which(row)) {
            row.fenced = true;
        }
        if self.waits_for_a_flush() {
            return Step::Wait;
        }
        then(self);
        Step::Answer(answer())
    }
}
