//! What the fuzzer `forwarded` runs (see crates/recipe/fuzz). Hidden, and only there with the feature `fuzzing` or in tests,
//! which run its kept inputs through the same function.
//!
//! It takes any bytes and panics when something that must hold does not.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};

use crate::forwarded::{ForwardedHeader, Network, TrustedProxies};

/// Lines of the header in which proxies name the client, the first of them read as a network too.
///
/// # Panics
/// When a stranger's words left of the first hop that is not trusted change who the client is, when somebody who is no proxy is
/// heard, or when a network that is written is not read.
pub fn forwarded(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    for (header, name) in [
        (ForwardedHeader::XForwardedFor, HeaderName::from_static("x-forwarded-for")),
        (ForwardedHeader::Forwarded, FORWARDED),
    ] {
        let proxies = TrustedProxies::new(networks(&["10.0.0.0/8", "fd00::/8", "192.0.2.1"]), header);
        let asked = |peer: &str, before: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in before.iter().chain(&lines) {
                if let Ok(line) = HeaderValue::from_bytes(line) {
                    headers.append(name.clone(), line);
                }
            }
            proxies.client_address(address(peer), &headers)
        };
        let client = asked("10.1.2.3", &[]);
        if !proxies.contain(client) {
            let strangers: [&[u8]; 3] =
                [b"198.51.100.9", b"for=198.51.100.9", b"for=\"[2001:db8::9]:1\", \""];
            for stranger in strangers {
                assert_eq!(asked("10.1.2.3", &[stranger]), client, "a stranger chose who he is");
            }
        }
        assert_eq!(asked("203.0.113.7", &[]), address("203.0.113.7"), "who is no proxy names nobody");
    }
    let network = std::str::from_utf8(lines[0]).ok().and_then(|text| text.parse::<Network>().ok());
    if let Some(network) = network {
        assert_eq!(network.to_string().parse::<Network>().as_ref(), Ok(&network), "it is read as written");
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn networks(texts: &[&str]) -> Vec<Network> {
    texts.iter().map(|text| text.parse().expect("a network")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn kept_headers_of_proxies_are_read() {
        for kind in ["seeds", "findings"] {
            let folder = format!("{}/../recipe/fuzz/{kind}/forwarded", env!("CARGO_MANIFEST_DIR"));
            let Ok(files) = std::fs::read_dir(folder) else { continue };
            for file in files {
                super::forwarded(&std::fs::read(file.expect("an entry").path()).expect("readable"));
            }
        }
    }
}
