//! Which processes run, and how far each of them has applied the configuration.

use std::time::Duration;

use portero_types::{ReplicaId, Timestamp};

use crate::Revision;

/// After so long without a report a process counts as gone: nobody waits for it, and it takes no share of a limit.
pub const REPLICA_LIVE: Duration = Duration::from_mins(1);
/// How long the row of a process that is gone is shown. Rows that are older are deleted when another process begins.
pub const REPLICA_SHOWN: Duration = Duration::from_hours(24);
/// How often a report that says nothing new is written down. Others are only answered.
pub const REPLICA_WRITTEN_EVERY: Duration = Duration::from_secs(5);

/// What one process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaReport {
    /// Which process: one id per run.
    pub replica: ReplicaId,
    /// Its configured name.
    pub instance: String,
    /// Whether the process has not been told anything yet. It takes the place of those of its name then, which are gone as a rule;
    /// one that lives all the same comes back by its next report, and the two are told apart by their ids from then on.
    pub first: bool,
    /// What it does: `edge`, `stream`, `admin`.
    pub roles: Vec<String>,
    /// The revision that it has applied.
    pub revision: Revision,
    /// Its wall clock.
    pub clock: Timestamp,
    /// The program's version.
    pub version: String,
    /// The key-encryption key that it wraps new data keys under: its name, `/`, and a mark of its bits. The name alone where
    /// nothing encrypts data keys.
    pub key_id: String,
}

/// What a process is told in return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaEcho {
    /// The present revision.
    pub revision: Revision,
    /// The database's clock.
    pub database_time: Timestamp,
    /// How many live processes have the role `edge`, the one that reports included.
    pub edges: u32,
    /// How many other live processes there are, whatever their roles.
    pub others: u32,
    /// Which line of history the revision belongs to. It changes when committed state may have been lost: after a restore
    /// or a failover. Revisions of different lines must not be compared.
    pub history: String,
}

/// A process as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Which process.
    pub id: ReplicaId,
    /// Its configured name.
    pub instance: String,
    /// What it does.
    pub roles: Vec<String>,
    /// The program's version.
    pub version: String,
    /// See [`ReplicaReport::key_id`].
    pub key_id: String,
    /// The revision that it had applied when it was seen.
    pub revision: Revision,
    /// When it reported first, by the database's clock.
    pub started_at: Timestamp,
    /// When it reported last, by the database's clock, to within [`REPLICA_WRITTEN_EVERY`].
    pub seen_at: Timestamp,
    /// How far its clock was ahead of the database's then, microseconds; the time that the report took included.
    pub skew_micros: i64,
    /// Whether it was seen within [`REPLICA_LIVE`].
    pub live: bool,
}

impl Replica {
    /// Whether it is live and takes webhooks.
    #[must_use]
    pub fn is_live_edge(&self) -> bool {
        self.live && self.roles.iter().any(|role| role == EDGE)
    }
}

/// The role of processes that take webhooks.
pub const EDGE: &str = "edge";
