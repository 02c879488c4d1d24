//! A receiver in a process of its own.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::{Options, Side};
use crate::database::Database;
use crate::process::Process;
use crate::serve::Ready;

/// How long a receiver may take to start (it migrates its database) or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running receiver. Killed when dropped.
pub(super) struct Child {
    process: tokio::process::Child,
    ready: Ready,
}

impl Child {
    /// Starts a receiver and waits until it can be reached.
    pub(super) async fn start(
        side: Side,
        database: &Database,
        secret: &str,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command
            .arg(side.command())
            .args(["--postgres-url", &database.url, "--secret", secret])
            .args(["--baseline-connections", &options.baseline_connections.to_string()]);
        if let Some(commits) = options.tuning.commits_in_flight {
            command.args(["--commits-in-flight", &commits.to_string()]);
        }
        for (flag, is_set) in [("--one-queue", options.tuning.one_queue), ("--hints", options.tuning.hints)] {
            if is_set {
                command.arg(flag);
            }
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a receiver")?;
        let output = process.stdout.take().context("a receiver has a standard output")?;
        let mut lines = BufReader::new(output).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.context("the receiver does not start")??;
        let line = line.context("the receiver ended while starting; its message is above")?;
        let ready = serde_json::from_str(&line).context("reading the receiver's address")?;
        Ok(Self { process, ready })
    }

    /// Where it is.
    pub(super) const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Processor time that it has used; `None` where /proc does not tell.
    pub(super) fn cpu(&self) -> Option<Duration> {
        Process::read(self.process.id()?).map(|process| process.own)
    }

    /// Lets it end by itself.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.process.stdin.take());
        let status = timeout(PATIENCE, self.process.wait()).await.context("the receiver does not stop")??;
        ensure!(status.success(), "the receiver ended with {status}");
        Ok(())
    }
}
