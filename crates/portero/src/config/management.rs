//! `[management]`: probes and metrics.

use std::net::{Ipv4Addr, SocketAddr};

use super::Reader;

/// `[management]`.
#[derive(Clone, Debug)]
pub(crate) struct Management {
    /// Where `/livez`, `/readyz` and `/metrics` are served, in plain HTTP.
    pub(crate) listen: SocketAddr,
}

impl Management {
    pub(super) fn read(section: &mut Reader) -> Self {
        Self { listen: section.or("listen", SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9090))) }
    }
}
