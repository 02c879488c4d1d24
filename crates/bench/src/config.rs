//! `config`: how long one change takes until a gateway has applied it, beside reading all configuration anew.
//!
//! A database of its own gets tenants, sources and secrets as the admin API writes them. A directory follows it as in a
//! gateway, hints included. Then sources change one by one, and in between everything is read and made ready anew.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use portero_directory::{Directory, DirectoryConfig, Reporting, Snapshot};
use portero_keyring::{KEY_BYTES, KeyId, Keyring};
use portero_store::{
    ConfigStore, EDGE, Hint, HintStore as _, Revision, SchemaStore as _, Source, SourceUpdate,
};
use portero_store_postgres::{PostgresConfig, PostgresStore};
use portero_types::{Clock as _, ReplicaId, SourceId, TenantId};
use tokio_util::sync::CancellationToken;

use crate::clock::SystemClock;
use crate::database::Server;
use crate::figures::median;
use crate::progress::say;
use crate::setup::Setup;

/// Sources of a tenant.
const SOURCES_OF_TENANT: u32 = 100;
/// How long a change may take to be applied.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two changes: a storm of them is applied in portions, which is another question.
const PAUSE: Duration = Duration::from_millis(50);
/// At least this many times faster than reading everything.
const RATIO_AIM: f64 = 20.0;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// A Postgres on which databases may be created and dropped. Its own data is not touched.
    #[arg(long, value_name = "URL", env = "PORTERO_TEST_POSTGRES_URL")]
    pub(crate) postgres_url: String,
    /// Sources, each with a secret.
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub(crate) sources: u32,
    /// Changes that are measured.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) changes: u32,
    /// Full loads that are measured.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) loads: u32,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail unless a change is applied 20 times faster than everything is read.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Milliseconds.
#[derive(Debug, serde::Serialize)]
struct Report {
    sources: u32,
    setup_seconds: f64,
    /// From the change's commit to the gateway that has applied it.
    applied_median_ms: f64,
    applied_max_ms: f64,
    /// The change itself, to its commit.
    change_median_ms: f64,
    /// Reading everything and making it ready, with all that did not change taken over.
    load_median_ms: f64,
    load_max_ms: f64,
    ratio: f64,
}

/// Measures.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let server = Server::new(&options.postgres_url)?;
    let database = server.create("config").await?;
    let outcome = measure(&options, &database.url).await;
    server.drop(&database).await?;
    let report = outcome?;
    let text = if options.json { serde_json::to_string(&report)? } else { report.text() };
    writeln!(std::io::stdout().lock(), "{text}")?;
    ensure!(!options.check || report.ratio >= RATIO_AIM, "a change is applied too slowly");
    Ok(())
}

async fn measure(options: &Options, url: &str) -> anyhow::Result<Report> {
    let store = PostgresStore::connect(PostgresConfig::new(url)).await?;
    store.migrate().await?;
    let keyring = Arc::new(Keyring::generate(KeyId::new("bench")?, [7; KEY_BYTES])?);
    let setup = Setup { store: &store, keyring: &keyring, now: SystemClock.now() };
    let began = Instant::now();
    let sources = fill(&setup, options.sources).await?;
    let setup_seconds = began.elapsed().as_secs_f64();
    say(&format!("made {} sources in {setup_seconds:.0} s", options.sources));

    let configuration: Arc<dyn ConfigStore> = Arc::new(store.clone());
    let (directory, follower) = Directory::open(configuration, Arc::clone(&keyring), as_a_gateway()).await?;
    let stop = CancellationToken::new();
    let following = tokio::spawn(follower.run(stop.clone()));
    let listening = tokio::spawn(pass_hints_on(store.clone(), directory.clone()));
    let (mut changes, mut applied, mut loads) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.changes.max(options.loads) {
        if round < options.changes {
            tokio::time::sleep(PAUSE).await;
            let source = &sources[(round as usize * 7_919) % sources.len()];
            let (change, seen) = change(&setup, &directory, source, round).await?;
            changes.push(change);
            applied.push(seen);
        }
        if round < options.loads {
            let began = Instant::now();
            let stored = store.snapshot().await?;
            let built = Snapshot::build(stored, &keyring, Some(&directory.snapshot()));
            ensure!(built.sources().count() == sources.len(), "not everything was read");
            loads.push(began.elapsed());
        }
    }
    listening.abort();
    stop.cancel();
    following.await?;
    store.close().await;
    let (applied_median_ms, load_median_ms) = (median(ms(&applied)), median(ms(&loads)));
    Ok(Report {
        sources: options.sources,
        setup_seconds,
        applied_median_ms,
        applied_max_ms: ms(&applied).fold(0.0, f64::max),
        change_median_ms: median(ms(&changes)),
        load_median_ms,
        load_max_ms: ms(&loads).fold(0.0, f64::max),
        ratio: load_median_ms / applied_median_ms,
    })
}

/// One that reports what it has applied.
fn as_a_gateway() -> DirectoryConfig {
    let reporting = Reporting {
        replica: ReplicaId::new(SystemClock.now(), rand::random()),
        instance: "bench".to_owned(),
        roles: vec![EDGE.to_owned()],
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Arc::new(SystemClock),
    };
    DirectoryConfig { reporting: Some(reporting), ..DirectoryConfig::default() }
}

/// Tenants with their sources, and a secret for each.
async fn fill(setup: &Setup<'_>, count: u32) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut tenant = TenantId::new("t0")?;
    for n in 0..count {
        if n % SOURCES_OF_TENANT == 0 {
            tenant = TenantId::new(format!("t{}", n / SOURCES_OF_TENANT))?;
            setup.tenant(&tenant).await?;
        }
        let source = setup.stripe(&tenant, &SourceId::new(format!("s{}", n % SOURCES_OF_TENANT))?).await?;
        setup.secret(&source, &format!("whsec_{n:032}abcdef")).await?;
        sources.push(source);
    }
    Ok(sources)
}

/// Changes a source; how long that took, and how long then until the directory had it.
async fn change(
    setup: &Setup<'_>,
    directory: &Directory,
    source: &Source,
    round: u32,
) -> anyhow::Result<(Duration, Duration)> {
    let mut seen = directory.changed();
    let urls = vec![format!("https://hooks.example.com/{round}")];
    let update = SourceUpdate {
        public_urls: Some(urls.clone()),
        ..SourceUpdate::new(source.tenant.clone(), source.id.clone())
    };
    let began = Instant::now();
    setup.store.update_source(update, &setup.change()).await?;
    let committed = Instant::now();
    let revision: Revision = setup.store.revision().await?;
    let waiting = seen.wait_for(|known| *known >= revision);
    tokio::time::timeout(PATIENCE, waiting).await.context("the change was not applied in time")??;
    let applied = committed.elapsed();
    let snapshot = directory.snapshot();
    let now = snapshot.source_by_no(source.no).context("the source is gone")?;
    ensure!(now.public_urls == urls, "the snapshot does not have the change");
    Ok((committed - began, applied))
}

/// What the dispatcher does in a gateway.
async fn pass_hints_on(store: PostgresStore, directory: Directory) -> anyhow::Result<()> {
    let mut hints = store.listen().await?;
    loop {
        if hints.next().await? == Hint::Config {
            directory.look();
        }
    }
}

fn ms(times: &[Duration]) -> impl Iterator<Item = f64> {
    times.iter().map(|time| time.as_secs_f64() * 1_000.0)
}

impl Report {
    fn text(&self) -> String {
        format!(
            "{} sources, each with a secret (made in {:.0} s)\n\
             one change, commit to applied:   median {:.2} ms, longest {:.2} ms (the change itself {:.2} ms)\n\
             all configuration, read anew:    median {:.1} ms, longest {:.1} ms\n\
             ratio of the medians:            {:.0}",
            self.sources,
            self.setup_seconds,
            self.applied_median_ms,
            self.applied_max_ms,
            self.change_median_ms,
            self.load_median_ms,
            self.load_max_ms,
            self.ratio
        )
    }
}
