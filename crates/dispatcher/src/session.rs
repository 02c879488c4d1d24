//! This process's session: opened at start, renewed while it lives, given up by itself before others may take over.

use std::time::Duration;

use portero_store::{DynStore, ErrorKind};
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
    /// Renewed in time.
    Alive,
    /// Not renewed in time: deliver nothing until it is.
    Suspended,
    /// Another took over: this session is over for good.
    Fenced,
}

/// Renews `session` until `stop`, publishing its standing.
pub(crate) async fn keep_alive(
    store: DynStore,
    session: SessionId,
    standing: watch::Sender<Standing>,
    stop: CancellationToken,
) {
    let mut renewed = Instant::now();
    let mut pause = RENEW_EVERY;
    loop {
        let alive = *standing.borrow() == Standing::Alive;
        let wake = if alive { (Instant::now() + pause).min(renewed + TRUST) } else { Instant::now() + pause };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(wake) => {}
        }
        let began = Instant::now();
        let deadline = if alive { renewed + TRUST } else { began + RENEW_EVERY };
        pause = RETRY_EVERY;
        match tokio::time::timeout_at(deadline, store.renew_session(session, TTL)).await {
            Ok(Ok(())) => {
                renewed = began;
                pause = RENEW_EVERY;
                set(&standing, Standing::Alive);
            }
            Ok(Err(error)) if error.kind() == ErrorKind::Fenced => {
                tracing::error!(session.id = %session, "this gateway's session was fenced: another took over");
                set(&standing, Standing::Fenced);
                return;
            }
            Ok(Err(error)) => {
                tracing::warn!(session.id = %session, %error, "the session could not be renewed");
            }
            Err(_) => {
                tracing::warn!(session.id = %session, "the session was not renewed in time");
            }
        }
        if renewed.elapsed() >= TRUST {
            set(&standing, Standing::Suspended);
        }
    }
}

fn set(standing: &watch::Sender<Standing>, new: Standing) {
    standing.send_if_modified(|old| std::mem::replace(old, new) != new);
}
