//! Portero's edge on Postgres with the gateway's own defaults, on a database of its own.
//!
//! Everything that the gateway pays for per request is here: spans and a JSON log on standard error at level info, the
//! Prometheus recorder, the directory that follows the configuration, the in-process pre-filter bound to the database's
//! identity, the batcher. Nothing consumes; the consumers' side is not part of this measurement.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use portero_directory::{Directory, DirectoryConfig};
use portero_ingress::{
    AcceptConfig, AcceptHandle, Edge, EdgeConfig, LimitsConfig, NoSecrets, Parts, Queues, RejectionQueue,
    SecretUses,
};
use portero_keyring::{KEY_BYTES, KeyId, Keyring};
use portero_prefilter::{Layered, Local, LocalConfig, Prefilter};
use portero_store::{ConfigStore, Hint, HintStore as _, SchemaStore, Source};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use portero_types::{Clock, ShardCount, SourceId, TenantId};
use tokio::sync::Notify;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{Options, Tuning, listen, tell, until_parent_ends};
use crate::clock::SystemClock;
use crate::setup::Setup;

/// At most one hint in this time, as in the gateway.
const HINT_EVERY: Duration = Duration::from_millis(50);
/// Time between two foldings of observed durations.
const UPKEEP: Duration = Duration::from_secs(5);

/// Serves until standard input ends.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    observe()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = PostgresStore::connect(PostgresConfig::new(options.postgres_url.as_str())).await?;
    store.migrate().await?;
    // The same key at each start, so that what an earlier round sealed can be opened.
    let keyring = Keyring::generate(KeyId::new("bench")?, [7; KEY_BYTES])?;
    let source = configured(&store, &keyring, &options.secret, &*clock).await?;

    let shutdown = until_parent_ends();
    let configuration: Arc<dyn ConfigStore> = Arc::new(store.clone());
    let (directory, follower) =
        Directory::open(configuration, Arc::new(keyring), DirectoryConfig::default()).await?;
    let following = tokio::spawn(follower.run(shutdown.clone()));

    let prefilter =
        Arc::new(Layered::new(Some(Local::new(LocalConfig::default(), Arc::clone(&clock))), None));
    let confirming = tokio::spawn({
        let (prefilter, store) = (Arc::clone(&prefilter), store.clone());
        async move { prefilter.follow(|| async { store.identity().await.ok() }).await }
    });
    let prefilter: Arc<dyn Prefilter> = prefilter;

    let committed = Arc::new(Notify::new());
    let telling =
        options.tuning.hints.then(|| tokio::spawn(pass_hints_on(store.clone(), Arc::clone(&committed))));
    let accept = AcceptHandle::new(
        batching(options.tuning, store.shards().await?),
        Arc::new(store.clone()),
        Arc::clone(&prefilter),
        Arc::new(move |_shard| committed.notify_one()),
    );
    let parts = Parts {
        directory,
        accept: accept.clone(),
        prefilter,
        fetch: Arc::new(portero_outbound::Offline),
        secrets: Arc::new(NoSecrets),
        secret_uses: SecretUses::new(),
        rejections: RejectionQueue::disabled(),
        clock,
        random: Arc::new(rand::random),
        trace_parent: Arc::new(String::new),
    };
    let listener = listen(options.listen).await?;
    tell(&listener, format!("/in/{}", source.ingest_key))?;
    portero_ingress::serve(listener, None, Edge::new(unlimited(), parts), shutdown).await;
    accept.drain().await;
    following.await?;
    confirming.abort();
    if let Some(telling) = telling {
        telling.abort();
    }
    store.close().await;
    Ok(())
}

/// What is measured is how much can be accepted, not how much may be.
fn unlimited() -> EdgeConfig {
    EdgeConfig { limits: LimitsConfig::none(), ..EdgeConfig::default() }
}

/// Tells whoever listens that the log grew, now and then.
async fn pass_hints_on(store: PostgresStore, committed: Arc<Notify>) {
    loop {
        committed.notified().await;
        // Whoever was not told finds out by polling.
        let _ = store.hint(Hint::Log).await;
        tokio::time::sleep(HINT_EVERY).await;
    }
}

/// The gateway's own bounds, but for what the command line changes.
fn batching(tuning: Tuning, shards: ShardCount) -> AcceptConfig {
    let defaults = AcceptConfig { shards, ..AcceptConfig::default() };
    AcceptConfig {
        queues: if tuning.one_queue { Queues::One } else { defaults.queues },
        commits_in_flight_max: tuning.commits_in_flight.unwrap_or(defaults.commits_in_flight_max),
        ..defaults
    }
}

/// Logs and metrics as the gateway has them, traces not exported.
fn observe() -> anyhow::Result<()> {
    let lines = tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(std::io::stderr);
    let levels = Targets::new()
        .with_default(tracing::Level::INFO)
        // A fresh database migrates; nobody needs to read that.
        .with_target("sqlx", tracing::Level::WARN);
    tracing_subscriber::registry().with(levels).with(lines).try_init().context("setting up the log")?;
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|_| anyhow!("metrics are set up already"))?;
    portero_ingress::metrics::describe();
    portero_prefilter::describe();
    // Nobody scrapes here, so what was observed is folded by the clock.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            metrics.run_upkeep();
        }
    });
    Ok(())
}

/// One tenant with one Stripe source and its secret: found, or made at the first start.
async fn configured(
    store: &PostgresStore,
    keyring: &Keyring,
    secret: &str,
    clock: &dyn Clock,
) -> anyhow::Result<Source> {
    let (tenant, id) = (TenantId::new("bench")?, SourceId::new("stripe")?);
    if let Some(source) = store.source(&tenant, &id).await? {
        return Ok(source);
    }
    let setup = Setup { store, keyring, now: clock.now() };
    setup.tenant(&tenant).await?;
    let source = setup.stripe(&tenant, &id).await?;
    setup.secret(&source, secret).await?;
    Ok(source)
}
