//! `[shutdown]`: what happens after SIGTERM.

use std::time::Duration;

use super::Reader;

/// `[shutdown]`.
#[derive(Clone, Debug)]
pub(crate) struct Shutdown {
    /// Keep serving so long after readiness is off, until balancers have noticed.
    pub(crate) drain_delay: Duration,
    /// Then give requests and streams so long to finish.
    pub(crate) drain_timeout: Duration,
}

impl Shutdown {
    pub(super) fn read(section: &mut Reader) -> Self {
        Self {
            drain_delay: section.or("drain_delay", Duration::from_secs(5)),
            drain_timeout: section.or("drain_timeout", Duration::from_secs(30)),
        }
    }
}
