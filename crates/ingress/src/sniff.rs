//! Which version of HTTP a connection speaks, told by its first bytes.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The HTTP/2 connection preface (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// HTTP/1.1 or 1.0.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

/// Reads just enough to tell the version, and gives back what it read. `None` when the peer closes or fails before.
///
/// It waits for as long as the peer sends a prefix of the preface, so the caller sets the time-out.
pub(crate) async fn version(io: &mut (impl AsyncRead + Unpin)) -> Option<(Bytes, Version)> {
    let mut read = BytesMut::with_capacity(8 * 1024);
    loop {
        if io.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
        let seen = read.len().min(PREFACE.len());
        if read[..seen] != PREFACE[..seen] {
            return Some((read.freeze(), Version::Http1));
        }
        if seen == PREFACE.len() {
            return Some((read.freeze(), Version::Http2));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn sniff(pieces: &[&[u8]]) -> Option<(Bytes, Version)> {
        let (mut client, mut server) = tokio::io::duplex(64);
        let sending = async {
            for piece in pieces {
                client.write_all(piece).await.expect("open");
                tokio::task::yield_now().await;
            }
            drop(client);
        };
        tokio::join!(sending, version(&mut server)).1
    }

    #[tokio::test]
    async fn a_preface_in_pieces_is_http2() {
        let (read, version) =
            sniff(&[b"PRI * HT", b"TP/2.0\r\n\r\nSM\r\n", b"\r\n"]).await.expect("a version");
        assert_eq!((&read[..], version), (PREFACE, Version::Http2));
    }

    #[tokio::test]
    async fn anything_else_is_http1_at_the_first_byte_that_differs() {
        let (read, version) = sniff(&[b"P", b"O"]).await.expect("a version");
        assert_eq!((&read[..], version), (&b"PO"[..], Version::Http1));
    }

    #[tokio::test]
    async fn a_peer_that_leaves_early_has_no_version() {
        assert!(sniff(&[b"PRI *"]).await.is_none());
        assert!(sniff(&[]).await.is_none());
    }
}
