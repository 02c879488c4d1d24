//! How a session is set up for its purpose, and whether it is fit for use.

use std::time::Duration;

use sqlx::Row;
use sqlx::pool::PoolConnectionMetadata;
use sqlx::postgres::PgConnection;

use crate::lease::bounded;

/// How long a transaction may stand idle between two of its statements before the server ends it.
const IDLE_IN_TRANSACTION_MS: u64 = 5_000;
/// A connection that was idle for longer is tried before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// How much longer than the server we wait for its answer: the network's share.
const GRACE: Duration = Duration::from_secs(2);

/// What a pool is for decides how its sessions are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Accept statements.
    Ingest,
    /// Finding and counting repeats.
    Repeats,
    /// Recording refused requests.
    Rejections,
    /// Reading the log and its events, writing progress.
    Delivery,
    /// Everything else.
    Plain,
}

impl Purpose {
    /// Longest statement, milliseconds.
    const fn statement_timeout_ms(self) -> u64 {
        match self {
            Self::Ingest | Self::Delivery | Self::Plain => 10_000,
            Self::Repeats | Self::Rejections => 5_000,
        }
    }

    /// How long we wait for a statement's answer: the server's own limit and the network's share.
    pub(crate) const fn patience(self) -> Duration {
        Duration::from_millis(self.statement_timeout_ms()).saturating_add(GRACE)
    }

    /// Longest wait for one lock, milliseconds.
    const fn lock_timeout_ms(self) -> u64 {
        match self {
            Self::Ingest => 2_000,
            Self::Repeats | Self::Rejections => 500,
            Self::Delivery | Self::Plain => 5_000,
        }
    }

    /// Settings beyond the common ones. Plans are fixed, so that an empty table's statistics never decide how a full one is
    /// read. Counts of repeats and rejections may be lost in a crash, so that they need not wait for the disk; nothing else may.
    const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Ingest => {
                &[("plan_cache_mode", "force_generic_plan"), ("work_mem", "32MB"), ("enable_seqscan", "off")]
            }
            Self::Repeats => &[
                ("plan_cache_mode", "force_generic_plan"),
                ("enable_seqscan", "off"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
                ("synchronous_commit", "off"),
            ],
            Self::Rejections => &[("synchronous_commit", "off")],
            // By its index in order, a page of the log ends at its limit; a bitmap would first gather all that lies behind it.
            Self::Delivery => &[
                ("plan_cache_mode", "force_generic_plan"),
                ("enable_seqscan", "off"),
                ("enable_bitmapscan", "off"),
                ("enable_hashjoin", "off"),
                ("enable_mergejoin", "off"),
            ],
            Self::Plain => &[],
        }
    }
}

/// Why nothing may be entrusted to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Its commits do not wait for the disk: an accepted event could vanish in a crash.
    Asynchronous,
    /// It replays another server's changes: it lags behind, and rewinds when it is promoted.
    Standby,
}

impl Unfit {
    /// For operators.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Asynchronous => {
                "synchronous_commit is off for this role or database: an accepted event could vanish in a crash; set it to on"
            }
            Self::Standby => {
                "this server is a standby: it lags behind its primary and may rewind; the URL must lead to the primary"
            }
        }
    }
}

/// Sets a session up, independent of the defaults of server, database and role, and says whether it may be used.
pub(crate) async fn set_up(
    connection: &mut PgConnection,
    purpose: Purpose,
    search_path: &str,
) -> sqlx::Result<Result<(), Unfit>> {
    let statement_timeout = purpose.statement_timeout_ms().to_string();
    let lock_timeout = purpose.lock_timeout_ms().to_string();
    let idle_timeout = IDLE_IN_TRANSACTION_MS.to_string();
    let mut settings = vec![
        ("default_transaction_isolation", "read committed"),
        ("statement_timeout", &statement_timeout),
        ("lock_timeout", &lock_timeout),
        ("idle_in_transaction_session_timeout", &idle_timeout),
        // Servers from 17 on: also bounds a client that stalls in the middle of a message.
        ("transaction_timeout", &statement_timeout),
        ("jit", "off"),
        // A peer that vanished must not hold a shard's lock for long.
        ("tcp_keepalives_idle", "5"),
        ("tcp_keepalives_interval", "2"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "10000"),
    ];
    settings.extend_from_slice(purpose.settings());
    if !search_path.is_empty() {
        settings.push(("search_path", search_path));
    }
    let (names, values): (Vec<_>, Vec<_>) = settings.into_iter().unzip();
    let row = sqlx::query(
        "WITH before AS MATERIALIZED (SELECT current_setting('synchronous_commit') AS synchronous_commit)
         SELECT before.synchronous_commit, pg_is_in_recovery() AS is_standby,
                (SELECT count(set_config(s.name, s.value, false))
                 FROM before, unnest($1::text[], $2::text[]) AS s (name, value)
                 WHERE current_setting(s.name, true) IS NOT NULL)
         FROM before",
    )
    .persistent(false)
    .bind(names)
    .bind(values)
    .fetch_one(connection)
    .await?;
    if row.try_get("is_standby")? {
        return Ok(Err(Unfit::Standby));
    }
    let is_asynchronous = row.try_get::<String, _>("synchronous_commit")? == "off";
    Ok(if is_asynchronous { Err(Unfit::Asynchronous) } else { Ok(()) })
}

/// Whether a pooled connection may be handed out. Ingest and repeats run single statements only and are tried only after a rest;
/// elsewhere a transaction that was left open shows in its start time, and an aborted one in the refusal to answer.
pub(crate) async fn is_fit(
    connection: &mut PgConnection,
    purpose: Purpose,
    meta: PoolConnectionMetadata,
) -> sqlx::Result<bool> {
    let runs_transactions = matches!(purpose, Purpose::Plain | Purpose::Rejections);
    if !runs_transactions && meta.idle_for < TRUSTED_IDLE {
        return Ok(true);
    }
    // The simple protocol: in the extended one each message has a time of its own.
    let check = sqlx::raw_sql("SELECT transaction_timestamp() = statement_timestamp()");
    bounded(GRACE, check.fetch_one(connection)).await?.try_get(0)
}
