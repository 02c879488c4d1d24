//! Leave to send: limits, and room for one more request.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use http::{HeaderMap, request};
use portero_directory::Source;

use super::{Edge, Shared};
use crate::forwarded;
use crate::limits::client::Client;
use crate::limits::{Admission, Limit, Rates, Who};
use crate::refusal::Refusal;

impl Edge {
    /// Whether the sender may send, and to this source.
    pub(super) fn within_limits(
        &self,
        source: &Source,
        head: &request::Parts,
        peer: Option<IpAddr>,
    ) -> Result<Admission, Refusal> {
        let Shared { config, parts, limiter, .. } = &*self.0;
        let address = peer.map(|peer| config.trusted_proxies.client_address(peer, &head.headers));
        let tenant = parts.directory.snapshot().tenant_by_no(source.tenant_no).map(|tenant| tenant.limits);
        let gateways = parts.directory.edges();
        let who = Who {
            tenant: source.tenant_no,
            source: source.no,
            client: address.map_or(Client::unknown(), Client::of),
            tenant_rates: Rates::of(&tenant.unwrap_or_default(), &config.limits.tenant, gateways),
            source_rates: Rates::of(&source.limits, &config.limits.source, gateways),
        };
        limiter.admit(who).map_err(|limited| {
            if limited.limit == Limit::UnverifiedAddress {
                self.warn_of_proxies(peer, &head.headers);
            }
            Refusal::Limited(limited)
        })
    }

    /// Says once that a refused address seems to be a proxy's, behind which all clients count as one.
    fn warn_of_proxies(&self, peer: Option<IpAddr>, headers: &HeaderMap) {
        let Some(peer) = peer.filter(|peer| !self.0.config.trusted_proxies.contain(*peer)) else { return };
        if forwarded::is_named(headers) && !self.0.warned_of_proxies.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %peer,
                "an address is refused for what does not verify, and its requests name other clients: if it is a proxy of \
                 yours, name it in edge.trusted_proxies, or all behind it count as one"
            );
        }
    }

    /// Leave to hold a request.
    pub(super) fn slot(&self, admission: &Admission) -> Result<impl Send + 'static + use<>, Refusal> {
        self.0.requests.take(admission.holder(), 1).map_err(Refusal::Overloaded)
    }
}
