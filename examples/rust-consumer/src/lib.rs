//! A service that consumes a subscription until it is told to stop.

mod scripted;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use portero_client::{
    CancellationToken, Client, ClientConfig, Delivery, Disconnect, Observer, Outcome, SettlementStatus,
    SubscribeOptions, Token,
};

/// How to consume.
#[derive(Parser)]
#[command(name = "portero-example-consumer", about = "Consumes a Portero subscription", version)]
pub struct Arguments {
    /// The gateway's gRPC endpoint.
    #[arg(long, default_value = "http://127.0.0.1:50051")]
    endpoint: String,
    /// The subscription to consume.
    #[arg(long)]
    subscription: String,
    /// This consumer's place; a newer process of the same name takes its stream over.
    #[arg(long)]
    instance: Option<String>,
    /// A file with the access token, read again for each connection.
    #[arg(long, env = "PORTERO_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The access token, where no file is given; without either none is sent.
    #[arg(long, env = "PORTERO_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Unsettled events at a time.
    #[arg(long, default_value_t = 256)]
    max_inflight_events: u32,
    /// Test mode: see scripted.rs.
    #[arg(long)]
    scripted: bool,
}

/// Answers one event: put your own work here. Runs for many entities at a time and for one event of an entity.
async fn handle(delivery: Delivery) -> Outcome {
    if std::str::from_utf8(delivery.body()).is_err() {
        return Outcome::reject("NOT_TEXT", "the body is no text");
    }
    tracing::info!(receipt.id = delivery.receipt_id(), event.r#type = delivery.event_type(), "handled");
    Outcome::Ack
}

/// Consumes until SIGTERM or Ctrl-C.
///
/// # Errors
/// When the gateway refuses for good.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut config = ClientConfig::new(arguments.endpoint);
    config.token = match (arguments.token_file, arguments.token) {
        (Some(path), _) => Token::file(path),
        (None, Some(token)) => Token::fixed(token),
        (None, None) => Token::none(),
    };
    config.instance_id = arguments.instance;
    let client = Client::connect(config).await?;
    let shutdown = CancellationToken::new();
    let mut options = SubscribeOptions {
        max_inflight_events: arguments.max_inflight_events,
        shutdown: shutdown.clone(),
        observer: Arc::new(Log),
        ..SubscribeOptions::default()
    };
    let stopping = tokio::spawn(stop_on_signal(shutdown));
    let ended = if arguments.scripted {
        let script = scripted::Script::new();
        options.observer = Arc::new(scripted::Lines::new());
        client.subscribe(&arguments.subscription, options).run(move |delivery| script.handle(delivery)).await
    } else {
        client.subscribe(&arguments.subscription, options).run(handle).await
    };
    stopping.abort();
    ended.context("the subscription ended")
}

/// Stops the consumer on SIGTERM or Ctrl-C: no new events, running handlers may finish, their outcomes are recorded.
async fn stop_on_signal(shutdown: CancellationToken) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => {}
            result = tokio::signal::ctrl_c() => result?,
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await?;
    shutdown.cancel();
    Ok(())
}

/// Writes to the log what an operator wants to know.
struct Log;

impl Observer for Log {
    fn connected(&self, stream_id: &str, _generation: i64, assigned_lanes: u32) {
        tracing::info!(stream.id = stream_id, assigned_lanes, "connected");
    }

    fn disconnected(&self, why: &Disconnect<'_>, next_attempt_in: Option<Duration>) {
        tracing::warn!(?why, ?next_attempt_in, "disconnected");
    }

    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        // An ack counts only when it is on record.
        if !status.is_durable() {
            let (outcome, status) = (outcome.name(), status.name());
            tracing::warn!(receipt.id = receipt_id, outcome, status, "not recorded: the event comes again");
        }
    }

    fn lost(&self, receipt_id: &str, outcome: &Outcome) {
        tracing::warn!(receipt.id = receipt_id, outcome = outcome.name(), "lost: the event comes again");
    }

    fn revoked(&self, count: usize, reason: &str) {
        tracing::warn!(count, reason, "deliveries were taken back");
    }
}
