//! Content codings: which one a body came in, and undoing it within the bounds of size and memory.

use std::io::{self, Read};

use bytes::BytesMut;
use flate2::bufread::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

use crate::body::{BodyError, Received};
use crate::limits::in_flight::Memory;

/// What a source takes whose provider never packs.
pub(crate) const NONE: &str = "identity";
/// What a source takes whose provider may pack.
pub(crate) const BOTH: &str = "gzip, deflate, identity";

/// How much is inflated at a time.
const CHUNK_BYTES: usize = 16 * 1024;
/// After how many of them others get their turn.
const CHUNKS_PER_TURN: usize = 8;

/// A coding that can be undone (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// RFC 1952.
    Gzip,
    /// The zlib format, RFC 1950.
    Deflate,
}

/// A coding that nobody here undoes, or more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported;

/// Why a body could not be inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InflateError {
    /// What it inflates to cannot be had.
    Body(BodyError),
    /// It is not in the format, is cut off, or something follows it.
    Malformed,
}

/// The coding of a body; `None` when it came as it is.
pub(crate) fn coding(headers: &HeaderMap) -> Result<Option<Coding>, Unsupported> {
    let mut found = None;
    for value in headers.get_all(CONTENT_ENCODING) {
        for name in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            let coding = match name.to_ascii_lowercase().as_slice() {
                b"gzip" | b"x-gzip" => Coding::Gzip,
                b"deflate" => Coding::Deflate,
                _ => return Err(Unsupported),
            };
            if found.replace(coding).is_some() {
                return Err(Unsupported);
            }
        }
    }
    Ok(found)
}

/// Undoes a coding. What comes out is bounded like a body that came as it is, and takes its share of `memory` while it grows,
/// so a small body that inflates to a huge one costs no more than the bound. Cancel-safe: gives its share back.
pub(crate) async fn inflate(
    coding: Coding,
    wire: &[u8],
    bytes_max: usize,
    memory: &Memory<'_>,
) -> Result<Received, InflateError> {
    let mut reader: Box<dyn Read + Send + '_> = match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(wire)),
        Coding::Deflate => Box::new(Zlib::new(wire)),
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut whole = BytesMut::new();
    let no_memory = |full| InflateError::Body(BodyError::NoMemory(full));
    let mut share = memory.take(0).map_err(no_memory)?;
    for turn in 1_usize.. {
        let bytes = reader.read(&mut chunk).map_err(|_| InflateError::Malformed)?;
        if bytes == 0 {
            break;
        }
        if whole.len() + bytes > bytes_max {
            return Err(InflateError::Body(BodyError::TooLarge));
        }
        share.merge(memory.take(bytes).map_err(no_memory)?);
        whole.extend_from_slice(&chunk[..bytes]);
        if turn.is_multiple_of(CHUNKS_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }
    Ok(Received::new(whole.freeze(), share))
}

/// A zlib stream that must be complete, with nothing behind it.
struct Zlib<'a> {
    inflating: Decompress,
    rest: &'a [u8],
    ended: bool,
}

impl<'a> Zlib<'a> {
    fn new(wire: &'a [u8]) -> Self {
        Self { inflating: Decompress::new(true), rest: wire, ended: false }
    }
}

impl Read for Zlib<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.ended {
            let (read, written) = (self.inflating.total_in(), self.inflating.total_out());
            let status = self.inflating.decompress(self.rest, out, FlushDecompress::None)?;
            let moved = |after: u64, before: u64| usize::try_from(after - before).unwrap_or(usize::MAX);
            let (read, written) =
                (moved(self.inflating.total_in(), read), moved(self.inflating.total_out(), written));
            self.rest = self.rest.get(read..).unwrap_or_default();
            match status {
                Status::StreamEnd if !self.rest.is_empty() => {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                }
                Status::StreamEnd => self.ended = true,
                Status::Ok | Status::BufError if read == 0 && written == 0 => {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                Status::Ok | Status::BufError => {}
            }
            if written > 0 {
                return Ok(written);
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use bytes::Bytes;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use http::HeaderValue;

    use super::*;
    use crate::limits::in_flight::{Full, Room};

    /// Memory for a megabyte.
    fn room() -> Room {
        Room::new(1 << 20, 100, 1)
    }

    fn packed(coding: Coding, plain: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut packing = GzEncoder::new(Vec::new(), Compression::best());
                packing.write_all(plain).expect("a Vec takes everything");
                packing.finish().expect("a Vec takes everything")
            }
            Coding::Deflate => {
                let mut packing = ZlibEncoder::new(Vec::new(), Compression::best());
                packing.write_all(plain).expect("a Vec takes everything");
                packing.finish().expect("a Vec takes everything")
            }
        }
    }

    async fn inflated(coding: Coding, wire: &[u8]) -> Result<Bytes, InflateError> {
        let memory = room();
        let result =
            inflate(coding, wire, 1 << 20, &Memory::of_one(&memory)).await.map(|received| received.bytes);
        assert_eq!(memory.available(), 1 << 20, "its share is given back");
        result
    }

    fn named(values: &[&str]) -> Result<Option<Coding>, Unsupported> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, HeaderValue::from_str(value).expect("a value"));
        }
        coding(&headers)
    }

    #[test]
    fn one_coding_is_known_by_its_names_and_several_or_others_are_not() {
        for none in [&[][..], &[""], &["identity"], &["Identity, ", "identity"]] {
            assert_eq!(named(none), Ok(None), "{none:?}");
        }
        for gzip in [&["gzip"][..], &["x-gzip"], &["GZip"], &["identity", "gzip"], &["identity,gzip ,"]] {
            assert_eq!(named(gzip), Ok(Some(Coding::Gzip)), "{gzip:?}");
        }
        assert_eq!(named(&["deflate"]), Ok(Some(Coding::Deflate)));
        for other in
            [&["br"][..], &["zstd"], &["gzip, gzip"], &["gzip", "deflate"], &["aws-chunked"], &["gzip;q=1"]]
        {
            assert_eq!(named(other), Err(Unsupported), "{other:?}");
        }
    }

    #[tokio::test]
    async fn both_codings_give_back_what_was_packed() {
        let long: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).take(700_000).collect();
        for plain in [&b""[..], b"{}", &long] {
            for coding in [Coding::Gzip, Coding::Deflate] {
                let wire = packed(coding, plain);
                assert_eq!(inflated(coding, &wire).await.as_deref(), Ok(plain), "{coding:?}");
            }
        }
        let twice = [packed(Coding::Gzip, b"{\"a\":"), packed(Coding::Gzip, b"1}")].concat();
        assert_eq!(inflated(Coding::Gzip, &twice).await.as_deref(), Ok(&b"{\"a\":1}"[..]));
    }

    #[tokio::test]
    async fn what_is_cut_off_damaged_or_followed_by_something_is_malformed() {
        for coding in [Coding::Gzip, Coding::Deflate] {
            let wire = packed(coding, b"an event of some length, an event of some length");
            for end in 0..wire.len() {
                assert_eq!(
                    inflated(coding, &wire[..end]).await,
                    Err(InflateError::Malformed),
                    "{coding:?} {end}"
                );
            }
            let mut damaged = wire.clone();
            *damaged.last_mut().expect("not empty") ^= 1;
            assert_eq!(inflated(coding, &damaged).await, Err(InflateError::Malformed), "{coding:?}");
            let followed = [&wire[..], b"{}"].concat();
            assert_eq!(inflated(coding, &followed).await, Err(InflateError::Malformed), "{coding:?}");
            assert_eq!(inflated(coding, b"{\"id\":1}").await, Err(InflateError::Malformed), "{coding:?}");
        }
    }

    #[tokio::test]
    async fn a_bomb_stops_at_the_bound_or_where_the_memory_ends() {
        let memory = room();
        for coding in [Coding::Gzip, Coding::Deflate] {
            let bomb = packed(coding, &vec![0; 64 << 20]);
            assert!(bomb.len() < 128 << 10, "small on the wire");
            let result = inflate(coding, &bomb, 1 << 20, &Memory::of_one(&memory)).await.map(|_| ());
            assert_eq!(result, Err(InflateError::Body(BodyError::TooLarge)));
            let taken = Memory::of_one(&memory).take((1 << 20) - 100_000).expect("free");
            let result = inflate(coding, &bomb, 1 << 20, &Memory::of_one(&memory)).await.map(|_| ());
            assert_eq!(result, Err(InflateError::Body(BodyError::NoMemory(Full::Tenant))));
            drop(taken);
            assert_eq!(memory.available(), 1 << 20);
        }
        let full = packed(Coding::Gzip, &vec![0; 1 << 20]);
        assert!(
            inflate(Coding::Gzip, &full, 1 << 20, &Memory::of_one(&memory)).await.is_ok(),
            "at the bound"
        );
    }
}
