//! Turns of callers: none of them, whatever it sends at once, has others wait for more than a few of its calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portero_auth::Caller;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Calls of one caller that are worked on at once.
const WORKED_ON_MAX: usize = 8;
/// Calls of one caller that are worked on or wait.
const CALLS_MAX: usize = 256;

/// Who calls: issuer and subject.
type Who = (String, String);

/// Callers that call at the moment. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<Who, Calls>>>);

#[derive(Debug)]
struct Calls {
    count: usize,
    places: Arc<Semaphore>,
}

/// A call's turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _place: OwnedSemaphorePermit,
    _waiting: Waiting,
}

impl Turns {
    /// Waits until it is a caller's turn. Cancel-safe.
    pub(crate) async fn turn(&self, caller: &Caller) -> Result<Turn, Status> {
        let too_many =
            || Status::resource_exhausted(format!("more than {CALLS_MAX} calls of yours wait: call in turn"));
        let (waiting, places) = self.enter(caller).ok_or_else(too_many)?;
        let place = places.acquire_owned().await.map_err(|_| Status::unavailable("shutting down"))?;
        Ok(Turn { _place: place, _waiting: waiting })
    }

    fn enter(&self, caller: &Caller) -> Option<(Waiting, Arc<Semaphore>)> {
        let who = (caller.issuer.clone(), caller.subject.clone());
        let mut callers = self.lock();
        let calls = callers
            .entry(who.clone())
            .or_insert_with(|| Calls { count: 0, places: Arc::new(Semaphore::new(WORKED_ON_MAX)) });
        (calls.count < CALLS_MAX).then(|| {
            calls.count += 1;
            (Waiting { turns: self.clone(), who }, Arc::clone(&calls.places))
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Who, Calls>> {
        // Nothing under this lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is counted.
#[derive(Debug)]
struct Waiting {
    turns: Turns,
    who: Who,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut callers = self.turns.lock();
        if let Some(calls) = callers.get_mut(&self.who) {
            calls.count = calls.count.saturating_sub(1);
            if calls.count == 0 {
                callers.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use portero_types::Timestamp;
    use tonic::Code;

    use super::*;

    fn caller(subject: &str) -> Caller {
        Caller {
            issuer: "issuer".to_owned(),
            subject: subject.to_owned(),
            expires_at: Timestamp::EPOCH,
            grants: Vec::new(),
            claimed: None,
        }
    }

    #[tokio::test]
    async fn a_caller_waits_for_its_own_calls_and_for_nobody_elses() {
        let turns = Turns::default();
        let (busy, other) = (caller("busy"), caller("other"));
        let mut held = Vec::new();
        for _ in 0..WORKED_ON_MAX {
            held.push(turns.turn(&busy).await.expect("its turn"));
        }
        let mut next = Box::pin(turns.turn(&busy));
        assert!((&mut next).now_or_never().is_none(), "it has enough");
        turns.turn(&other).now_or_never().expect("at once").expect("another's turn");
        held.pop();
        held.push(next.await.expect("its turn"));
        let mut waiting: Vec<_> = (WORKED_ON_MAX..CALLS_MAX).map(|_| Box::pin(turns.turn(&busy))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        let refused = turns.turn(&busy).await.expect_err("too many wait");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(waiting);
        drop(held);
        assert!(turns.lock().is_empty(), "nothing is kept of who does not call");
    }
}
