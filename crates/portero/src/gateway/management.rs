//! The management port: probes and metrics, in plain HTTP.
//!
//! `/livez` says that the process runs; it never looks at the database. `/readyz` says that this process should get
//! traffic: not while draining, not with a schema that does not fit, not when its session was fenced, not when no commit has
//! been possible for a while, and not with a clock that is far off the database's. `/metrics` is in the Prometheus text format.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use portero_directory::Directory;
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
    directory: Directory,
    dispatcher: Dispatcher,
    clock_skew_max: Duration,
}

impl Health {
    pub(crate) fn new(directory: Directory, dispatcher: Dispatcher, clock_skew_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            draining: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            directory,
            dispatcher,
            clock_skew_max,
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
    fn obstacle(&self) -> Option<String> {
        let since_commit =
            self.began.elapsed().as_secs().saturating_sub(self.committed.load(Ordering::SeqCst));
        if self.draining.load(Ordering::SeqCst) {
            Some("draining: this gateway is shutting down".to_owned())
        } else if !self.dispatcher.is_alive() {
            Some("suspended: this gateway's session was not renewed in time".to_owned())
        } else if since_commit > STORE_OUTAGE_MAX.as_secs() {
            Some("store: the database has not committed anything for more than 30 seconds".to_owned())
        } else {
            clock_obstacle(self.directory.clock_skew_micros(), self.clock_skew_max)
        }
    }
}

/// Why a clock that is so far ahead of the database's, or behind it, should get no traffic.
fn clock_obstacle(skew_micros: i64, max: Duration) -> Option<String> {
    let skew = Duration::from_micros(skew_micros.unsigned_abs());
    let direction = if skew_micros < 0 { "behind" } else { "ahead of" };
    (skew > max).then(|| {
        format!(
            "clock: this machine's clock is {:.1} seconds {direction} the database's, more than the {:.1} seconds of \
             management.clock_skew_max: set both by one time server",
            skew.as_secs_f64(),
            max.as_secs_f64()
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_far_off_the_databases_is_an_obstacle_that_says_by_how_much() {
        let max = Duration::from_secs(30);
        for fine in [0, 30_000_000, -30_000_000, 1_500_000] {
            assert_eq!(clock_obstacle(fine, max), None, "{fine}");
        }
        let ahead = clock_obstacle(42_150_000, max).expect("an obstacle");
        assert!(ahead.contains("42.1 seconds ahead of the database's"), "{ahead}");
        assert!(ahead.contains("30.0 seconds of management.clock_skew_max"), "{ahead}");
        let behind = clock_obstacle(-90_000_000, max).expect("an obstacle");
        assert!(behind.contains("90.0 seconds behind the database's"), "{behind}");
        assert!(clock_obstacle(i64::MIN, max).is_some());
    }
}
