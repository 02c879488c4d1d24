//! `[grpc]`: subscribers and the admin API.

use std::net::{Ipv4Addr, SocketAddr};

use portero_tls::TlsFiles;

use super::{Reader, tls};

/// `[grpc]`.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    /// Where gRPC is served.
    pub(crate) listen: SocketAddr,
    /// Open connections; beyond it, new ones are closed.
    pub(crate) connections_max: u32,
    /// TLS on this port; without it, HTTP/2 in plain.
    pub(crate) tls: Option<TlsFiles>,
}

impl Grpc {
    pub(super) fn read(section: &mut Reader) -> Self {
        Self {
            listen: section.or("listen", SocketAddr::from((Ipv4Addr::UNSPECIFIED, 50_051))),
            connections_max: section.within("connections_max", 10_000, 1, 1_000_000),
            tls: tls::read(&mut section.section("tls")),
        }
    }
}
