//! `[edge]`: the HTTP side.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use portero_ingress::forwarded::{ForwardedHeader, Network, TrustedProxies};
use portero_tls::TlsFiles;

use super::value::Bytes;
use super::{Reader, tls};

/// `[edge]`.
#[derive(Clone, Debug)]
pub(crate) struct EdgeSection {
    /// Where webhooks are accepted.
    pub(crate) listen: SocketAddr,
    /// Largest body.
    pub(crate) body_max: Bytes,
    /// Bytes of bodies being read or waiting for their commit; beyond it, 503.
    pub(crate) inflight_max: Bytes,
    /// Open connections; beyond it, new ones wait in the listen queue.
    pub(crate) connections_max: u32,
    /// Open connections of one address that is no trusted proxy; beyond it, new ones are turned away.
    pub(crate) connections_per_address_max: u32,
    /// Whose word about clients' addresses counts.
    pub(crate) trusted_proxies: TrustedProxies,
    /// From the connection's first byte to the end of the headers.
    pub(crate) header_timeout: Duration,
    /// From the end of the headers to the end of the body.
    pub(crate) body_timeout: Duration,
    /// From the end of the body to the answer; beyond it, 503.
    pub(crate) commit_timeout: Duration,
    /// How long a receipt is kept, and so a repeat recognised.
    pub(crate) dedup_retention: Duration,
    /// TLS on this port; without it, plain HTTP.
    pub(crate) tls: Option<TlsFiles>,
}

impl EdgeSection {
    pub(super) fn read(section: &mut Reader) -> Self {
        let day = Duration::from_secs(86_400);
        Self {
            listen: section.or("listen", SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8080))),
            body_max: section.within(
                "body_max",
                Bytes(portero_types::limits::BODY_BYTES_MAX),
                Bytes(1024),
                Bytes(portero_types::limits::BODY_BYTES_MAX),
            ),
            inflight_max: section.within("inflight_max", Bytes(256 << 20), Bytes(1 << 20), Bytes(64 << 30)),
            connections_max: section.within("connections_max", 10_000, 1, 1_000_000),
            connections_per_address_max: section.within("connections_per_address_max", 1_000, 1, 1_000_000),
            trusted_proxies: trusted_proxies(section),
            header_timeout: section.or("header_timeout", Duration::from_secs(10)),
            body_timeout: section.or("body_timeout", Duration::from_secs(30)),
            commit_timeout: section.or("commit_timeout", Duration::from_secs(10)),
            dedup_retention: section.within("dedup_retention", day * 35, day, day * 3650),
            tls: tls::read(&mut section.section("tls")),
        }
    }
}

fn trusted_proxies(section: &mut Reader) -> TrustedProxies {
    let header = match section.text("forwarded_header", "x-forwarded-for").as_str() {
        "x-forwarded-for" => ForwardedHeader::XForwardedFor,
        "forwarded" => ForwardedHeader::Forwarded,
        _ => {
            section.problem("forwarded_header", "must be \"x-forwarded-for\" or \"forwarded\"");
            ForwardedHeader::XForwardedFor
        }
    };
    let mut networks: Vec<Network> = Vec::new();
    for text in section.list("trusted_proxies", &[]) {
        match text.parse() {
            Ok(network) => networks.push(network),
            Err(error) => section.problem("trusted_proxies", format!("holds {text:?}: {error}")),
        }
    }
    TrustedProxies::new(networks, header)
}
