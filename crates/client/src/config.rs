//! How a client reaches its gateway.

use std::time::Duration;

use tonic::transport::Endpoint;

use crate::error::Error;
use crate::tls::{Connector, Tls};
use crate::token::Token;

/// Longest instance id, bytes (a bound of the protocol).
const INSTANCE_ID_BYTES_MAX: usize = 128;

/// Everything that a [`Client`](crate::Client) needs to know.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `http://host:port` or `https://host:port`.
    pub endpoint: String,
    /// Where access tokens come from. Default: none.
    pub token: Token,
    /// Stable name of this consumer's place (host, pod), 1 to 128 bytes; a newer stream of the same instance to the same
    /// subscription ends older ones. Default: a random name, so that processes never end each other's streams.
    pub instance_id: Option<String>,
    /// TLS for `https` endpoints. Default: the platform's certificate authorities.
    pub tls: Tls,
    /// Settings of the connection.
    pub transport: Transport,
}

impl ClientConfig {
    /// Defaults for an endpoint such as `http://127.0.0.1:50051`.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            token: Token::none(),
            instance_id: None,
            tls: Tls::default(),
            transport: Transport::default(),
        }
    }

    /// Checks every field, and reads files. With `https` the connector speaks TLS, and the endpoint is told that it need not.
    pub(crate) fn check(&self) -> Result<(Endpoint, Option<Connector>), Error> {
        let endpoint = self.endpoint()?;
        let origin = endpoint.uri().clone();
        if origin.scheme_str() != Some("https") {
            return Ok((endpoint, None));
        }
        let connector = Connector::new(&self.tls, &origin, self.transport.connect_timeout)?;
        let authority = origin.authority().map_or("", |authority| authority.as_str());
        let plain = Endpoint::from_shared(format!("http://{authority}"))
            .map_err(|_| Error::Config { field: "endpoint", rule: "https://host:port" })?;
        Ok((self.transport.apply(plain)?.origin(origin), Some(connector)))
    }

    /// The endpoint as it is named; every field but those of TLS is checked.
    fn endpoint(&self) -> Result<Endpoint, Error> {
        if let Some(id) = &self.instance_id
            && (id.is_empty() || id.len() > INSTANCE_ID_BYTES_MAX)
        {
            return Err(Error::Config { field: "instance_id", rule: "1 to 128 bytes" });
        }
        let bad_endpoint =
            || Error::Config { field: "endpoint", rule: "http://host:port or https://host:port" };
        let endpoint = Endpoint::from_shared(self.endpoint.clone()).map_err(|_| bad_endpoint())?;
        let is_known = matches!(endpoint.uri().scheme_str(), Some("http" | "https"));
        // A password in the URL would go nowhere but into logs.
        let is_bare = endpoint.uri().authority().is_some_and(|host| !host.as_str().contains('@'));
        if !is_known || !is_bare {
            return Err(bad_endpoint());
        }
        if endpoint.uri().scheme_str() == Some("http") && self.tls != Tls::default() {
            return Err(Error::Config { field: "endpoint", rule: "https://host:port when TLS has settings" });
        }
        self.transport.apply(endpoint)
    }
}

/// Settings of the HTTP/2 connection, all explicit because the defaults of the layers below neither find dead peers nor
/// fit streams of many small frames.
#[derive(Clone, Debug)]
pub struct Transport {
    /// How long a connection attempt may take. Default 10 s.
    pub connect_timeout: Duration,
    /// Interval of HTTP/2 pings, which find a dead peer on this hop. Default 10 s.
    pub keepalive_interval: Duration,
    /// How long a ping may stay unanswered. Default 5 s.
    pub keepalive_timeout: Duration,
    /// Flow-control window of the connection, bytes, 64 KiB to 1 GiB. Default 8 MiB.
    pub connection_window_bytes: u32,
    /// Flow-control window of one stream, bytes, 64 KiB to 1 GiB. Default 1 MiB.
    pub stream_window_bytes: u32,
    /// Largest message decoded, bytes, 64 KiB to 64 MiB. The gateway is told and never sends a larger one. Default 4 MiB.
    pub decode_bytes_max: usize,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(10),
            keepalive_timeout: Duration::from_secs(5),
            connection_window_bytes: 8 << 20,
            stream_window_bytes: 1 << 20,
            decode_bytes_max: 4 << 20,
        }
    }
}

impl Transport {
    fn apply(&self, endpoint: Endpoint) -> Result<Endpoint, Error> {
        const WINDOW: std::ops::RangeInclusive<u32> = (64 << 10)..=(1 << 30);
        let rule = "64 KiB to 1 GiB";
        if !WINDOW.contains(&self.connection_window_bytes) {
            return Err(Error::Config { field: "transport.connection_window_bytes", rule });
        }
        if !WINDOW.contains(&self.stream_window_bytes) {
            return Err(Error::Config { field: "transport.stream_window_bytes", rule });
        }
        if !((64 << 10)..=(64 << 20)).contains(&self.decode_bytes_max) {
            return Err(Error::Config { field: "transport.decode_bytes_max", rule: "64 KiB to 64 MiB" });
        }
        Ok(endpoint
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(self.keepalive_interval))
            .http2_keep_alive_interval(self.keepalive_interval)
            .keep_alive_timeout(self.keepalive_timeout)
            .keep_alive_while_idle(true)
            .initial_connection_window_size(self.connection_window_bytes)
            .initial_stream_window_size(self.stream_window_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_refused(change: impl FnOnce(&mut ClientConfig)) -> &'static str {
        let mut config = ClientConfig::new("http://127.0.0.1:50051");
        change(&mut config);
        match config.check() {
            Err(Error::Config { field, .. }) => field,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn each_bad_field_is_named() {
        assert_eq!(field_refused(|c| c.endpoint = "127.0.0.1:50051".to_owned()), "endpoint");
        assert_eq!(field_refused(|c| c.endpoint = "ftp://gateway:1".to_owned()), "endpoint");
        assert_eq!(field_refused(|c| c.endpoint = String::new()), "endpoint");
        assert_eq!(field_refused(|c| c.endpoint = "http://me:hunter2@gateway:1".to_owned()), "endpoint");
        assert_eq!(field_refused(|c| c.instance_id = Some(String::new())), "instance_id");
        assert_eq!(field_refused(|c| c.instance_id = Some("x".repeat(129))), "instance_id");
        assert_eq!(field_refused(|c| c.transport.stream_window_bytes = 1), "transport.stream_window_bytes");
        assert_eq!(
            field_refused(|c| c.transport.connection_window_bytes = u32::MAX),
            "transport.connection_window_bytes"
        );
        assert_eq!(field_refused(|c| c.transport.decode_bytes_max = 1), "transport.decode_bytes_max");
        assert_eq!(field_refused(|c| c.tls.ca_file = Some("ca.pem".into())), "endpoint");
    }

    #[test]
    fn a_tls_file_that_cannot_be_used_is_named() {
        let mut config = ClientConfig::new("https://127.0.0.1:50051");
        config.tls.ca_file = Some("/nonexistent/ca.pem".into());
        let error = config.check().expect_err("refused").to_string();
        assert_eq!(error, "tls.ca_file: /nonexistent/ca.pem does not exist");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "hush").expect("written");
        config.tls.ca_file = Some(file.path().into());
        let error = config.check().expect_err("refused").to_string();
        assert!(error.ends_with("holds no certificates in PEM") && !error.contains("hush"), "{error}");
    }

    #[test]
    fn the_defaults_pass() {
        assert!(ClientConfig::new("http://127.0.0.1:50051").check().is_ok());
    }
}
