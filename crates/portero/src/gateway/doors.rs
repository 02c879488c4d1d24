//! The ports of this gateway and their TLS. They are had before anything in the database is taken: a start that fails here, such
//! as that of a second process on one machine, must not put the gateway that serves out of service.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use portero_tls::{Purpose, ServerTls, TlsFiles};
use tokio::net::TcpListener;

use crate::clock::SystemClock;
use crate::config::{Config, Role};

/// A port that listens, and whose callers are served later.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    /// `None` where it speaks plainly.
    pub(super) tls: Option<ServerTls>,
}

/// Those that the roles of this process need.
pub(super) struct Doors {
    pub(super) edge: Option<Door>,
    pub(super) grpc: Option<Door>,
    pub(super) management: Door,
}

impl Doors {
    pub(super) async fn open(config: &Config, clock: &SystemClock) -> anyhow::Result<Self> {
        let tls = |purpose: Purpose, files: Option<&TlsFiles>| {
            files
                .map(|files| ServerTls::load(purpose, files.clone(), Arc::new(clock.clone())))
                .transpose()
                .with_context(|| format!("[{}.tls] cannot be used", purpose.name()))
        };
        let (mut edge, mut grpc) = (None, None);
        if config.has(Role::Edge) {
            let tls = tls(Purpose::Edge, config.edge.tls.as_ref())?;
            edge = Some(Door::open(config.edge.listen, tls).await?);
        }
        if config.has(Role::Stream) || config.has(Role::Admin) {
            let tls = tls(Purpose::Grpc, config.grpc.tls.as_ref())?;
            grpc = Some(Door::open(config.grpc.listen, tls).await?);
        }
        let management = Door::open(config.management.listen, None).await?;
        Ok(Self { edge, grpc, management })
    }
}

impl Door {
    async fn open(address: SocketAddr, tls: Option<ServerTls>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("cannot listen on {address}: is another program there? Choose another port")
        })?;
        Ok(Self { address: listener.local_addr()?, listener, tls })
    }
}
