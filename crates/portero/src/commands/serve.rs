//! `portero serve`: run a gateway until a signal.

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::ServeArgs;
use crate::clock::SystemClock;
use crate::gateway::{Gateway, Opened, warn_of_unverified};
use crate::telemetry;

/// Runs until SIGTERM or SIGINT, then drains.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let config = super::load(&args.config)?;
    let guard = telemetry::start(&config.telemetry, &config.instance_id)?;
    warn_of_unverified(&config);
    let opened = Opened::open_patiently(&config.database).await?;
    if args.migrate {
        opened.store().migrate().await?;
    }
    let gateway = Gateway::start(config, opened, SystemClock::default()).await?;
    let result = until_signal(&gateway).await;
    gateway.stop().await;
    guard.shutdown();
    result
}

/// Waits for SIGTERM or SIGINT, or for a failure that this process cannot mend. A second signal ends it at once.
pub(crate) async fn until_signal(gateway: &Gateway) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let result = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        error = gateway.failed() => Err(error),
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("a second signal came; ending without draining");
        std::process::exit(130);
    });
    result
}
