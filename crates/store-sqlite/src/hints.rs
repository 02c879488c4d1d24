//! Hints within the one process that has the file.

use std::collections::VecDeque;

use async_trait::async_trait;
use portero_store::{Error, ErrorKind, Hint, HintStore, Hints, Result};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::SqliteStore;

/// Most hints that wait for one listener. One that is further behind gets one of each kind instead.
pub(crate) const WAITING_MAX: usize = 64;

#[async_trait]
impl HintStore for SqliteStore {
    async fn hint(&self, hint: Hint) -> Result<()> {
        // Nobody listens: nobody is to be told.
        let _ = self.hints.send(hint);
        Ok(())
    }

    async fn listen(&self) -> Result<Box<dyn Hints>> {
        Ok(Box::new(Listening { receiver: self.hints.subscribe(), merged: VecDeque::new() }))
    }
}

struct Listening {
    receiver: Receiver<Hint>,
    /// In place of those that were missed.
    merged: VecDeque<Hint>,
}

#[async_trait]
impl Hints for Listening {
    async fn next(&mut self) -> Result<Hint> {
        loop {
            if let Some(hint) = self.merged.pop_front() {
                return Ok(hint);
            }
            match self.receiver.recv().await {
                Ok(hint) => return Ok(hint),
                Err(RecvError::Lagged(_)) => self.merged.extend([Hint::Log, Hint::Lanes, Hint::Config]),
                Err(RecvError::Closed) => {
                    return Err(Error::new(ErrorKind::Unavailable, "the database is closed"));
                }
            }
        }
    }
}
