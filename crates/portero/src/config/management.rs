//! `[management]`: probes and metrics.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Reader;

/// `[management]`.
#[derive(Clone, Debug)]
pub(crate) struct Management {
    /// Where `/livez`, `/readyz` and `/metrics` are served, in plain HTTP.
    pub(crate) listen: SocketAddr,
    /// How far this machine's clock may be off the database's before `/readyz` sends traffic elsewhere.
    pub(crate) clock_skew_max: Duration,
}

impl Management {
    pub(super) fn read(section: &mut Reader) -> Self {
        Self {
            listen: section.or("listen", SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9090))),
            clock_skew_max: section.or("clock_skew_max", Duration::from_secs(30)),
        }
    }
}
