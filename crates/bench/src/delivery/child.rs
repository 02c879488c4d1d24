//! Consumers as child processes of this program: each prints one line of JSON at its end.

use std::process::Stdio;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Runs a subcommand of this program to its end and reads what it found. Killed when dropped.
pub(super) async fn run<T: DeserializeOwned>(
    arguments: &[String],
    environment: &[(&str, &str)],
) -> anyhow::Result<T> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting a consumer")?;
    let output = child.stdout.take().context("a consumer has a standard output")?;
    let line = BufReader::new(output).lines().next_line().await?;
    let line = line.context("the consumer ended without a result; its message is above")?;
    // It has said everything: how it ends does not matter.
    let _ = child.wait().await;
    serde_json::from_str(&line).context("reading a consumer's result")
}
