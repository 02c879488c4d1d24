//! Bounds and time-outs of the edge.

use std::time::Duration;

use portero_types::limits;

use crate::forwarded::TrustedProxies;
use crate::limits::LimitsConfig;

/// How much the edge takes, and how long it waits. Every bound is per process.
#[derive(Clone, Debug)]
pub struct EdgeConfig {
    /// Most open connections; one more is answered 503 and closed. Default 4,096.
    pub connections_max: usize,
    /// Most open connections of one client address; one more is answered 503 and closed. Trusted proxies may have any number.
    /// Default 1,000.
    pub connections_per_address_max: usize,
    /// Who may say for whom it forwards a request. Default nobody.
    pub trusted_proxies: TrustedProxies,
    /// Who may send how much.
    pub limits: LimitsConfig,
    /// Most requests of one HTTP/2 connection at once. Default 128.
    pub http2_streams_max: u32,
    /// Largest request head, bytes; a larger one is answered 431. At least 8 KiB. Default 64 KiB.
    pub head_bytes_max: u32,
    /// How long a new connection may take to send its first request head. Default 10 s.
    pub header_timeout: Duration,
    /// How long a connection may stay without a request, and how long a later request head may take. Longer than the
    /// idle time-out of a load balancer in front, or it meets connections that are just closing. Default 75 s.
    pub idle_timeout: Duration,
    /// How long a body may take, from the head to the last byte. Default 10 s.
    pub body_timeout: Duration,
    /// Largest body, bytes. Default [`limits::BODY_BYTES_MAX`]; it must not be above it.
    pub body_bytes_max: usize,
    /// Most requests past their head at once; one more is answered 503. Default 4,096.
    pub requests_max: usize,
    /// Most bytes of bodies held at once; a request above it is answered 503. Default 256 MiB.
    pub body_bytes_in_flight_max: usize,
    /// How long verifying and storing may take before the answer is 503. The work goes on. Default 10 s.
    pub deadline: Duration,
    /// How long a receipt is kept, and so a repeat recognised. Default 35 days.
    pub receipt_retention: Duration,
    /// The same for events whose id was derived from their bytes: two equal events later than this are two. Default 3 days.
    pub derived_id_retention: Duration,
    /// How long open connections may finish after the shutdown began. Default 20 s.
    pub close_timeout: Duration,
}

impl Default for EdgeConfig {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            connections_max: 4_096,
            connections_per_address_max: 1_000,
            trusted_proxies: TrustedProxies::default(),
            limits: LimitsConfig::default(),
            http2_streams_max: 128,
            head_bytes_max: 64 * 1024,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(10),
            body_bytes_max: limits::BODY_BYTES_MAX,
            requests_max: 4_096,
            body_bytes_in_flight_max: 256 * 1024 * 1024,
            deadline: Duration::from_secs(10),
            receipt_retention: 35 * DAY,
            derived_id_retention: 3 * DAY,
            close_timeout: Duration::from_secs(20),
        }
    }
}
