//! This process's session: opened at start, renewed while it lives, given up by itself before others may take over.

use std::sync::Arc;
use std::time::Duration;

use portero_store::{DynStore, ErrorKind, NewSession};
use portero_types::SessionId;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a session lives without renewal, by the database's clock.
pub(crate) const TTL: Duration = Duration::from_secs(12);
/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(3);
/// How soon a failed renewal is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How long after the *start* of the last successful renewal this process still trusts its session, by its own monotonic
/// clock. Shorter than [`TTL`], so that it has stopped before anyone takes over.
const TRUST: Duration = Duration::from_secs(9);

/// Whether this process may act on its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// This session was renewed in time.
    Alive(SessionId),
    /// Not renewed in time: deliver nothing until it is, or until there is another session.
    Suspended(SessionId),
    /// Another process with this one's instance name took over: it is over for good.
    Replaced,
}

impl Standing {
    /// Whether what this session owns may be acted on now.
    pub(crate) fn trusts(self, session: SessionId) -> bool {
        self == Self::Alive(session)
    }

    /// The session, unless it is over for good.
    pub(crate) const fn session(self) -> Option<SessionId> {
        match self {
            Self::Alive(session) | Self::Suspended(session) => Some(session),
            Self::Replaced => None,
        }
    }
}

/// Makes the id of a new session.
pub(crate) type NewId = Arc<dyn Fn() -> SessionId + Send + Sync>;

/// Keeps a session alive until `stop`, publishing its standing.
///
/// A session that was fenced after it had expired, because the database was away or this process was paused, is replaced
/// by a new one: its lanes may be others' by now, and whoever acted for it starts anew. A session that was fenced while it
/// was valid tells that another process has the same instance name: then this one is over.
pub(crate) struct Keeper {
    pub(crate) store: DynStore,
    pub(crate) instance: String,
    pub(crate) new_id: NewId,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) stop: CancellationToken,
}

impl Keeper {
    /// Opens a session.
    pub(crate) async fn open(&self) -> portero_store::Result<SessionId> {
        let id = (self.new_id)();
        self.store.open_session(&NewSession { id, instance: self.instance.clone(), ttl: TTL }).await?;
        Ok(id)
    }

    /// Keeps the session that `standing` names.
    pub(crate) async fn run(self) {
        let mut renewed = Instant::now();
        let mut pause = RENEW_EVERY;
        loop {
            let standing = *self.standing.borrow();
            let Some(session) = standing.session() else { return };
            let alive = standing.trusts(session);
            let later = Instant::now() + pause;
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep_until(if alive { later.min(renewed + TRUST) } else { later }) => {}
            }
            let began = Instant::now();
            let deadline = if alive { renewed + TRUST } else { began + RENEW_EVERY };
            let renewal = tokio::time::timeout_at(deadline, self.store.renew_session(session, TTL)).await;
            pause = RETRY_EVERY;
            match renewal {
                Ok(Ok(())) => {
                    renewed = began;
                    pause = RENEW_EVERY;
                    self.set(Standing::Alive(session));
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Fenced && renewed.elapsed() < TTL => {
                    tracing::warn!(session.id = %session, "another gateway took this one's session over");
                    self.set(Standing::Replaced);
                    return;
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Fenced => {
                    self.set(Standing::Suspended(session));
                    let began = Instant::now();
                    match tokio::time::timeout(RENEW_EVERY, self.open()).await {
                        Ok(Ok(fresh)) => {
                            tracing::warn!(session.id = %fresh, former.id = %session, "the session had expired; a new one is open");
                            renewed = began;
                            self.set(Standing::Alive(fresh));
                        }
                        Ok(Err(error)) => tracing::warn!(%error, "no new session could be opened"),
                        Err(_) => tracing::warn!("no new session could be opened in time"),
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(session.id = %session, %error, "the session could not be renewed");
                }
                Err(_) => {
                    tracing::warn!(session.id = %session, "the session was not renewed in time");
                }
            }
            if renewed.elapsed() >= TRUST {
                self.set(Standing::Suspended(session));
            }
        }
    }

    fn set(&self, new: Standing) {
        self.standing.send_if_modified(|old| std::mem::replace(old, new) != new);
    }
}
