//! The edge and what runs beside it: fetching, and remembering refused requests.

use std::sync::Arc;

use anyhow::Context as _;
use portero_directory::{Directory, Source};
use portero_ingress::{Edge, EdgeConfig, Parts, RejectionQueue, SealCapture, SecretUses, sweep_rejections};
use portero_keyring::rejection_aad;
use portero_outbound::{CacheConfig, CachedFetcher, Fetch, HttpConfig, HttpFetcher, InvalidConfig, Offline};
use portero_prefilter::{Layered, Prefilter};
use portero_store::{RejectionStore, Sealed, SecretUseStore};
use portero_types::{Clock, RequestId};

use super::doors::Door;
use super::handshake_secrets::HandshakeSecrets;
use super::{Gateway, Opened, config_store};
use crate::config::Outbound;
use crate::{entropy, telemetry};

impl Gateway {
    /// Starts taking webhooks.
    pub(super) fn start_edge(
        &self,
        door: Door,
        directory: &Directory,
        prefilter: Arc<Layered>,
        fetch: Arc<dyn Fetch>,
    ) {
        let secrets = HandshakeSecrets { store: config_store(&self.opened), directory: directory.clone() };
        self.follow_tls(door.tls.as_ref());
        let parts = Parts {
            directory: directory.clone(),
            accept: self.accept.clone(),
            prefilter: prefilter as Arc<dyn Prefilter>,
            fetch,
            secrets: Arc::new(secrets),
            secret_uses: self.count_secret_uses(),
            rejections: self.remember_rejections(),
            clock: Arc::new(self.clock.clone()),
            random: Arc::new(entropy::random_u128),
            trace_parent: Arc::new(telemetry::current_trace_parent),
        };
        let edge = Edge::new(self.edge_settings(), parts);
        self.tasks.spawn(portero_ingress::serve(door.listener, door.tls, edge, self.close_edge.clone()));
    }

    fn edge_settings(&self) -> EdgeConfig {
        let section = &self.config.edge;
        EdgeConfig {
            connections_max: usize::try_from(section.connections_max).unwrap_or(usize::MAX),
            connections_per_address_max: usize::try_from(section.connections_per_address_max)
                .unwrap_or(usize::MAX),
            trusted_proxies: section.trusted_proxies.clone(),
            limits: self.config.limits.clone(),
            header_timeout: section.header_timeout,
            body_timeout: section.body_timeout,
            body_bytes_max: section.body_max.0,
            body_bytes_in_flight_max: section.inflight_max.0,
            deadline: section.commit_timeout,
            receipt_retention: section.dedup_retention,
            close_timeout: self.config.shutdown.drain_timeout,
            ..EdgeConfig::default()
        }
    }

    /// Starts the task that writes down what secrets verify.
    fn count_secret_uses(&self) -> SecretUses {
        let uses = SecretUses::new();
        self.tasks.spawn(uses.clone().run(secret_use_store(&self.opened), self.close_rest.clone()));
        uses
    }

    /// Starts the tasks that write refused requests down and forget them; the queue to the former.
    fn remember_rejections(&self) -> RejectionQueue {
        let store = rejection_store(&self.opened);
        let (queue, writer) = RejectionQueue::new(Arc::clone(&store), seal_capture());
        self.tasks.spawn(writer.run(self.close_rest.clone()));
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let retention = self.config.rejections.retention;
        self.tasks.spawn(sweep_rejections(store, clock, retention, self.close_rest.clone()));
        queue
    }
}

fn seal_capture() -> SealCapture {
    Arc::new(|source: &Source, request_id: RequestId, bytes: &[u8]| {
        let keys = &source.verification.as_ref().ok()?.keys;
        let aad = rejection_aad(&source.tenant, &source.id, request_id);
        Some(Sealed(keys.seal(&aad, bytes, entropy::random())))
    })
}

/// What fetches certificates and keys of providers.
pub(super) fn fetcher(section: &Outbound) -> anyhow::Result<Arc<dyn Fetch>> {
    let settings = HttpConfig {
        proxy: section.proxy.clone(),
        ca_file: section.ca_file.clone(),
        timeout: section.timeout,
    };
    let upstream: Arc<dyn Fetch> = match HttpFetcher::new(&settings) {
        Ok(fetcher) => Arc::new(fetcher),
        // Most providers need nothing fetched; they go on.
        Err(error @ InvalidConfig::Tls) => {
            tracing::warn!(%error, "nothing can be fetched: providers that name a certificate are answered 503");
            Arc::new(Offline)
        }
        Err(error) => return Err(error).context("the settings of [outbound] cannot be used"),
    };
    Ok(Arc::new(CachedFetcher::new(upstream, CacheConfig::default())))
}

fn secret_use_store(opened: &Opened) -> Arc<dyn SecretUseStore> {
    match opened {
        Opened::Sqlite(store) => Arc::new(store.clone()),
        Opened::Postgres(store) => Arc::new(store.clone()),
    }
}

fn rejection_store(opened: &Opened) -> Arc<dyn RejectionStore> {
    match opened {
        Opened::Sqlite(store) => Arc::new(store.clone()),
        Opened::Postgres(store) => Arc::new(store.clone()),
    }
}
