//! Puts the services together.

use std::sync::Arc;
use std::time::Duration;

use portero_auth::Verifier;
use portero_directory::Directory;
use portero_dispatcher::Dispatcher;
use portero_keyring::Keyring;
use portero_proto::v1::admin_service_server::AdminServiceServer;
use portero_proto::v1::subscriber_service_server::SubscriberServiceServer;
use portero_store::DynStore;
use portero_types::Clock;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::Entropy;
use crate::admin::Admin;
use crate::authenticate::Gate;
use crate::entrance::Entrance;
use crate::listener::Listener;
use crate::open_door::{Few, MESSAGE_BYTES_MAX};
use crate::subscriber::Subscriber;

/// HTTP/2 settings. Each is explicit: the libraries' defaults are unlimited, or too small for many small frames. There is no
/// time-out of calls and no age of connections, because streams live on: they are ended by Drain, per stream and in order.
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONCURRENT_STREAMS_MAX: u32 = 64;
/// Room for a token that is too long to be told so.
const HEADERS_BYTES_MAX: u32 = 64 << 10;
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const DECODE_BYTES_MAX: usize = 1 << 20;
/// An uploaded request of the largest size fits.
const ADMIN_DECODE_BYTES_MAX: usize = (1 << 20) + (1 << 18);
const ENCODE_BYTES_MAX: usize = (1 << 20) + (1 << 18);

/// Which services are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Services {
    /// `SubscriberService`.
    pub subscriber: bool,
    /// `AdminService`.
    pub admin: bool,
}

/// What the services stand on.
pub struct ApiConfig {
    /// Storage.
    pub store: DynStore,
    /// Configuration in memory.
    pub directory: Directory,
    /// Deliveries.
    pub dispatcher: Dispatcher,
    /// Seals secrets; `None` when the admin service is not served.
    pub keyring: Option<Arc<Keyring>>,
    /// Checks tokens.
    pub verifier: Arc<Verifier>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Entropy,
    /// Which services are served.
    pub services: Services,
}

/// The gRPC server.
pub struct Api {
    config: ApiConfig,
}

impl Api {
    /// Over these parts.
    #[must_use]
    pub const fn new(config: ApiConfig) -> Self {
        Self { config }
    }

    /// Serves until `shutdown`, then lets calls finish. Streams end when the dispatcher ends them. A connection whose client is
    /// no longer trusted ends within [`portero_tls::LEAVE_WITHIN`], its streams in order.
    pub async fn serve(self, listener: impl Into<Listener>, shutdown: CancellationToken) {
        let server = Server::builder()
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .max_concurrent_streams(CONCURRENT_STREAMS_MAX)
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT));
        let routes = self.routes().await.prepare();
        listener.into().serve(server, routes, (KEEPALIVE_EVERY, KEEPALIVE_TIMEOUT), shutdown).await;
    }

    async fn routes(self) -> Routes {
        let config = self.config;
        let gate = Gate::new(config.verifier, config.directory.clone(), Arc::clone(&config.clock));
        let (health, health_service) = tonic_health::server::health_reporter();
        let health_service = health_service.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(portero_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
        let reflection_v1 = reflection
            .build_v1()
            .expect("the compiled descriptors are well formed")
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let reflection_v1alpha = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(portero_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1alpha()
            .expect("the compiled descriptors are well formed")
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut routes = Routes::new(health_service)
            .add_service(Few::new(reflection_v1))
            .add_service(Few::new(reflection_v1alpha));
        if config.services.subscriber {
            let service = Subscriber::new(
                config.dispatcher,
                config.directory.clone(),
                gate.clone(),
                Arc::clone(&config.clock),
            );
            let server = SubscriberServiceServer::new(service)
                .max_decoding_message_size(DECODE_BYTES_MAX)
                .max_encoding_message_size(ENCODE_BYTES_MAX);
            routes = routes.add_service(Entrance::new(server, gate.clone()));
            health.set_serving::<SubscriberServiceServer<Subscriber>>().await;
        }
        if let Some(keyring) = config.keyring.filter(|_| config.services.admin) {
            let service = Admin::new(
                config.store,
                config.directory,
                keyring,
                gate.clone(),
                config.clock,
                config.entropy,
            );
            let server = AdminServiceServer::new(service)
                .max_decoding_message_size(ADMIN_DECODE_BYTES_MAX)
                .max_encoding_message_size(ENCODE_BYTES_MAX);
            routes = routes.add_service(Entrance::new(server, gate).in_turns());
            health.set_serving::<AdminServiceServer<Admin>>().await;
        }
        routes
    }
}
