//! One gateway process, put together from its parts: started, watched, drained.

mod audit_head;
mod callers;
mod doors;
mod edge;
mod handshake_secrets;
mod keyring;
mod management;
mod secret_watch;
mod store;
mod tls;
mod wires;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use portero_api::{Api, ApiConfig, Listener, Services};
use portero_auth::Verifier;
use portero_directory::{Directory, DirectoryConfig, Reporting};
use portero_dispatcher::{Dispatcher, DispatcherConfig, SESSION_TTL, STREAM_AGE, TraceHook};
use portero_ingress::LimitsConfig;
use portero_ingress::accept::{AcceptConfig, AcceptHandle};
use portero_keyring::Keyring;
use portero_prefilter::{Layered, Local, LocalConfig, Redis, RedisConfig, RedisTls};
use portero_store::DynStore;
use portero_tls::Looks;
use portero_types::{Clock as _, ReplicaId, SessionId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::SystemClock;
use crate::config::{Config, Role};
use crate::entropy;
use crate::telemetry;
use doors::{Door, Doors};

pub(crate) use keyring::{keyring, name_in, require_no_namesake};
pub(crate) use management::Health;
pub(crate) use store::{Opened, read_secret_file, require_current};
pub(crate) use tls::read_certificates;
pub(crate) use wires::warn_of_unverified;

/// How long after its deadline a drain may take to end the last streams.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// Where a running gateway listens; a part that it does not run has no address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) edge: Option<SocketAddr>,
    pub(crate) grpc: Option<SocketAddr>,
    pub(crate) management: SocketAddr,
}

/// A running gateway.
pub(crate) struct Gateway {
    pub(crate) addresses: Addresses,
    config: Config,
    clock: SystemClock,
    opened: Opened,
    health: Arc<Health>,
    dispatcher: Dispatcher,
    accept: AcceptHandle,
    tasks: TaskTracker,
    /// Asks for a look at TLS files.
    tls_looks: Looks,
    /// Stops taking webhooks.
    close_edge: CancellationToken,
    /// Stops serving gRPC.
    close_grpc: CancellationToken,
    /// Stops everything that runs beside.
    close_rest: CancellationToken,
}

impl Gateway {
    /// Starts a gateway on a database whose schema fits.
    pub(crate) async fn start(config: Config, opened: Opened, clock: SystemClock) -> anyhow::Result<Self> {
        let (tasks, close_rest) = (TaskTracker::new(), CancellationToken::new());
        let started = Self::begin(config, opened, clock, (tasks.clone(), close_rest.clone())).await;
        if started.is_err() {
            // It may have said that it runs: it signs off, so that nobody waits for what never served.
            close_rest.cancel();
            tasks.close();
            let _ = tokio::time::timeout(Duration::from_secs(5), tasks.wait()).await;
        }
        started
    }

    async fn begin(
        config: Config,
        opened: Opened,
        clock: SystemClock,
        (tasks, close_rest): (TaskTracker, CancellationToken),
    ) -> anyhow::Result<Self> {
        let store = opened.store();
        require_current(&store).await?;
        let keyring = Arc::new(keyring(&config.keyring)?);
        keyring::require_every_key(&keyring, &store).await?;
        keyring::require_the_others_key(&keyring, &store, &config.instance_id).await?;
        let verifier = callers::verifier(&config.auth)?;
        let metrics = metrics()?;
        keyring::tell(&keyring);
        let prefilter = prefilter(&config, &clock)?;
        let fetch = edge::fetcher(&config.outbound)?;
        // The last that can fail for a reason of this process's own.
        let doors = Doors::open(&config, &clock).await?;
        let (directory, follower) =
            Directory::open(config_store(&opened), Arc::clone(&keyring), directory_settings(&config))
                .await
                .context("the configuration cannot be loaded")?;
        tasks.spawn(follower.run(close_rest.clone()));
        let dispatcher = dispatcher(&config, &store, &directory, &clock).await?;
        follow_prefilter(&tasks, &close_rest, Arc::clone(&prefilter), store.clone());
        let accept = accept(&opened, Arc::clone(&prefilter), &dispatcher, &config.limits).await?;
        let health = Health::new(directory.clone(), dispatcher.clone(), config.management.clock_skew_max);
        tasks.spawn(Arc::clone(&health).watch(store.clone(), close_rest.clone()));
        let addresses = Addresses {
            edge: doors.edge.as_ref().map(|door| door.address),
            grpc: doors.grpc.as_ref().map(|door| door.address),
            management: doors.management.address,
        };
        let gateway = Self {
            addresses,
            config,
            clock,
            opened,
            health,
            dispatcher,
            accept,
            tasks,
            tls_looks: Looks::new(),
            close_edge: close_rest.child_token(),
            close_grpc: close_rest.child_token(),
            close_rest,
        };
        if gateway.config.has(Role::Admin) {
            let (telling, stop) = (audit_head::tell(store.clone()), gateway.close_rest.clone());
            gateway.tasks.spawn(async move { stop.run_until_cancelled(telling).await });
            let watching = secret_watch::run(store.clone(), Arc::new(gateway.clock.clone()));
            let stop = gateway.close_rest.clone();
            gateway.tasks.spawn(async move { stop.run_until_cancelled(watching).await });
        }
        gateway.look_on_hangup();
        if let Some(door) = doors.edge {
            gateway.start_edge(door, &directory, prefilter, fetch);
        }
        if let Some(door) = doors.grpc {
            gateway.start_grpc(door, store, directory, keyring, verifier).await;
        }
        // Last, so that whoever is told "ready" finds all other ports open.
        let (health, stop) = (Arc::clone(&gateway.health), gateway.close_rest.clone());
        gateway.tasks.spawn(management::serve(doors.management.listener, health, metrics, stop));
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            edge.listen = addresses.edge.map(tracing::field::display),
            grpc.listen = addresses.grpc.map(tracing::field::display),
            management.listen = %addresses.management,
            "the gateway is serving"
        );
        Ok(gateway)
    }

    async fn start_grpc(
        &self,
        door: Door,
        store: DynStore,
        directory: Directory,
        keyring: Arc<Keyring>,
        verifier: Arc<Verifier>,
    ) {
        let services =
            Services { subscriber: self.config.has(Role::Stream), admin: self.config.has(Role::Admin) };
        let clock = Arc::new(self.clock.clone());
        verifier.refresh_due(clock.now()).await;
        let (keys, stop) = (Arc::clone(&verifier).run(clock.clone()), self.close_rest.clone());
        self.tasks.spawn(async move { stop.run_until_cancelled(keys).await });
        self.follow_tls(door.tls.as_ref());
        let connections_max = usize::try_from(self.config.grpc.connections_max).unwrap_or(usize::MAX);
        let listener = Listener::new(door.listener, door.tls, connections_max);
        let api = Api::new(ApiConfig {
            store,
            directory,
            dispatcher: self.dispatcher.clone(),
            keyring: Some(keyring),
            verifier,
            clock,
            entropy: Arc::new(entropy::random),
            services,
        });
        self.tasks.spawn(api.serve(listener, self.close_grpc.clone()));
    }

    /// Resolves when this gateway cannot go on by itself.
    pub(crate) async fn failed(&self) -> anyhow::Error {
        self.dispatcher.fenced().await;
        anyhow::anyhow!(
            "another gateway with the instance id {:?} took over; give each process an instance_id of its own",
            self.config.instance_id
        )
    }

    /// Drains and stops: nothing that was promised is lost, nothing is counted against consumers.
    ///
    /// Readiness goes off first, while everything still works; then the edge finishes what it has begun, consumers are
    /// asked to settle and reconnect, progress is written, and the session is given up last.
    pub(crate) async fn stop(self) {
        let shutdown = &self.config.shutdown;
        self.health.drain();
        tracing::info!("draining: this gateway is shutting down");
        tokio::time::sleep(shutdown.drain_delay).await;
        self.close_edge.cancel();
        let deadline = self.clock.now().plus(shutdown.drain_timeout);
        // At its deadline the dispatcher takes back what is left, so this bound is for what nobody thought of.
        let bound = shutdown.drain_timeout + DRAIN_GRACE;
        if tokio::time::timeout(bound, self.dispatcher.drain(deadline)).await.is_err() {
            tracing::warn!("some streams did not end in time; they are cut");
        }
        self.accept.drain().await;
        self.dispatcher.stop(Duration::from_secs(5)).await;
        self.close_grpc.cancel();
        self.close_rest.cancel();
        self.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await.is_err() {
            tracing::warn!("some connections did not close in time");
        }
        self.opened.close().await;
        tracing::info!("the gateway has stopped");
    }
}

fn config_store(opened: &Opened) -> Arc<dyn portero_store::ConfigStore> {
    match opened {
        Opened::Sqlite(store) => Arc::new(store.clone()),
        Opened::Postgres(store) => Arc::new(store.clone()),
    }
}

fn accept_store(opened: &Opened) -> Arc<dyn portero_store::AcceptStore> {
    match opened {
        Opened::Sqlite(store) => Arc::new(store.clone()),
        Opened::Postgres(store) => Arc::new(store.clone()),
    }
}

/// What this process says of itself, by the machine's own clock.
fn directory_settings(config: &Config) -> DirectoryConfig {
    let clock = SystemClock::default();
    let roles = config.roles.iter().map(|role| role.name().to_owned()).collect();
    let reporting = Reporting {
        replica: ReplicaId::new(clock.now(), entropy::random_u128()),
        instance: config.instance_id.clone(),
        roles,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Arc::new(clock),
    };
    DirectoryConfig { reporting: Some(reporting), ..DirectoryConfig::default() }
}

async fn accept(
    opened: &Opened,
    prefilter: Arc<Layered>,
    dispatcher: &Dispatcher,
    limits: &LimitsConfig,
) -> anyhow::Result<AcceptHandle> {
    let shards = opened.shards().await.context("the log cannot be read")?;
    let settings = AcceptConfig {
        shards,
        queues: opened.queues(),
        tenant_percent: usize::try_from(limits.in_flight_percent).unwrap_or(100),
        ..AcceptConfig::default()
    };
    let dispatcher = dispatcher.clone();
    Ok(AcceptHandle::new(settings, accept_store(opened), prefilter, Arc::new(move |_| dispatcher.hint())))
}

async fn dispatcher(
    config: &Config,
    store: &DynStore,
    directory: &Directory,
    clock: &SystemClock,
) -> anyhow::Result<Dispatcher> {
    let trace: Option<TraceHook> = config
        .telemetry
        .otlp_endpoint
        .is_some()
        .then(|| Arc::new(telemetry::adopt_trace_parent) as TraceHook);
    let sessions = clock.clone();
    let settings = DispatcherConfig {
        instance: config.instance_id.clone(),
        new_session: Arc::new(move || SessionId::new(sessions.now(), entropy::random_u128())),
        session_ttl: SESSION_TTL,
        stream_age: STREAM_AGE,
        trace,
        seed: entropy::random_u64(),
    };
    Dispatcher::start(store.clone(), directory.clone(), Arc::new(clock.clone()), settings)
        .await
        .context("this gateway's session cannot be opened")
}

fn prefilter(config: &Config, clock: &SystemClock) -> anyhow::Result<Arc<Layered>> {
    let url = match (&config.redis.url, &config.redis.url_file) {
        (Some(url), _) => Some(url.clone()),
        (None, Some(file)) => Some(read_secret_file(file)?),
        (None, None) => None,
    };
    let redis = url
        .map(|url| {
            anyhow::Ok(Redis::new(RedisConfig {
                url,
                tls: redis_tls(&config.redis)?,
                ..RedisConfig::new("")
            })?)
        })
        .transpose()
        .context("the settings of [redis] cannot be used")?;
    let local = Local::new(LocalConfig::default(), Arc::new(clock.clone()));
    Ok(Arc::new(Layered::new(Some(local), redis)))
}

fn redis_tls(section: &crate::config::Redis) -> anyhow::Result<RedisTls> {
    let authorities = section.ca_file.as_deref();
    let mut tls = RedisTls {
        authorities: authorities.map(|path| read_certificates("redis.ca_file", path)).transpose()?,
        ..RedisTls::default()
    };
    if let Some((certificate, key)) = &section.client_files {
        tls.client_certificate = Some(read_certificates("redis.client_cert_file", certificate)?);
        let key = read_secret_file(key).context("redis.client_key_file cannot be used")?;
        tls.client_key = Some(key.expose_secret().as_bytes().to_vec().into());
    }
    Ok(tls)
}

fn follow_prefilter(tasks: &TaskTracker, stop: &CancellationToken, prefilter: Arc<Layered>, store: DynStore) {
    let stop = stop.clone();
    tasks.spawn(async move {
        let follow = prefilter.follow(|| {
            let store = store.clone();
            async move { store.identity().await.ok() }
        });
        stop.run_until_cancelled(follow).await;
    });
}

fn metrics() -> anyhow::Result<metrics_exporter_prometheus::PrometheusHandle> {
    let seconds = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
    let matcher = metrics_exporter_prometheus::Matcher::Suffix("_seconds".to_owned());
    let handle = metrics_exporter_prometheus::PrometheusBuilder::new()
        .set_buckets_for_metric(matcher, &seconds)?
        .install_recorder()
        .context("metrics cannot be recorded")?;
    portero_api::metrics::describe();
    secret_watch::describe();
    portero_auth::describe();
    portero_directory::metrics::describe();
    portero_dispatcher::metrics::describe();
    portero_ingress::metrics::describe();
    portero_outbound::metrics::describe();
    portero_prefilter::describe();
    portero_tls::describe();
    Ok(handle)
}
