//! Reading a body within bounds of size, time and memory.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::limits::in_flight::{Full, Memory, Share};

/// How much of an unwanted body is read and dropped, so that the sender sees the answer rather than a reset.
const DISCARD_BYTES_MAX: usize = 1024 * 1024;
/// For how long.
const DISCARD_TIME_MAX: Duration = Duration::from_secs(2);

/// A body and its share of the memory for bodies, which is given back when this is dropped.
pub(crate) struct Received {
    /// The bytes.
    pub(crate) bytes: Bytes,
    /// The share.
    _share: Share,
}

impl Received {
    /// A body and its share.
    pub(crate) const fn new(bytes: Bytes, share: Share) -> Self {
        Self { bytes, _share: share }
    }
}

impl std::fmt::Debug for Received {
    /// Shows the size only.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Received").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// Announced or found to be longer than the bound.
    TooLarge,
    /// There is no memory for it.
    NoMemory(Full),
    /// It took too long.
    Timeout,
    /// It ended early or is malformed.
    Broken,
}

/// Reads a body of at most `bytes_max` bytes until `deadline`, taking a share of `memory` before it takes bytes.
///
/// A length that is announced is checked and shared out before the first byte is read. Cancel-safe: gives its share back.
pub(crate) async fn read<B>(
    body: &mut B,
    bytes_max: usize,
    deadline: Instant,
    memory: &Memory<'_>,
) -> Result<Received, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let announced = match body.size_hint().exact() {
        Some(bytes) => usize::try_from(bytes).map_err(|_| BodyError::TooLarge)?,
        None => 0,
    };
    if announced > bytes_max {
        return Err(BodyError::TooLarge);
    }
    let mut share = memory.take(announced).map_err(BodyError::NoMemory)?;
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Err(_) => return Err(BodyError::Timeout),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(BodyError::Broken),
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers carry nothing that any provider signs.
        let Ok(data) = frame.into_data() else { continue };
        let total = first.as_ref().map_or(0, Bytes::len) + rest.len() + data.len();
        if total > bytes_max {
            return Err(BodyError::TooLarge);
        }
        if total > share.count() {
            let more = memory.take(total - share.count()).map_err(BodyError::NoMemory)?;
            share.merge(more);
        }
        match &first {
            // The common body comes in one piece and is not copied.
            None if rest.is_empty() => first = Some(data),
            _ => {
                if let Some(first) = first.take() {
                    rest.reserve(announced.max(first.len() + data.len()));
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok(Received::new(first.unwrap_or_else(|| rest.freeze()), share))
}

/// Reads and drops what is left of a body, within bounds.
pub(crate) async fn discard<B>(body: B)
where
    B: Body<Data = Bytes>,
{
    let mut body = pin!(body);
    let mut left = DISCARD_BYTES_MAX;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(less) => left = less,
                None => break,
            }
        }
    };
    // Whether it ended or the time did makes no difference: the answer has been given.
    let _ = tokio::time::timeout(DISCARD_TIME_MAX, reading).await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    use super::*;
    use crate::limits::in_flight::{self, Room};

    /// Memory for so many bytes.
    fn room(bytes: usize) -> Room {
        Room::new(bytes, 100, 1)
    }

    fn chunks(parts: &[&'static str]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
        let frames: Vec<_> =
            parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))).collect();
        StreamBody::new(stream::iter(frames))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test]
    async fn pieces_are_joined_in_order() {
        let memory = room(100);
        let body = read(&mut chunks(&["a", "", "bc", "d"]), 4, soon(), &Memory::of_one(&memory))
            .await
            .expect("fits");
        assert_eq!(body.bytes, "abcd");
        assert_eq!(memory.available(), 96, "the share is held with the body");
        drop(body);
        assert_eq!(memory.available(), 100);
    }

    #[tokio::test]
    async fn an_unannounced_body_over_the_bound_is_refused_and_gives_its_share_back() {
        let memory = room(100);
        let error = read(&mut chunks(&["abc", "de"]), 4, soon(), &Memory::of_one(&memory))
            .await
            .expect_err("too large");
        assert_eq!(error, BodyError::TooLarge);
        assert_eq!(memory.available(), 100);
    }

    #[tokio::test]
    async fn an_announced_body_over_the_bound_is_refused_before_reading() {
        let memory = room(100);
        let mut body = Full::new(Bytes::from_static(b"abcde"));
        assert_eq!(
            read(&mut body, 4, soon(), &Memory::of_one(&memory)).await.expect_err("too large"),
            BodyError::TooLarge
        );
        assert!(!body.is_end_stream(), "nothing was read");
    }

    #[tokio::test]
    async fn a_body_without_memory_left_is_shed() {
        let memory = room(3);
        let mut body = Full::new(Bytes::from_static(b"abcd"));
        assert_eq!(
            read(&mut body, 10, soon(), &Memory::of_one(&memory)).await.expect_err("shed"),
            BodyError::NoMemory(in_flight::Full::Tenant)
        );
        let error =
            read(&mut chunks(&["ab", "cd"]), 10, soon(), &Memory::of_one(&memory)).await.expect_err("shed");
        assert_eq!(error, BodyError::NoMemory(in_flight::Full::Tenant));
        assert_eq!(memory.available(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_times_out() {
        let memory = room(3);
        let mut body = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert_eq!(
            read(&mut body, 10, soon(), &Memory::of_one(&memory)).await.expect_err("late"),
            BodyError::Timeout
        );
        discard(body).await;
    }
}
