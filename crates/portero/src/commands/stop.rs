//! Ctrl-C and SIGTERM for commands that run until they are stopped.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Failure;

/// How long a signal may echo.
const ECHO: Duration = Duration::from_millis(500);

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

    /// Waits for a signal that is meant as another one. Some programs send the same wish twice, to the process and to its
    /// group: what comes within half a second is that. Cancel safe.
    pub(crate) async fn insisted(&mut self) {
        tokio::time::sleep(ECHO).await;
        let _echo = self.wanted().now_or_never();
        self.wanted().await;
    }
}
