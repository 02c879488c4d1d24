//! Measurements of Portero against what one would write without it.
//!
//! | command | question |
//! |---|---|
//! | `accept` | how many events a second are accepted durably, and how long does one wait, beside a plain receiver |
//! | `verify` | what verifying and reading one request costs, beside bare HMAC and serde_json |
//! | `serve-baseline`, `serve-portero` | the two receivers that `accept` compares, each a process of its own |
//!
//! A comparison must never loosen what it compares: `accept` refuses a database that does not wait for the disk, and counts
//! the rows behind the answers after each round.

mod accept;
mod clock;
mod serve;
mod stripe;
mod verify;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Measures Portero against plain alternatives, on this machine.
#[derive(Debug, Parser)]
#[command(name = "portero-bench", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Accepted events per second and latency on Postgres: Portero's edge beside a plain axum + sqlx receiver.
    Accept(accept::Options),
    /// Microseconds to verify and read one Stripe request: Portero's recipe beside bare HMAC and serde_json.
    Verify(verify::Options),
    /// The plain receiver: verifies, then inserts receipt and payload in one transaction per request.
    ServeBaseline(serve::Options),
    /// Portero's edge on Postgres, wired as the gateway does it.
    ServePortero(serve::Options),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Command::Verify(options) = arguments.command {
        return verify::run(&options);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("starting the runtime")?.block_on(async {
        match arguments.command {
            Command::Accept(options) => accept::run(options).await,
            Command::Verify(options) => verify::run(&options),
            Command::ServeBaseline(options) => serve::baseline::run(options).await,
            Command::ServePortero(options) => serve::portero::run(options).await,
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
