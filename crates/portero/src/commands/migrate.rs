//! `portero migrate`: bring the schema up to what this program needs.

use anyhow::Context as _;
use portero_store::SchemaState;

use crate::cli::ConfigArgs;
use crate::gateway::Opened;
use crate::telemetry;

/// Migrates, waiting up to a minute for the database.
pub(crate) async fn run(args: ConfigArgs) -> anyhow::Result<()> {
    let config = super::load(&args)?;
    let guard = telemetry::start(&config.telemetry, &config.instance_id)?;
    let opened = Opened::open_patiently(&config.database).await?;
    let store = opened.store();
    let before = store.schema_state().await.context("the schema cannot be read")?;
    store.migrate().await.context("the schema cannot be migrated")?;
    match (before, store.schema_state().await.context("the schema cannot be read")?) {
        (SchemaState::Current { version }, _) => tracing::info!(version, "the schema was up to date"),
        (_, SchemaState::Current { version }) => tracing::info!(version, "the schema is migrated"),
        (_, other) => anyhow::bail!("the schema was migrated and does not fit all the same: {other:?}"),
    }
    opened.close().await;
    guard.shutdown();
    Ok(())
}
