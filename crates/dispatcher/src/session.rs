//! This process's session: opened at start, renewed while it lives, given up by itself before others may take over.

use std::sync::Arc;
use std::time::Duration;

use portero_store::{ErrorKind, NewSession};
use portero_types::SessionId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::shared::{DynDeliveryStore, Shared};

/// How the life of a session is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// How long it lives without renewal, by the database's clock.
    ttl: Duration,
    /// How often it is renewed.
    renew_every: Duration,
    /// How soon a failed renewal is tried again.
    retry_every: Duration,
    /// How long after the *start* of the last successful renewal this process still trusts it, by its own monotonic clock.
    /// Shorter than its life, so that this process has stopped before anyone takes over.
    trust: Duration,
}

impl Times {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, renew_every: ttl / 4, retry_every: ttl / 24, trust: ttl / 4 * 3 }
    }
}

/// Whether this process may act on its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// This session was renewed in time. It is trusted until then, whether the task that keeps it gets to say otherwise or not:
    /// a process that was paused may do anything first when it goes on.
    Alive(SessionId, Instant),
    /// Not renewed in time: deliver nothing until it is, or until there is another session.
    Suspended(SessionId),
    /// Another process with this one's instance name took over: it is over for good.
    Replaced,
}

impl Standing {
    /// Whether what this session owns may be acted on now.
    pub(crate) fn trusts(self, session: SessionId) -> bool {
        self.alive() == Some(session)
    }

    /// The session, if it may be acted for now.
    pub(crate) fn alive(self) -> Option<SessionId> {
        match self {
            Self::Alive(session, until) if Instant::now() < until => Some(session),
            Self::Alive(..) | Self::Suspended(_) | Self::Replaced => None,
        }
    }

    /// The session, unless it is over for good.
    pub(crate) const fn session(self) -> Option<SessionId> {
        match self {
            Self::Alive(session, _) | Self::Suspended(session) => Some(session),
            Self::Replaced => None,
        }
    }
}

/// Makes the id of a new session.
pub(crate) type NewId = Arc<dyn Fn() -> SessionId + Send + Sync>;

/// Keeps a session alive, publishing its standing.
///
/// A session that was fenced after it had expired, because the database was away or this process was paused, is replaced
/// by a new one: its lanes may be others' by now, and whoever acted for it starts anew. A session that was fenced while it
/// was valid tells that another process has the same instance name: then this one is over.
pub(crate) struct Keeper {
    pub(crate) store: DynDeliveryStore,
    pub(crate) instance: String,
    pub(crate) new_id: NewId,
    pub(crate) times: Times,
}

impl Keeper {
    /// Opens a session and says how it stands.
    pub(crate) async fn start(&self) -> portero_store::Result<Standing> {
        let began = Instant::now();
        Ok(Standing::Alive(self.open().await?, began + self.times.trust))
    }

    async fn open(&self) -> portero_store::Result<SessionId> {
        let id = (self.new_id)();
        self.store
            .open_session(&NewSession { id, instance: self.instance.clone(), ttl: self.times.ttl })
            .await?;
        Ok(id)
    }

    /// Keeps the session that the shared standing names.
    pub(crate) async fn run(self, shared: Arc<Shared>, stop: CancellationToken) {
        let Times { ttl, renew_every, retry_every, trust } = self.times;
        let set = |new| {
            shared.standing.send_if_modified(|old| std::mem::replace(old, new) != new);
        };
        let mut renewed = match *shared.standing.borrow() {
            Standing::Alive(_, until) => until - trust,
            Standing::Suspended(_) | Standing::Replaced => Instant::now(),
        };
        let mut pause = renew_every;
        loop {
            let standing = *shared.standing.borrow();
            let Some(session) = standing.session() else { return };
            let alive = standing.trusts(session);
            let later = Instant::now() + pause;
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep_until(if alive { later.min(renewed + trust) } else { later }) => {}
            }
            let began = Instant::now();
            let deadline = if alive { renewed + trust } else { began + renew_every };
            let renewal =
                tokio::time::timeout_at(deadline, self.renew(&shared, session, pause == retry_every)).await;
            pause = retry_every;
            match renewal {
                Ok(Ok(())) => {
                    renewed = began;
                    pause = renew_every;
                    set(Standing::Alive(session, began + trust));
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Fenced && renewed.elapsed() < ttl => {
                    tracing::warn!(session.id = %session, "another gateway took this one's session over");
                    set(Standing::Replaced);
                    return;
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Fenced => {
                    set(Standing::Suspended(session));
                    let began = Instant::now();
                    match tokio::time::timeout(renew_every, self.open_again(&shared)).await {
                        Ok(Ok(fresh)) => {
                            tracing::warn!(session.id = %fresh, former.id = %session, "the session had expired; a new one is open");
                            renewed = began;
                            set(Standing::Alive(fresh, began + trust));
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
            if renewed.elapsed() >= trust {
                set(Standing::Suspended(session));
            }
        }
    }

    /// Renews a session; after a failure only once it is known that the database is still the same.
    async fn renew(
        &self,
        shared: &Shared,
        session: SessionId,
        has_failed: bool,
    ) -> portero_store::Result<()> {
        if has_failed {
            self.look_at_generation(shared).await?;
        }
        self.store.renew_session(session, self.times.ttl).await
    }

    async fn open_again(&self, shared: &Shared) -> portero_store::Result<SessionId> {
        self.look_at_generation(shared).await?;
        self.open().await
    }

    async fn look_at_generation(&self, shared: &Shared) -> portero_store::Result<()> {
        let asked_at = Instant::now();
        let generation = self.store.incarnation().await?;
        shared.incarnations.observe(&*self.store, generation, asked_at).await
    }
}
