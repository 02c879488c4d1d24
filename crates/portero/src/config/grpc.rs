//! `[grpc]`: subscribers and the admin API.

use std::net::{Ipv4Addr, SocketAddr};

use super::Reader;

/// `[grpc]`.
#[derive(Clone, Debug)]
pub(crate) struct Grpc {
    /// Where gRPC is served.
    pub(crate) listen: SocketAddr,
}

impl Grpc {
    pub(super) fn read(section: &mut Reader) -> Self {
        Self { listen: section.or("listen", SocketAddr::from((Ipv4Addr::UNSPECIFIED, 50_051))) }
    }
}
