//! The management port: probes and metrics, in plain HTTP.
//!
//! `/livez` says that the process runs; it never looks at the database. `/readyz` says that this process should get
//! traffic: not while draining, not with a schema that does not fit, not when its session was fenced, and not when no
//! commit has been possible for a while. `/metrics` is in the Prometheus text format.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use portero_dispatcher::Dispatcher;
use portero_store::DynStore;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const CHECK_EVERY: Duration = Duration::from_secs(2);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long commits may fail before traffic should go elsewhere. Until then the edge answers 503 by itself.
const STORE_OUTAGE_MAX: Duration = Duration::from_secs(30);

/// What the probes answer from.
pub(crate) struct Health {
    began: Instant,
    draining: AtomicBool,
    /// Seconds from `began` until the database last committed.
    committed: AtomicU64,
    dispatcher: Option<Dispatcher>,
}

impl Health {
    pub(crate) fn new(dispatcher: Option<Dispatcher>) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            draining: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            dispatcher,
        })
    }

    /// From now on traffic should go elsewhere.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Watches whether the database commits, until `stop`.
    pub(crate) async fn watch(self: Arc<Self>, store: DynStore, stop: CancellationToken) {
        loop {
            if matches!(tokio::time::timeout(CHECK_TIMEOUT, store.check_writable()).await, Ok(Ok(()))) {
                self.committed.store(self.began.elapsed().as_secs(), Ordering::SeqCst);
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
        }
    }

    /// Why this process should get no traffic.
    fn obstacle(&self) -> Option<&'static str> {
        let since_commit =
            self.began.elapsed().as_secs().saturating_sub(self.committed.load(Ordering::SeqCst));
        if self.draining.load(Ordering::SeqCst) {
            Some("draining: this gateway is shutting down")
        } else if self.dispatcher.as_ref().is_some_and(|dispatcher| !dispatcher.is_alive()) {
            Some("suspended: this gateway's session was not renewed in time")
        } else if since_commit > STORE_OUTAGE_MAX.as_secs() {
            Some("store: the database has not committed anything for more than 30 seconds")
        } else {
            None
        }
    }
}

#[derive(Clone)]
struct Shared {
    health: Arc<Health>,
    metrics: PrometheusHandle,
}

/// Serves probes and metrics until `stop`.
pub(crate) async fn serve(
    listener: TcpListener,
    health: Arc<Health>,
    metrics: PrometheusHandle,
    stop: CancellationToken,
) {
    let routes = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(render))
        .with_state(Shared { health, metrics });
    if let Err(error) = axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await {
        tracing::error!(%error, "the management port failed");
    }
}

async fn ready(State(shared): State<Shared>) -> (StatusCode, String) {
    match shared.health.obstacle() {
        None => (StatusCode::OK, "ok\n".to_owned()),
        Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, format!("{obstacle}\n")),
    }
}

async fn render(State(shared): State<Shared>) -> String {
    shared.metrics.run_upkeep();
    shared.metrics.render()
}
