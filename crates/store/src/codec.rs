//! Byte formats that every implementation writes alike, so that a database can be read by the other's tools.
//!
//! *Varint*: unsigned LEB128, least significant seven bits first, at most ten bytes.
//!
//! *Headers*: one byte `1` (the format's version), then for each header in order: varint length of the name, the name,
//! varint length of the value, the value. The list ends where the bytes end.
//!
//! *Detours*: for each, the varints tenant, starts_after, length of the detour so far (`ends_at - starts_after + 1`, 0 while it is
//! open), watermark; then varint length of the acked positions' bytes, and those. The list ends where the bytes end.
//!
//! *Acked positions*: for each position in ascending order the varint difference to the one before; the first to the
//! watermark. Differences are at least 1.

use std::borrow::Cow;

use portero_types::limits::REASON_BYTES_MAX;
use portero_types::{Header, TenantNo};

use crate::Detour;

const HEADERS_VERSION: u8 = 1;

/// Bytes that are not in the format, or values that the format cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes end in the middle of a value.
    #[error("the bytes end in the middle of a value")]
    Truncated,
    /// A number needs more than 64 bits.
    #[error("a number needs more than 64 bits")]
    Overflow,
    /// The first byte names a version that this program does not know.
    #[error("unknown format version")]
    Version,
    /// A text, such as a header's name, is not UTF-8.
    #[error("a text is not UTF-8")]
    Name,
    /// Bytes follow where the value ends.
    #[error("bytes follow where the value ends")]
    Trailing,
    /// Positions do not rise, or begin at or below the watermark.
    #[error("positions must rise and lie above the watermark")]
    Order,
}

/// Encodes headers.
#[must_use]
pub fn encode_headers(headers: &[Header]) -> Vec<u8> {
    let bytes: usize = headers.iter().map(|h| h.name.len() + h.value.len() + 4).sum();
    let mut out = Vec::with_capacity(1 + bytes);
    out.push(HEADERS_VERSION);
    for header in headers {
        put_bytes(&mut out, header.name.as_bytes());
        put_bytes(&mut out, &header.value);
    }
    out
}

/// Decodes headers.
///
/// # Errors
/// [`Malformed`] when the bytes are not in the format.
pub fn decode_headers(bytes: &[u8]) -> Result<Vec<Header>, Malformed> {
    let (version, mut rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
    if *version != HEADERS_VERSION {
        return Err(Malformed::Version);
    }
    let mut headers = Vec::new();
    while !rest.is_empty() {
        let name = std::str::from_utf8(take_bytes(&mut rest)?).map_err(|_| Malformed::Name)?.to_owned();
        let value = take_bytes(&mut rest)?.to_vec();
        headers.push(Header { name, value });
    }
    Ok(headers)
}

/// Encodes settled positions above a watermark.
///
/// # Errors
/// [`Malformed::Order`] when they do not rise or begin at or below the watermark.
pub fn encode_acked(watermark: u64, acked: &[u64]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity(acked.len() * 2);
    let mut last = watermark;
    for &position in acked {
        if position <= last {
            return Err(Malformed::Order);
        }
        put_varint(&mut out, position - last);
        last = position;
    }
    Ok(out)
}

/// Decodes settled positions above a watermark.
///
/// # Errors
/// [`Malformed`] when the bytes are not in the format.
pub fn decode_acked(watermark: u64, mut bytes: &[u8]) -> Result<Vec<u64>, Malformed> {
    let mut acked = Vec::new();
    let mut last = watermark;
    while !bytes.is_empty() {
        let step = take_varint(&mut bytes)?;
        if step == 0 {
            return Err(Malformed::Order);
        }
        last = last.checked_add(step).ok_or(Malformed::Overflow)?;
        acked.push(last);
    }
    Ok(acked)
}

/// Encodes detours.
///
/// # Errors
/// [`Malformed::Order`] when acked positions do not rise above their watermark, or a detour ends before it starts;
/// [`Malformed::Overflow`] for a negative tenant.
pub fn encode_detours(detours: &[Detour]) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::new();
    for detour in detours {
        put_varint(&mut out, u64::try_from(detour.tenant.0).map_err(|_| Malformed::Overflow)?);
        put_varint(&mut out, detour.starts_after);
        let length = match detour.ends_at {
            Some(end) => end.checked_sub(detour.starts_after).ok_or(Malformed::Order)? + 1,
            None => 0,
        };
        put_varint(&mut out, length);
        put_varint(&mut out, detour.watermark);
        put_bytes(&mut out, &encode_acked(detour.watermark, &detour.acked)?);
    }
    Ok(out)
}

/// Decodes detours.
///
/// # Errors
/// [`Malformed`] when the bytes are not in the format.
pub fn decode_detours(mut bytes: &[u8]) -> Result<Vec<Detour>, Malformed> {
    let mut detours = Vec::new();
    while !bytes.is_empty() {
        let tenant = i64::try_from(take_varint(&mut bytes)?).map_err(|_| Malformed::Overflow)?;
        let starts_after = take_varint(&mut bytes)?;
        let ends_at = match take_varint(&mut bytes)? {
            0 => None,
            length => Some(starts_after.checked_add(length - 1).ok_or(Malformed::Overflow)?),
        };
        let watermark = take_varint(&mut bytes)?;
        let acked = decode_acked(watermark, take_bytes(&mut bytes)?)?;
        detours.push(Detour { tenant: TenantNo(tenant), starts_after, ends_at, watermark, acked });
    }
    Ok(detours)
}

/// A consumer's reason as it is stored: NUL, which not every database takes as text, becomes U+FFFD, and what is longer
/// than [`REASON_BYTES_MAX`] is cut at a character boundary. A reason must never make a settlement fail.
#[must_use]
pub fn clean_reason(text: &str) -> Cow<'_, str> {
    let clean =
        if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) };
    if clean.len() <= REASON_BYTES_MAX {
        return clean;
    }
    let end = clean.floor_char_boundary(REASON_BYTES_MAX);
    match clean {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
        Cow::Owned(mut text) => {
            text.truncate(end);
            Cow::Owned(text)
        }
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

pub(crate) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Malformed::Truncated)?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        if shift == 63 && low > 1 {
            return Err(Malformed::Overflow);
        }
        value |= low << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed::Overflow)
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, u64::try_from(bytes.len()).expect("a length in memory fits 64 bits"));
    out.extend_from_slice(bytes);
}

pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(take_varint(bytes)?).map_err(|_| Malformed::Overflow)?;
    let (head, rest) = bytes.split_at_checked(length).ok_or(Malformed::Truncated)?;
    *bytes = rest;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_as_they_were() {
        let headers = vec![
            Header { name: "stripe-signature".to_owned(), value: b"t=1,v1=ab".to_vec() },
            Header { name: String::new(), value: (0..=255).collect() },
            Header { name: "stripe-signature".to_owned(), value: vec![b'x'; 300] },
        ];
        assert_eq!(decode_headers(&encode_headers(&headers)), Ok(headers));
        assert_eq!(decode_headers(&encode_headers(&[])), Ok(vec![]));
    }

    #[test]
    fn the_formats_are_pinned() {
        let headers = [Header { name: "a".to_owned(), value: vec![0, 9] }];
        assert_eq!(encode_headers(&headers), [1, 1, b'a', 2, 0, 9]);
        assert_eq!(encode_acked(10, &[11, 12, 400]), Ok(vec![1, 1, 0x84, 0x03]));
    }

    #[test]
    fn acked_positions_read_back_at_the_edges() {
        for (watermark, acked) in [(0, vec![]), (0, vec![1]), (7, vec![8, 300, u64::MAX]), (u64::MAX, vec![])]
        {
            let bytes = encode_acked(watermark, &acked).expect("ascending");
            assert_eq!(decode_acked(watermark, &bytes), Ok(acked));
        }
    }

    #[test]
    fn detours_read_back_at_the_edges_and_damaged_ones_are_refused() {
        let open = Detour {
            tenant: TenantNo(7),
            starts_after: 10,
            ends_at: None,
            watermark: 12,
            acked: vec![14, 300],
        };
        let empty = Detour { ends_at: Some(10), watermark: 10, acked: vec![], ..open };
        let last = Detour { tenant: TenantNo(i64::MAX), ends_at: Some(u64::MAX - 1), ..open.clone() };
        let all = vec![open, empty, last];
        let bytes = encode_detours(&all).expect("well-formed");
        assert_eq!(decode_detours(&bytes), Ok(all.clone()));
        assert_eq!(encode_detours(&[]), Ok(vec![]));
        for end in 1..bytes.len() {
            // A cut at the border of two detours is a shorter list; every other one is damage.
            if let Ok(read) = decode_detours(&bytes[..end]) {
                assert_eq!(read[..], all[..read.len()]);
            }
        }
        let backwards = Detour { ends_at: Some(9), ..all[0].clone() };
        assert_eq!(encode_detours(&[backwards]), Err(Malformed::Order));
        let negative = Detour { tenant: TenantNo(-1), ..all[0].clone() };
        assert_eq!(encode_detours(&[negative]), Err(Malformed::Overflow));
    }

    #[test]
    fn what_does_not_rise_is_refused() {
        assert_eq!(encode_acked(5, &[5]), Err(Malformed::Order));
        assert_eq!(encode_acked(5, &[7, 6]), Err(Malformed::Order));
        assert_eq!(decode_acked(5, &[0]), Err(Malformed::Order));
        assert_eq!(decode_acked(u64::MAX, &[1]), Err(Malformed::Overflow));
    }

    #[test]
    fn damaged_bytes_are_told_apart_and_never_panic() {
        assert_eq!(decode_headers(&[]), Err(Malformed::Truncated));
        assert_eq!(decode_headers(&[2]), Err(Malformed::Version));
        assert_eq!(decode_headers(&[1, 5, b'a']), Err(Malformed::Truncated));
        assert_eq!(decode_headers(&[1, 1, 0xff, 0]), Err(Malformed::Name));
        assert_eq!(decode_acked(0, &[0x80]), Err(Malformed::Truncated));
        assert_eq!(decode_acked(0, &[0xff; 11]), Err(Malformed::Overflow));
    }

    #[test]
    fn reasons_lose_nul_and_what_is_too_long() {
        assert_eq!(clean_reason("card declined"), "card declined");
        assert_eq!(clean_reason("a\0b"), "a\u{fffd}b");
        let long = "ä".repeat(REASON_BYTES_MAX);
        assert_eq!(clean_reason(&long).len(), REASON_BYTES_MAX);
        assert!(clean_reason(&"\0".repeat(REASON_BYTES_MAX)).len() <= REASON_BYTES_MAX);
    }
}
