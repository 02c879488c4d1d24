//! Ctrl-C and SIGTERM for commands that run until they are stopped.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Failure;

/// The wish to stop.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Takes the signals from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed = |_| Failure::failed("the signals of this process cannot be listened to");
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn wanted(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
