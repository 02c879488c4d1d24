//! The example as a service: consumes a subscription into a ledger until it is told to stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use portero_client::{
    CancellationToken, Client, ClientConfig, Delivery, Disconnect, Observer, Outcome, SettlementStatus,
    SubscribeOptions, Token,
};
use portero_example_ledger::Ledger;

/// Consumes payment events from a Portero subscription into a SQLite ledger.
#[derive(Debug, Parser)]
#[command(name = "portero-example-ledger", version)]
struct Arguments {
    /// The gateway's gRPC endpoint.
    #[arg(long, default_value = "http://127.0.0.1:50051")]
    endpoint: String,
    /// A file with the access token; read again when the service reconnects. Without it no token is sent.
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// The subscription to consume.
    #[arg(long, default_value = "ledger")]
    subscription: String,
    /// Name of this instance; a newer process of the same name takes its stream over.
    #[arg(long)]
    instance: Option<String>,
    /// The ledger's file; created when it is missing.
    #[arg(long, default_value = "ledger.db")]
    db: PathBuf,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let ledger = Ledger::open(&arguments.db).await.context("cannot open the ledger")?;
    let mut config = ClientConfig::new(arguments.endpoint);
    config.token = arguments.token_file.map_or_else(Token::none, Token::file);
    config.instance_id = arguments.instance;
    let client = Client::connect(config).await?;
    let shutdown = CancellationToken::new();
    let options = SubscribeOptions {
        shutdown: shutdown.clone(),
        observer: Arc::new(Log),
        ..SubscribeOptions::default()
    };
    let handler = {
        let ledger = ledger.clone();
        move |delivery| {
            let ledger = ledger.clone();
            async move { ledger.handle(delivery).await }
        }
    };
    let consumer = client.subscribe(&arguments.subscription, options).run(handler);
    tokio::pin!(consumer);
    let result = tokio::select! {
        result = &mut consumer => result,
        stopped = stop_signal() => {
            stopped.context("cannot listen for signals")?;
            tracing::info!("stopping: running events may finish");
            shutdown.cancel();
            consumer.await
        }
    };
    ledger.close().await;
    result.context("the subscription ended")
}

/// Returns on SIGTERM or Ctrl-C.
async fn stop_signal() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            result = tokio::signal::ctrl_c() => result,
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}

/// Writes what the subscription does to the log.
struct Log;

impl Observer for Log {
    fn connected(&self, stream_id: &str, generation: i64, assigned_lanes: u32) {
        tracing::info!(stream.id = stream_id, generation, assigned_lanes, "connected");
    }

    fn disconnected(&self, why: &Disconnect<'_>, next_attempt_in: Option<Duration>) {
        let next_attempt_ms = next_attempt_in.map(|wait| wait.as_millis());
        if let Disconnect::Failed(error) = why {
            tracing::warn!(%error, next_attempt_ms, "disconnected");
        } else {
            tracing::info!(?why, next_attempt_ms, "disconnected");
        }
    }

    fn handled(&self, delivery: &Delivery, outcome: &Outcome, took: Duration) {
        tracing::info!(
            receipt.id = delivery.receipt_id(),
            event.id = delivery.event_id(),
            event.r#type = delivery.event_type(),
            attempt.number = delivery.attempt(),
            outcome = outcome.name(),
            duration_ms = took.as_millis(),
            "handled"
        );
    }

    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        tracing::debug!(receipt.id = receipt_id, outcome = outcome.name(), status = status.name(), "settled");
    }

    fn lost(&self, receipt_id: &str, outcome: &Outcome) {
        tracing::warn!(
            receipt.id = receipt_id,
            outcome = outcome.name(),
            "outcome lost: the event comes again"
        );
    }
}
