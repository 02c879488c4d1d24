//! Who sends, as far as an address tells.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bits of an IPv6 address that one customer of a network usually has as one.
const NETWORK_MASK: u128 = !((1 << 64) - 1);

/// A sender's address as limits count it: an IPv4 address, or the first 64 bits of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// The sender with this address. An IPv4 address written as IPv6 is the same sender.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK).into()),
        }
    }

    /// Nobody in particular: where a request did not come over the network.
    pub(crate) const fn unknown() -> Self {
        Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(text: &str) -> Client {
        Client::of(text.parse().expect("an address"))
    }

    #[test]
    fn an_ipv6_sender_is_its_network_and_an_ipv4_sender_its_address() {
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(client("::ffff:192.0.2.1"), client("192.0.2.1"));
        assert_ne!(client("::ffff:192.0.2.1"), client("::ffff:192.0.2.2"));
        assert_ne!(client("192.0.2.1"), Client::unknown());
    }
}
