//! Which addresses belong to the public internet. What a request names must never reach the gateway's own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the public internet: globally reachable by the registries of RFC 6890, and unicast.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = a == 0
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // Shared address space of carriers, and of many a cloud's metadata service (RFC 6598).
        || (a == 100 && (64..128).contains(&b))
        // Protocol assignments and 6to4 relays (RFC 6890, RFC 7526).
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        // Benchmarks (RFC 2544).
        || (a == 198 && (b == 18 || b == 19))
        // Multicast, reserved, broadcast.
        || a >= 224;
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match (a, b) {
        // IPv4 in IPv6 (RFC 4291, RFC 6052) and 6to4 (RFC 3056) are as good as the address within.
        (0, 0) if [c, d, e, f] == [0, 0, 0, 0xffff] => embedded(g, h),
        (0x64, 0xff9b) if [c, d, e, f] == [0, 0, 0, 0] => embedded(g, h),
        (0x2002, _) => embedded(b, c),
        // Teredo and other assignments for protocols, documentation.
        (0x2001, 0..=0x01ff | 0x0db8) | (0x3fff, 0..=0x0fff) => false,
        // Only this block is handed out as global unicast; loopback, link-local, unique local and multicast are outside.
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_told_from_those_of_networks_of_ones_own() {
        for public in [
            "1.1.1.1",
            "52.94.236.248",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        for inside in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(inside.parse().expect("an address")), "{inside}");
        }
    }
}
