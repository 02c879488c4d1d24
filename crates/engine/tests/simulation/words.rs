//! What replicas, consumers and the store say to one another.

use portero_engine::{Action, Entry, Flush, Outcome, Restored, SideRead, Status, Token};
use portero_types::{EntityHash, Epoch, LaneNo, Shard};

/// A replica's process: its place and which start of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) slot: usize,
    pub(crate) boot: u64,
}

/// A consumer's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) slot: usize,
    pub(crate) boot: u64,
}

/// A connection between a consumer and a replica; it carries one stream.
pub(crate) type ConnId = u64;

/// A replica's session, as the store numbers them.
pub(crate) type Session = u64;

/// Names a delivery on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneToken {
    pub(crate) lane: LaneNo,
    pub(crate) token: Token,
}

/// An outcome of a delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) token: LaneToken,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Debug)]
pub(crate) enum ClientFrame {
    Hello { unsettled: Vec<LaneToken>, events_max: u32, bytes_max: u64 },
    Settle(Vec<Item>),
    Goodbye,
    Close,
}

#[derive(Clone, Debug)]
pub(crate) enum ServerFrame {
    Welcome { resumed: Vec<LaneToken> },
    Deliver(Vec<Sent>),
    Settled(Vec<(Item, Status)>),
    Revoke(LaneToken),
    Drain,
    End,
}

/// An event in a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) token: LaneToken,
    pub(crate) entry: Entry,
    pub(crate) alone: bool,
    /// When the lane decided to offer it.
    pub(crate) decided_at: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum ToReplica {
    Wake,
    Answer {
        ask: u64,
        answer: Answer,
    },
    Frame {
        conn: ConnId,
        frame: ClientFrame,
    },
    /// The connection is gone, without a word.
    Broken {
        conn: ConnId,
    },
    Prepared {
        conn: ConnId,
        items: Vec<Sent>,
    },
    /// Outcomes that come outside of a stream.
    Unary {
        client: Client,
        items: Vec<Item>,
    },
    Operator {
        entity: EntityHash,
        action: Action,
    },
    Terminate,
}

#[derive(Clone, Debug)]
pub(crate) enum ToConsumer {
    Wake,
    Frame { conn: ConnId, frame: ServerFrame },
    Broken { conn: ConnId },
    Statuses(Vec<(Item, Status)>),
}

/// What a replica asks of the store.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Open {
        session: Session,
        slot: usize,
    },
    Renew {
        session: Session,
    },
    Close {
        session: Session,
    },
    /// How the log and the shares stand; says for how many streams the session wants lanes.
    Roll {
        session: Session,
        weight: usize,
    },
    Claim {
        session: Session,
    },
    /// `None`: all of them.
    Release {
        session: Session,
        lanes: Option<Vec<LaneNo>>,
    },
    Flush {
        session: Session,
        flushes: Vec<LaneFlush>,
    },
    Page {
        shard: Shard,
        after: u64,
    },
    Entries {
        lane: LaneNo,
        positions: Vec<u64>,
    },
    Side {
        lane: LaneNo,
        read: SideRead,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct LaneFlush {
    pub(crate) lane: LaneNo,
    pub(crate) epoch: Epoch,
    pub(crate) flush: Flush,
}

#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) lane: LaneNo,
    pub(crate) epoch: Epoch,
    pub(crate) restored: Restored,
}

/// What the store answers, or what becomes of the question.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Done,
    Fenced,
    Refused,
    /// Nothing was done.
    Unavailable,
    /// It may or may not have been done, or still be done later.
    Unknown,
    Rolled {
        heads: Vec<u64>,
        owned: usize,
        free: usize,
        target: usize,
    },
    Claimed(Vec<Claimed>),
    Written(Vec<LaneNo>),
    Page {
        entries: Vec<Entry>,
        through: u64,
    },
    Entries(Vec<Entry>),
    Side {
        entries: Vec<Entry>,
        through: u64,
    },
}

/// What happens at a moment.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Replica(Process, ToReplica),
    Consumer(Client, ToConsumer),
    /// A question reaches the store; the answer takes so long, or is lost.
    Ask {
        from: Process,
        number: u64,
        ask: Ask,
        reply_after: Option<u64>,
    },
    /// A flush that the store works on is committed.
    Commit {
        number: u64,
        reply_after: Option<u64>,
    },
    Accept,
    Fault,
    Restart {
        slot: usize,
    },
    Revive {
        slot: usize,
    },
    /// Something looks whether all is over.
    Look,
}
