//! TLS on the gateway's listeners: certificate, key and client authorities from files, read again while it runs.
//!
//! - [`ServerTls`] holds what is in use and does handshakes with it. Clones share it.
//! - [`ServerTls::follow`] reads the files again every few seconds and when it is asked to. New content takes the place of
//!   the old as a whole; content that cannot be used changes nothing, is warned of, and shows in the metrics. Connections
//!   that are open keep what they began with.
//! - [`Refused`] says why a connection got no further; [`turn_away`] tells a peer that speaks no TLS.
//!
//! TLS 1.2 and 1.3 by rustls. With client authorities every client must show a certificate of theirs. There is no revocation
//! list: client certificates should be short-lived.
//!
//! This crate must never put a key, or any part of one, into an error, a log line or `Debug`.

mod accept;
mod file;
mod follow;
mod material;
mod metrics;
#[cfg(test)]
mod tests;

pub use accept::{Refused, turn_away};
pub use file::{File, LoadError};
pub use follow::{LOOK_EVERY, Looks, ServerTls};
pub use material::TlsFiles;
pub use metrics::describe;
/// A connection whose handshake is done.
pub use tokio_rustls::server::TlsStream;

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// HTTP/2 and HTTP/1.1, for webhooks.
    Edge,
    /// HTTP/2, for gRPC.
    Grpc,
}

impl Purpose {
    /// The protocols that may be agreed on (RFC 7301), best first.
    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Edge => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Self::Grpc => vec![b"h2".to_vec()],
        }
    }

    /// Its name in metrics, logs and settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Grpc => "grpc",
        }
    }
}
