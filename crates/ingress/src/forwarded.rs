//! Whose request it is when it came through proxies: read from the right, only as far as hops are trusted.
//!
//! Every proxy appends the address that it was connected from. What stands left of the first hop that is not trusted was
//! written by a stranger, and is never looked at. Which of the two headers counts is configured: a proxy that writes one of them
//! passes the other on as the client made it up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

/// Most hops that are looked at.
const HOPS_MAX: usize = 32;
/// Longest text that may name an address, bytes.
const NODE_BYTES_MAX: usize = 64;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The header in which the trusted proxies name the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses, comma-separated.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
}

/// Proxies whose word about who connected to them counts; by default there are none.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    header: ForwardedHeader,
}

impl TrustedProxies {
    /// Those in these networks, writing this header.
    #[must_use]
    pub const fn new(networks: Vec<Network>, header: ForwardedHeader) -> Self {
        Self { networks, header }
    }

    /// Whether an address is one of theirs.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(address))
    }

    /// Who sent a request that came from `peer` with these headers.
    ///
    /// The first address from the right that is no trusted proxy. Where a hop is missing, hidden or malformed, it is the
    /// proxy that should have named it: such requests count together. Pure; takes time in proportion to the header.
    #[must_use]
    pub fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.contain(client) {
            return client;
        }
        let name = match self.header {
            ForwardedHeader::XForwardedFor => X_FORWARDED_FOR,
            ForwardedHeader::Forwarded => FORWARDED,
        };
        let lines: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
        let hops = lines.into_iter().rev().flat_map(|line| Elements::of(line, self.header));
        for hop in hops.take(HOPS_MAX) {
            let named = match self.header {
                ForwardedHeader::XForwardedFor => node(hop),
                ForwardedHeader::Forwarded => forwarded_for(hop),
            };
            match named {
                Some(address) if self.contain(address) => client = address,
                Some(address) => return address,
                None => return client,
            }
        }
        client
    }
}

/// Whether a request says for whom it is forwarded, in whichever header.
pub(crate) fn is_named(headers: &HeaderMap) -> bool {
    headers.contains_key(X_FORWARDED_FOR) || headers.contains_key(FORWARDED)
}

/// Addresses with a common prefix, such as `10.0.0.0/8`; one address without a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether an address lies in it. An IPv4 address written as IPv6 is an IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => mask_v4(address, self.prefix) == first,
            (IpAddr::V6(first), IpAddr::V6(address)) => mask_v6(address, self.prefix) == first,
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

fn mask_v4(address: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    Ipv4Addr::from_bits(address.to_bits() & mask)
}

fn mask_v6(address: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    Ipv6Addr::from_bits(address.to_bits() & mask)
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// Why a text names no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkInvalid {
    /// No address in it.
    #[error("not an address or a network such as 10.0.0.0/8 or fd00::/8")]
    Malformed,
    /// The prefix is longer than the address.
    #[error("the prefix is longer than the address; at most {0}")]
    PrefixTooLong(u8),
    /// Everybody would be trusted.
    #[error("this would trust everybody's word; name the networks of your proxies")]
    Everybody,
    /// Bits are set behind the prefix.
    #[error("bits are set behind the prefix; did you mean {0}?")]
    BitsBehindPrefix(Network),
}

impl FromStr for Network {
    type Err = NetworkInvalid;

    fn from_str(text: &str) -> Result<Self, NetworkInvalid> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(decimal(prefix).ok_or(NetworkInvalid::Malformed)?)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| NetworkInvalid::Malformed)?;
        let written_bits = if written.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(written_bits);
        if prefix > written_bits {
            return Err(NetworkInvalid::PrefixTooLong(written_bits));
        }
        let (address, prefix) = match (written, written.to_canonical()) {
            // An IPv4 network written as IPv6.
            (IpAddr::V6(_), IpAddr::V4(inner)) if prefix >= 96 => (IpAddr::V4(inner), prefix - 96),
            _ => (written, prefix),
        };
        if prefix == 0 {
            return Err(NetworkInvalid::Everybody);
        }
        let first = match address {
            IpAddr::V4(address) => IpAddr::V4(mask_v4(address, prefix)),
            IpAddr::V6(address) => IpAddr::V6(mask_v6(address, prefix)),
        };
        let network = Self { first, prefix };
        if first == address { Ok(network) } else { Err(NetworkInvalid::BitsBehindPrefix(network)) }
    }
}

fn decimal(text: &str) -> Option<u8> {
    let plain = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// The elements of a header line from the right, without empty ones.
struct Elements<'a> {
    rest: Option<&'a [u8]>,
    /// A comma between quotes is none.
    quotes: bool,
}

impl<'a> Elements<'a> {
    fn of(line: &'a HeaderValue, header: ForwardedHeader) -> Self {
        Self { rest: Some(line.as_bytes()), quotes: header == ForwardedHeader::Forwarded }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = self.rest?;
            // From the right: what a stranger opened and did not close further left must not swallow what a proxy wrote.
            let comma = last_outside_quotes(rest, b',', self.quotes);
            let element = comma.map_or(rest, |at| &rest[at + 1..]).trim_ascii();
            self.rest = comma.map(|at| &rest[..at]);
            if !element.is_empty() {
                return Some(element);
            }
        }
    }
}

/// Where a byte stands last, seen from the right.
fn last_outside_quotes(text: &[u8], wanted: u8, quotes: bool) -> Option<usize> {
    let mut quoted = false;
    for at in (0..text.len()).rev() {
        let byte = text[at];
        if quotes && byte == b'"' && !is_escaped(&text[..at]) {
            quoted = !quoted;
        } else if byte == wanted && !quoted {
            return Some(at);
        }
    }
    None
}

/// Whether what follows is escaped: an odd number of backslashes stands before it. Few are looked at, so that a header full
/// of them costs no more than its length.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take(8).take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address of an element's one `for` parameter.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = Some(element);
    while let Some(text) = rest {
        let semicolon = last_outside_quotes(text, b';', true);
        let pair = semicolon.map_or(text, |at| &text[at + 1..]);
        rest = semicolon.map(|at| &text[..at]);
        let Some(equals) = pair.iter().position(|byte| *byte == b'=') else { continue };
        if !pair[..equals].trim_ascii().eq_ignore_ascii_case(b"for") {
            continue;
        }
        if found.is_some() {
            return None;
        }
        found = Some(pair[equals + 1..].trim_ascii());
    }
    node(unquoted(found?)?)
}

/// The inside of a quoted text; a bare one as it is. No address needs an escape.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inside @ .., b'"'] => (!inside.contains(&b'"') && !inside.contains(&b'\\')).then_some(inside),
        _ => Some(value),
    }
}

/// The address of a node: with a port or without, an IPv6 address in brackets or bare. Hidden ones have none.
fn node(text: &[u8]) -> Option<IpAddr> {
    if text.len() > NODE_BYTES_MAX {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let address: IpAddr = if let Some(inner) = text.strip_prefix('[') {
        let (address, port) = inner.split_once(']')?;
        if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
            return None;
        }
        IpAddr::V6(address.parse().ok()?)
    } else if let Ok(address) = text.parse() {
        address
    } else {
        let (address, port) = text.split_once(':')?;
        if !is_port(port) {
            return None;
        }
        IpAddr::V4(address.parse().ok()?)
    };
    Some(address.to_canonical())
}

/// A port, or a hidden one.
fn is_port(text: &str) -> bool {
    let hidden = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && hidden(name),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests;
