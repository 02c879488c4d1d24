//! Reads the roll: how many lanes this process should have of each subscription, and which of its streams are ghosts.
//!
//! One statement for all subscriptions, once in a second and at once on a hint. Each actor gets its part and acts on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use portero_store::{ErrorKind, Share};
use portero_types::{SessionId, SubscriptionNo};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actors::Actors;
use crate::shared::Shared;

/// How often the roll is read when nothing asks for it.
const EVERY: Duration = Duration::from_secs(1);
/// How often while lanes are missing here that others still have.
const EVERY_WHILE_MISSING: Duration = Duration::from_millis(200);
/// Hints within this time are one.
const SETTLE: Duration = Duration::from_millis(20);
/// After so many rolls in which nobody here looks after a subscription's lanes they are given up.
const UNATTENDED_MAX: u32 = 2;

/// A session's part in a subscription, as of a moment.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) share: Share,
    /// When the roll was asked for: what was done since may not be in it.
    pub(crate) asked_at: Instant,
}

/// Reads the roll and publishes it to the actors until `stop`.
pub(crate) async fn watch_roll(shared: Arc<Shared>, actors: Arc<Actors>, stop: CancellationToken) {
    let mut unattended = BTreeMap::new();
    let mut away = false;
    loop {
        let session = shared.standing.borrow().alive();
        let mut every = EVERY;
        if let Some(session) = session {
            match look(&shared, &actors, session, &mut unattended).await {
                Ok(is_missing) => {
                    away = false;
                    every = if is_missing { EVERY_WHILE_MISSING } else { EVERY };
                }
                // The session's keeper says what follows.
                Err(error) if error.kind() == ErrorKind::Fenced => {}
                Err(error) => {
                    if !away {
                        tracing::warn!(%error, "it cannot be read who has which lanes; all stays as it is");
                    }
                    away = true;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = shared.look_at_roll.notified() => {
                if stop.run_until_cancelled(tokio::time::sleep(SETTLE)).await.is_none() {
                    return;
                }
            }
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// Reads the roll once; whether lanes are missing here.
async fn look(
    shared: &Shared,
    actors: &Actors,
    session: SessionId,
    unattended: &mut BTreeMap<SubscriptionNo, u32>,
) -> portero_store::Result<bool> {
    let asked_at = Instant::now();
    let roll = shared.store.roll(session).await?;
    shared.incarnations.observe(&*shared.store, roll.generation, asked_at).await?;
    let mut is_missing = false;
    let mut lonely = BTreeMap::new();
    for share in roll.shares {
        let subscription = share.subscription;
        let (owned, target) = (share.owned, share.target);
        if actors.report(Reported { share, asked_at }) {
            is_missing |= owned < target;
        } else {
            lonely.insert(subscription, unattended.get(&subscription).copied().unwrap_or(0) + 1);
        }
    }
    *unattended = lonely;
    for (subscription, rolls) in unattended.iter() {
        if *rolls >= UNATTENDED_MAX {
            // Their actor has ended without giving them up. An actor that starts now does the same first.
            shared.store.release_lanes(session, *subscription, None).await?;
        }
    }
    Ok(is_missing)
}
