//! Handshakes, and what becomes of connections that get none.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::clients::Distrust;
use crate::follow::ServerTls;
use crate::metrics;
use crate::trust::Trust;

/// The first byte of every TLS connection: a record of the handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;
/// How long a peer may take to read why it is turned away.
const FAREWELL: Duration = Duration::from_secs(1);
/// Most bytes that are read from it meanwhile.
const FAREWELL_BYTES_MAX: u64 = 256 * 1024;

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Secured {
    /// What is spoken over it.
    pub stream: TlsStream<TcpStream>,
    /// Whether its client is still trusted.
    pub trust: Trust,
}

/// Why a connection got no further.
#[derive(Debug)]
pub enum Refused {
    /// The peer speaks no TLS; nothing was read yet. [`turn_away`] tells it.
    Plain(TcpStream),
    /// The handshake took too long.
    TimedOut,
    /// The peer left before it was done, or never said a word.
    Gone,
    /// A client certificate is wanted, and there was none.
    NoClientCertificate,
    /// The client certificate has expired, or is of another authority.
    BadClientCertificate,
    /// The client certificate was revoked.
    RevokedClientCertificate,
    /// No revocation list speaks for the client certificate, or the one that does has ended.
    UnknownClientStatus,
    /// The peer does not accept our certificate, or ended the handshake for another reason of its own.
    RefusedByPeer,
    /// No version of TLS, cipher or protocol in common.
    NothingInCommon,
    /// Anything else, such as garbage.
    Failed,
}

impl Refused {
    /// A stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Plain(_) => "plain",
            Self::TimedOut => "timed_out",
            Self::Gone => "gone",
            Self::NoClientCertificate => "no_client_certificate",
            Self::BadClientCertificate => "bad_client_certificate",
            Self::RevokedClientCertificate => "revoked_client_certificate",
            Self::UnknownClientStatus => "unknown_client_status",
            Self::RefusedByPeer => "refused_by_peer",
            Self::NothingInCommon => "nothing_in_common",
            Self::Failed => "failed",
        }
    }
}

impl ServerTls {
    /// Does the handshake with what is in use now, until `deadline`. Cancel safe in that dropping it closes the connection.
    ///
    /// # Errors
    /// [`Refused`] says why there is none; it is counted.
    pub async fn accept(&self, stream: TcpStream, deadline: Instant) -> Result<Secured, Refused> {
        let outcome = self.try_accept(stream, deadline).await;
        let code = outcome.as_ref().map_or_else(Refused::code, |_| "done");
        metrics::handshake(self.0.purpose, code);
        if outcome.is_err() {
            tracing::debug!(listener = self.0.purpose.name(), outcome = code, "a connection got no TLS");
        }
        outcome
    }

    async fn try_accept(&self, stream: TcpStream, deadline: Instant) -> Result<Secured, Refused> {
        let mut first = [0];
        match timeout_at(deadline, stream.peek(&mut first)).await {
            Err(_) => return Err(Refused::TimedOut),
            Ok(Err(_) | Ok(0)) => return Err(Refused::Gone),
            Ok(Ok(_)) if first != [HANDSHAKE] => return Err(Refused::Plain(stream)),
            Ok(Ok(_)) => {}
        }
        let material = self.material();
        let handshake = TlsAcceptor::from(material.config.clone()).accept(stream).into_fallible();
        match timeout_at(deadline, handshake).await {
            Err(_) => Err(Refused::TimedOut),
            Ok(Ok(stream)) => {
                let chain = stream.get_ref().1.peer_certificates();
                let trust = Trust::new(&self.0, material.clients.as_ref(), chain);
                Ok(Secured { stream, trust })
            }
            Ok(Err((error, mut stream))) => {
                // Its alert is on the way. Closing with something unread would have the peer lose it.
                let _ = stream.shutdown().await;
                listen(stream).await;
                Err(cause(&error))
            }
        }
    }
}

/// Tells a peer that speaks no TLS why it is turned away, and closes. Takes a second or two at most.
pub async fn turn_away(mut stream: TcpStream, words: &[u8]) {
    let telling = async {
        // A peer that does not get the words still gets the close.
        let _ = stream.write_all(words).await;
        let _ = stream.shutdown().await;
    };
    if timeout(FAREWELL, telling).await.is_ok() {
        listen(stream).await;
    }
}

/// Reads what still comes, until the peer closes, for a while.
async fn listen(stream: impl AsyncRead + Unpin) {
    let mut rest = stream.take(FAREWELL_BYTES_MAX);
    let _ = timeout(FAREWELL, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

fn cause(error: &io::Error) -> Refused {
    use rustls::Error as Tls;
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>()) else {
        return Refused::Gone;
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum may grow")]
    match tls {
        Tls::NoCertificatesPresented => Refused::NoClientCertificate,
        Tls::InvalidCertificate(_) | Tls::InvalidCertRevocationList(_) => match Distrust::of(tls) {
            Distrust::Revoked => Refused::RevokedClientCertificate,
            Distrust::StatusUnknown => Refused::UnknownClientStatus,
            Distrust::Authority | Distrust::Expired => Refused::BadClientCertificate,
        },
        Tls::AlertReceived(_) => Refused::RefusedByPeer,
        Tls::NoApplicationProtocol | Tls::PeerIncompatible(_) => Refused::NothingInCommon,
        _ => Refused::Failed,
    }
}
