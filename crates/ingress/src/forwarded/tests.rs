//! What is believed, and what strangers cannot make anybody believe.

use proptest::prelude::*;

use super::*;

fn proxies(header: ForwardedHeader) -> TrustedProxies {
    let networks = ["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().expect("a network"));
    TrustedProxies::new(networks.to_vec(), header)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn client(header: ForwardedHeader, peer: &str, lines: &[&str]) -> IpAddr {
    let name = if header == ForwardedHeader::Forwarded { "forwarded" } else { "x-forwarded-for" };
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_str(line).expect("a header"));
    }
    proxies(header).client_address(ip(peer), &headers)
}

fn listed(peer: &str, lines: &[&str]) -> IpAddr {
    client(ForwardedHeader::XForwardedFor, peer, lines)
}

fn forwarded(peer: &str, lines: &[&str]) -> IpAddr {
    client(ForwardedHeader::Forwarded, peer, lines)
}

#[test]
fn a_peer_that_is_no_trusted_proxy_is_the_client_whatever_it_says() {
    assert_eq!(listed("198.51.100.7", &["192.0.2.1"]), ip("198.51.100.7"));
    assert_eq!(forwarded("198.51.100.7", &["for=192.0.2.1"]), ip("198.51.100.7"));
    let nobody = TrustedProxies::default();
    let mut headers = HeaderMap::new();
    headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
    assert_eq!(nobody.client_address(ip("127.0.0.1"), &headers), ip("127.0.0.1"));
}

#[test]
fn a_trusted_proxy_names_the_client() {
    assert_eq!(listed("10.1.2.3", &["192.0.2.1"]), ip("192.0.2.1"));
    assert_eq!(listed("::ffff:10.1.2.3", &["192.0.2.1"]), ip("192.0.2.1"));
    assert_eq!(listed("fd00::1", &["2001:db8::5"]), ip("2001:db8::5"));
    assert_eq!(forwarded("10.1.2.3", &["for=192.0.2.1;proto=https;by=203.0.113.43"]), ip("192.0.2.1"));
}

#[test]
fn what_a_client_wrote_itself_stands_further_left_and_is_not_believed() {
    assert_eq!(listed("10.0.0.1", &["10.9.9.9, 6.6.6.6, 192.0.2.1"]), ip("192.0.2.1"));
    assert_eq!(listed("10.0.0.1", &["6.6.6.6", "192.0.2.1"]), ip("192.0.2.1"), "on a line of its own");
    assert_eq!(forwarded("10.0.0.1", &["for=6.6.6.6, for=192.0.2.1"]), ip("192.0.2.1"));
    for opened in ["for=\"6.6.6.6", "x=\"", "for=6.6.6.6;x=\"\\", "\"\"\"", "for=\\\""] {
        let line = format!("{opened}, for=192.0.2.1");
        assert_eq!(forwarded("10.0.0.1", &[&line]), ip("192.0.2.1"), "{line}");
    }
}

#[test]
fn the_header_that_the_proxies_do_not_write_is_not_looked_at() {
    let mut headers = HeaderMap::new();
    headers.insert("forwarded", HeaderValue::from_static("for=6.6.6.6"));
    let trusted = proxies(ForwardedHeader::XForwardedFor);
    assert_eq!(trusted.client_address(ip("10.0.0.1"), &headers), ip("10.0.0.1"));
    headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
    assert_eq!(trusted.client_address(ip("10.0.0.1"), &headers), ip("192.0.2.1"));
    assert_eq!(proxies(ForwardedHeader::Forwarded).client_address(ip("10.0.0.1"), &headers), ip("6.6.6.6"));
}

#[test]
fn a_chain_of_trusted_proxies_is_followed_to_its_beginning() {
    assert_eq!(listed("10.0.0.1", &["192.0.2.1, 10.0.0.3, 10.0.0.2"]), ip("192.0.2.1"));
    assert_eq!(listed("10.0.0.1", &["10.0.0.4, 10.0.0.3"]), ip("10.0.0.4"), "the request begins inside");
    assert_eq!(listed("10.0.0.1", &[]), ip("10.0.0.1"));
    let long = vec!["10.0.0.2"; 500].join(", ");
    assert_eq!(listed("10.0.0.1", &[&format!("192.0.2.1, {long}")]), ip("10.0.0.2"), "bounded");
}

#[test]
fn a_hop_that_is_hidden_or_malformed_ends_the_search_at_the_proxy_that_should_know() {
    for hop in
        ["unknown", "_hidden", "192.0.2", "192.0.2.1:port", "192.0.2.1:", "[::1", "::1]", "fe80::1%eth0"]
    {
        assert_eq!(listed("10.0.0.1", &[&format!("6.6.6.6, {hop}")]), ip("10.0.0.1"), "{hop}");
        assert_eq!(listed("10.0.0.1", &[&format!("6.6.6.6, {hop}, 10.0.0.2")]), ip("10.0.0.2"), "{hop}");
    }
    for element in ["for=unknown", "for=_x", "proto=https", "for=1.2.3.4;for=5.6.7.8", "for=\"1.2.3.4", "for"]
    {
        let line = format!("for=6.6.6.6, {element}");
        assert_ne!(forwarded("10.0.0.1", &[&line]), ip("6.6.6.6"), "{line}");
    }
}

#[test]
fn ports_brackets_quotes_spaces_and_letter_case_make_no_difference() {
    for hop in ["192.0.2.1:4711", " 192.0.2.1 ", "192.0.2.1,", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:80"] {
        assert_eq!(listed("10.0.0.1", &[hop]), ip("192.0.2.1"), "{hop}");
    }
    for hop in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443", "[2001:DB8:0::1]:_p"] {
        assert_eq!(listed("10.0.0.1", &[hop]), ip("2001:db8::1"), "{hop}");
    }
    for element in [
        r#"for="[2001:db8::1]:4711""#,
        r#"For="[2001:db8::1]""#,
        r#"proto=http;FOR = "[2001:db8::1]";host="a;b,c""#,
        "for=2001:db8::1",
    ] {
        assert_eq!(forwarded("10.0.0.1", &[element]), ip("2001:db8::1"), "{element}");
    }
}

#[test]
fn a_network_is_read_strictly_and_what_is_wrong_is_said() {
    let network = |text: &str| text.parse::<Network>();
    assert_eq!(network("10.0.0.0/8").expect("valid").to_string(), "10.0.0.0/8");
    assert_eq!(network("192.0.2.7").expect("valid").to_string(), "192.0.2.7/32");
    assert_eq!(network("::ffff:10.0.0.0/104").expect("valid").to_string(), "10.0.0.0/8");
    assert_eq!(network("10.0.0.0/33"), Err(NetworkInvalid::PrefixTooLong(32)));
    assert_eq!(network("0.0.0.0/0"), Err(NetworkInvalid::Everybody));
    assert_eq!(network("::/0"), Err(NetworkInvalid::Everybody));
    let error = network("10.1.0.0/8").expect_err("bits are set");
    assert_eq!(error.to_string(), "bits are set behind the prefix; did you mean 10.0.0.0/8?");
    for text in ["", "/", "10/8", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8", "localhost", " 10.0.0.0/8"] {
        assert_eq!(network(text), Err(NetworkInvalid::Malformed), "{text:?}");
    }
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    ]
}

fn written(address: IpAddr, style: u8) -> String {
    match (address, style % 3) {
        (IpAddr::V4(address), 0) => format!("{address}:80"),
        (IpAddr::V4(address), _) => address.to_string(),
        (IpAddr::V6(address), 0) => format!("[{address}]:80"),
        (IpAddr::V6(address), 1) => format!("[{address}]"),
        (IpAddr::V6(address), _) => address.to_string(),
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_fail_or_believe_an_untrusted_peer(
        peer in any_address(),
        lines in prop::collection::vec("[ -~]{0,120}", 0..4),
        is_forwarded in any::<bool>(),
    ) {
        let header = if is_forwarded { ForwardedHeader::Forwarded } else { ForwardedHeader::XForwardedFor };
        let name = if is_forwarded { "forwarded" } else { "x-forwarded-for" };
        let mut headers = HeaderMap::new();
        for line in &lines {
            headers.append(name, HeaderValue::from_str(line).expect("visible characters"));
        }
        let trusted = proxies(header);
        let found = trusted.client_address(peer, &headers);
        if !trusted.contain(peer) {
            prop_assert_eq!(found, peer.to_canonical());
        }
        prop_assert_eq!(found, found.to_canonical());
    }

    /// Whatever a client sends, the proxy's own words behind it decide.
    #[test]
    fn what_a_proxy_appends_is_what_counts(
        own in "[ -~]{0,120}",
        client in any_address(),
        hops in 0..4_u8,
        style in any::<u8>(),
        is_forwarded in any::<bool>(),
        same_line in any::<bool>(),
    ) {
        let header = if is_forwarded { ForwardedHeader::Forwarded } else { ForwardedHeader::XForwardedFor };
        let trusted = proxies(header);
        prop_assume!(!trusted.contain(client));
        let mut appended = Vec::new();
        for address in std::iter::once(client).chain((0..hops).map(|n| ip(&format!("10.0.0.{n}")))) {
            let text = written(address, style);
            appended.push(if is_forwarded { format!("for=\"{text}\";proto=https") } else { text });
        }
        let appended = appended.join(", ");
        let mut headers = HeaderMap::new();
        let name = if is_forwarded { "forwarded" } else { "x-forwarded-for" };
        if same_line {
            let line = format!("{own}, {appended}");
            headers.append(name, HeaderValue::from_str(&line).expect("visible characters"));
        } else {
            headers.append(name, HeaderValue::from_str(&own).expect("visible characters"));
            headers.append(name, HeaderValue::from_str(&appended).expect("visible characters"));
        }
        prop_assert_eq!(trusted.client_address(ip("10.0.0.9"), &headers), client.to_canonical());
    }

    #[test]
    fn a_network_contains_exactly_what_has_its_prefix(
        address in any_address(),
        other in any_address(),
        prefix in 1..=128_u8,
    ) {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.min(bits);
        let network: Network = match format!("{address}/{prefix}").parse() {
            Ok(network) => network,
            Err(NetworkInvalid::BitsBehindPrefix(network)) => network,
            Err(error) => return Err(TestCaseError::reject(error.to_string())),
        };
        prop_assert!(network.contains(address));
        let as_bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        if address.is_ipv4() == other.is_ipv4() && address == address.to_canonical() && other == other.to_canonical() {
            let same = (as_bits(address) ^ as_bits(other)) >> (128 - u32::from(prefix)) == 0;
            prop_assert_eq!(network.contains(other), same);
        }
    }
}
