//! Measurements of Portero against what one would write without it.
//!
//! | command | question |
//! |---|---|
//! | `accept` | how many events a second are accepted durably, and how long does one wait, beside a plain receiver |
//! | `hints` | whether telling other gateways of commits slows accepting down |
//! | `verify` | what verifying and reading one request costs, beside bare HMAC and serde_json |
//! | `drain` | how fast a backlog reaches a consumer, beside a queue of rows with `SKIP LOCKED` |
//! | `latency` | how long from the request to the handler, at a fixed rate |
//! | `snapshot` | how fast a backlog drains while a snapshot is held open |
//! | `quiet` | how long a tenant waits behind another one's backlog |
//! | `noisy` | what a quiet tenant notices of another one that sends many times what it may |
//! | `rolling` | what a rolling restart of gateways does to deliveries |
//! | `memory` | what idle subscriptions and stalled consumers cost |
//! | `config` | how long a change takes until a gateway has applied it, beside reading everything anew |
//! | `serve-baseline`, `serve-portero` | the two receivers that `accept` compares, each a process of its own |
//! | `consume`, `work-queue` | the two consumers that `drain` compares, each a process of its own |
//!
//! A comparison must never loosen what it compares: a database that does not wait for the disk is refused, `accept` counts the
//! rows behind the answers after each round, and `drain` fails when an event comes twice or out of order.

mod accept;
mod clock;
mod config;
mod connection;
mod database;
mod delivery;
mod figures;
mod process;
mod progress;
mod serve;
mod setup;
mod stripe;
mod verify;

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

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
    /// Accepted events per second with and without hints to other gateways.
    Hints(accept::Options),
    /// Microseconds to verify and read one Stripe request: Portero's recipe beside bare HMAC and serde_json.
    Verify(verify::Options),
    /// Events per second out of a backlog: Portero beside a queue of rows with FOR UPDATE SKIP LOCKED.
    Drain(delivery::drain::Options),
    /// Milliseconds from the request to the handler at a fixed rate, with the consumer here and at another gateway.
    Latency(delivery::latency::Options),
    /// Events per second out of a backlog while a snapshot is held open.
    Snapshot(delivery::snapshot::Options),
    /// Milliseconds that a quiet tenant waits while another one has a backlog in the same subscription.
    Quiet(delivery::quiet::Options),
    /// Milliseconds that a quiet tenant waits for its answers while another one sends 20 times what it may.
    Noisy(delivery::noisy::Options),
    /// The longest gap, redeliveries and counted attempts in a rolling restart under load.
    Rolling(delivery::rolling::Options),
    /// Memory per 1,000 idle subscriptions and per stalled consumer.
    Memory(delivery::memory::Options),
    /// Milliseconds from a change of one source to the gateway that has applied it, beside reading all configuration anew.
    Config(config::Options),
    /// The plain receiver: verifies, then inserts receipt and payload in one transaction per request.
    ServeBaseline(serve::Options),
    /// Portero's edge on Postgres, wired as the gateway does it.
    ServePortero(serve::Options),
    /// A consumer by the SDK that acks everything, until it has so many events.
    Consume(delivery::consumer::Options),
    /// The worker of the queue of rows, until it has so many events.
    WorkQueue(delivery::queue::worker::Options),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Command::Verify(options) = arguments.command {
        return verify::run(&options);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.context("starting the runtime")?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = run(arguments.command) => outcome,
            // What is dropped with it takes the processes along that it started.
            stopped = stop() => stopped,
        }
    });
    runtime.shutdown_background();
    outcome
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Accept(options) => accept::run(options).await,
        Command::Hints(options) => accept::hints::run(options).await,
        Command::Verify(options) => verify::run(&options),
        Command::ServeBaseline(options) => serve::baseline::run(options).await,
        Command::ServePortero(options) => serve::portero::run(options).await,
        Command::Drain(options) => delivery::drain::run(options).await,
        Command::Latency(options) => delivery::latency::run(options).await,
        Command::Snapshot(options) => delivery::snapshot::run(options).await,
        Command::Quiet(options) => delivery::quiet::run(options).await,
        Command::Noisy(options) => delivery::noisy::run(options).await,
        Command::Rolling(options) => delivery::rolling::run(options).await,
        Command::Memory(options) => delivery::memory::run(options).await,
        Command::Config(options) => config::run(options).await,
        Command::Consume(options) => delivery::consumer::run(options).await,
        Command::WorkQueue(options) => delivery::queue::worker::run(options).await,
    }
}

/// Resolves when somebody asks this program to stop.
async fn stop() -> anyhow::Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("listening for signals")?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed.context("listening for signals")?,
        _ = terminated.recv() => {}
    }
    bail!("stopped before the end; databases named portero_bench_… may be left");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
