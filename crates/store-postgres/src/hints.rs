//! Hints between gateways by NOTIFY. Each is a statement of its own on the control pool: a commit that notifies takes a lock
//! that all notifying commits of the server share, so it must never be the commit of an accept statement.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use portero_store::{Error, ErrorKind, Hint, HintStore, Hints, Result};
use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::PostgresStore;
use crate::error::{Effect, store_error};
use crate::lease::{bounded, rows};
use crate::session::{Purpose, set_up};

/// Every installation of a database uses it: a hint too many does no harm.
pub(crate) const CHANNEL: &str = "portero_hints";
/// After so long without a word the connection is tried: a peer that vanished sends no word either.
const QUIET: Duration = Duration::from_secs(5);
/// How long such a try may take before the connection counts as broken.
const PATIENCE: Duration = Duration::from_secs(3);

#[async_trait]
impl HintStore for PostgresStore {
    async fn hint(&self, hint: Hint) -> Result<()> {
        let query = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(word(hint));
        rows(&self.pools.control, query, Effect::Commits).await.map(|_| ())
    }

    async fn listen(&self) -> Result<Box<dyn Hints>> {
        let options = self.config.connect_options()?;
        let search_path = self.config.search_path()?.into();
        let listener = bounded(self.config.acquire_timeout, self.connect_listener(options, search_path));
        let listener = listener.await.map_err(|e| store_error(&e, Effect::None))?;
        let inbox = Arc::new(Inbox::default());
        let task = tokio::spawn(receive(listener, Arc::clone(&inbox)));
        Ok(Box::new(Listening { inbox, task }))
    }
}

impl PostgresStore {
    /// A connection outside of the pools. The server probes it by keepalive as any other, and this side by [`QUIET`].
    async fn connect_listener(
        &self,
        options: PgConnectOptions,
        search_path: Arc<str>,
    ) -> sqlx::Result<PgListener> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(self.config.acquire_timeout)
            .max_lifetime(None)
            .idle_timeout(None)
            .after_connect(move |connection, _| {
                let search_path = Arc::clone(&search_path);
                Box::pin(async move {
                    let fitness = set_up(connection, Purpose::Plain, &search_path).await?;
                    fitness.map_err(|unfit| sqlx::Error::Configuration(unfit.message().into()))
                })
            })
            .connect_with(options)
            .await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.ignore_pool_close_event(true);
        // A new connection would hide that hints were lost.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }
}

/// Puts what comes in into the inbox, until the connection breaks.
async fn receive(mut listener: PgListener, inbox: Arc<Inbox>) {
    loop {
        match tokio::time::timeout(QUIET, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                if let Some(hint) = hint_of(notification.payload()) {
                    inbox.put(hint);
                }
            }
            Ok(Ok(None) | Err(_)) => break,
            Err(_) => {
                if bounded(PATIENCE, listener.execute("SELECT 1")).await.is_err() {
                    break;
                }
            }
        }
    }
    inbox.end();
}

/// What came in and was not taken yet: each kind of hint at most once.
#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    hints: VecDeque<Hint>,
    has_ended: bool,
}

impl Inbox {
    fn put(&self, hint: Hint) {
        self.change(|state| {
            if !state.hints.contains(&hint) {
                state.hints.push_back(hint);
            }
        });
    }

    fn end(&self) {
        self.change(|state| state.has_ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }

    /// `None` while nothing is there.
    fn take(&self) -> Option<Result<Hint>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hint) = state.hints.pop_front() {
            return Some(Ok(hint));
        }
        let broken = || Error::new(ErrorKind::Unavailable, "the connection that listens for hints broke");
        state.has_ended.then(|| Err(broken()))
    }
}

/// The task that listens ends with this value.
struct Listening {
    inbox: Arc<Inbox>,
    task: JoinHandle<()>,
}

#[async_trait]
impl Hints for Listening {
    async fn next(&mut self) -> Result<Hint> {
        loop {
            if let Some(answer) = self.inbox.take() {
                return answer;
            }
            self.inbox.changed.notified().await;
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) const fn word(hint: Hint) -> &'static str {
    match hint {
        Hint::Log => "log",
        Hint::Lanes => "lanes",
        Hint::Config => "config",
    }
}

fn hint_of(word: &str) -> Option<Hint> {
    match word {
        "log" => Some(Hint::Log),
        "lanes" => Some(Hint::Lanes),
        "config" => Some(Hint::Config),
        _ => None,
    }
}
