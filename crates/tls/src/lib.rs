//! TLS on the gateway's listeners: certificate, key, client authorities and revocation lists from files, read again while it
//! runs.
//!
//! - [`ServerTls`] holds what is in use and does handshakes with it. Clones share it.
//! - [`ServerTls::follow`] reads the files again every few seconds and when it is asked to. New content takes the place of
//!   the old as a whole; content that cannot be used changes nothing, is warned of, and shows in the metrics. Connections
//!   that are open keep the certificate that they began with.
//! - [`Trust`] goes with a connection: it tells when the client is no longer trusted, because its certificate has ended, its
//!   authority was replaced or its certificate revoked, and so when to end the connection.
//! - [`Refused`] says why a connection got no further; [`turn_away`] tells a peer that speaks no TLS.
//!
//! TLS 1.2 and 1.3 by rustls. With client authorities every client must show a certificate of theirs; with revocation lists,
//! one that a list speaks for and does not name.
//!
//! This crate must never put a key, or any part of one, into an error, a log line or `Debug`.

mod accept;
mod clients;
mod file;
mod follow;
mod material;
mod metrics;
#[cfg(test)]
mod tests;
mod trouble;
mod trust;

pub use accept::{Refused, Secured, turn_away};
pub use clients::Distrust;
pub use file::{File, LoadError};
pub use follow::{LOOK_EVERY, Looks, ServerTls};
pub use material::TlsFiles;
pub use metrics::describe;
/// The encrypted stream of a connection.
pub use tokio_rustls::server::TlsStream;
pub use trust::{LEAVE_WITHIN, Trust};

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
