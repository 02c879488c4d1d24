//! IO beside the actor.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use portero_store::{Error, ErrorKind};

use super::{Actor, Done};
use crate::metrics;

impl Actor {
    /// Runs a job beside the actor. When it panics, `broken` is reported in its place.
    pub(super) fn spawn(
        &mut self,
        job: impl Future<Output = Done> + Send + 'static,
        broken: impl FnOnce() -> Done + Send + 'static,
    ) {
        let subscription = self.subscription.id.clone();
        self.jobs.spawn(async move {
            match AssertUnwindSafe(job).catch_unwind().await {
                Ok(done) => done,
                // What a panic says may be part of an event: it is not repeated here.
                Err(_) => {
                    metrics::panicked("job");
                    tracing::error!(subscription.id = %subscription, "a delivery job broke down");
                    broken()
                }
            }
        });
    }
}

/// What is known of a call that wrote something, when its job broke down.
pub(super) fn broken_write() -> Error {
    Error::new(ErrorKind::OutcomeUnknown, "a job that writes broke down")
}

/// What is known of a call that only read.
pub(super) fn broken_read() -> Error {
    Error::new(ErrorKind::Unavailable, "a job that reads broke down")
}
