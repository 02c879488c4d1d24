//! Who is refused for sending too much, and who is not.

use portero_store::{Limits, TenantKey};
use portero_types::TenantNo;

use super::*;
use crate::forwarded::{ForwardedHeader, TrustedProxies};
use crate::{LimitsConfig, SendingLimits, UnverifiedLimits};

/// Slow refills, so that what is used up stays used up for the length of a test.
fn tight() -> EdgeConfig {
    let sending = SendingLimits { events_per_second: 1, burst: 5, bytes_per_second: 0 };
    let unverified = UnverifiedLimits { per_second: 1, burst: 3 };
    EdgeConfig {
        limits: LimitsConfig {
            tenant: SendingLimits { burst: 1_000, ..sending },
            source: sending,
            unverified_source: unverified,
            unverified_address: UnverifiedLimits { burst: 1_000, ..unverified },
            ..LimitsConfig::default()
        },
        trusted_proxies: loopback(),
        ..EdgeConfig::default()
    }
}

/// Tests come through a proxy of their own.
fn loopback() -> TrustedProxies {
    TrustedProxies::new(vec!["127.0.0.0/8".parse().expect("valid")], ForwardedHeader::XForwardedFor)
}

/// Posts an event that is signed, or not, from an address.
async fn send(gateway: &Gateway, source: u8, event: &str, from: &str, is_genuine: bool) -> Reply {
    let (mut headers, body) = signed(source, &stripe_event(event), gateway.clock.now());
    headers.push(("x-forwarded-for".to_owned(), from.to_owned()));
    let body = if is_genuine { body } else { stripe_event("evt_forged") };
    gateway.post(source, &headers, &body).await
}

/// How many of some requests are answered so before the first that is not.
async fn answered(gateway: &Gateway, status: u16, from: &str, is_genuine: bool) -> (usize, Reply) {
    for n in 0..=101 {
        let reply = send(gateway, 1, &format!("evt_{from}_{n}"), from, is_genuine).await;
        if reply.status != status || n == 101 {
            return (n, reply);
        }
    }
    unreachable!("it returns")
}

#[tokio::test]
async fn a_source_that_sends_too_much_is_told_when_to_come_again_without_its_body_being_read() {
    let gateway = Gateway::bounded(tight()).await;
    let (sent, reply) = answered(&gateway, 200, "192.0.2.1", true).await;
    assert!((5..=7).contains(&sent), "{sent}");
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{reply:?}");
    assert_eq!(reply.json()["error"], "rate_limited");
    let head_only = request(&format!("POST {}", path(1)), &pairs(&[("content-length", "1000")]), b"");
    let reply = gateway.raw(&head_only).await;
    assert_eq!(reply.status, 429, "the body never comes: {reply:?}");
    assert_eq!(send(&gateway, 2, "evt_other", "192.0.2.1", true).await.status, 200, "another source goes on");
    gateway.stop().await;
}

#[tokio::test]
async fn limits_of_a_source_hold_as_soon_as_they_are_changed() {
    let gateway = Gateway::bounded(tight()).await;
    answered(&gateway, 200, "192.0.2.1", true).await;
    gateway.config.change(|snapshot| {
        snapshot.sources[0].limits = Limits { events_per_second: Some(0), ..Limits::default() };
    });
    gateway.directory.refresh_now().await.expect("readable");
    assert_eq!(answered(&gateway, 200, "192.0.2.2", true).await.0, 101, "no limit any more");
    gateway.stop().await;
}

#[tokio::test]
async fn forged_requests_are_refused_unread_after_some_and_the_provider_never() {
    let gateway = Gateway::bounded(tight()).await;
    assert_eq!(send(&gateway, 1, "evt_1", "192.0.2.1", true).await.status, 200);
    let (failed, reply) = answered(&gateway, 401, "198.51.100.66", false).await;
    assert!((2..=4).contains(&failed), "{failed}");
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{reply:?}");
    assert_eq!(reply.json()["error"], "unverified_limited");
    let reply = send(&gateway, 1, "evt_x", "203.0.113.8", false).await;
    assert_eq!(reply.status, 401, "half is left to those who did not fail: {reply:?}");
    let head_only = pairs(&[("content-length", "1000"), ("x-forwarded-for", "203.0.113.9")]);
    let reply = gateway.raw(&request(&format!("POST {}", path(1)), &head_only, b"")).await;
    assert_eq!(reply.status, 429, "nor is a stranger's from elsewhere: {reply:?}");
    assert_eq!(send(&gateway, 1, "evt_2", "192.0.2.1", true).await.status, 200, "the provider is known");
    assert_eq!(send(&gateway, 2, "evt_3", "198.51.100.66", true).await.status, 200, "another source");
    gateway.stop().await;
}

#[tokio::test]
async fn nobody_hides_behind_a_header_of_its_own() {
    let config = EdgeConfig { trusted_proxies: TrustedProxies::default(), ..tight() };
    let gateway = Gateway::bounded(config).await;
    assert_eq!(send(&gateway, 1, "evt_1", "192.0.2.1", true).await.status, 200);
    for n in 0..20 {
        let reply = send(&gateway, 1, "evt_2", &format!("198.51.100.{n}"), false).await;
        assert_eq!(reply.status, 401, "all come from 127.0.0.1, which is known here");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn bodies_that_never_come_count_as_requests_that_do_not_verify() {
    let config = EdgeConfig { body_timeout: Duration::from_millis(20), ..tight() };
    let gateway = Gateway::bounded(config).await;
    let slow = pairs(&[("content-length", "1000"), ("x-forwarded-for", "198.51.100.66")]);
    let begun = request(&format!("POST {}", path(1)), &slow, b"{");
    let mut statuses: Vec<_> = futures::future::join_all((0..9).map(|_| gateway.raw(&begun)))
        .await
        .into_iter()
        .map(|reply| reply.status)
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [408, 408, 429, 429, 429, 429, 429, 429, 429]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_tenant_holds_a_part_of_the_requests_and_the_memory_and_leaves_the_rest() {
    let config = EdgeConfig {
        requests_max: 8,
        body_bytes_max: 1_000,
        body_bytes_in_flight_max: 6_000,
        trusted_proxies: loopback(),
        ..EdgeConfig::default()
    };
    let gateway = Gateway::bounded(config).await;
    gateway.config.change(|snapshot| {
        let key = snapshot.tenant_keys[0].clone();
        snapshot.tenant_keys.push(TenantKey { tenant_no: TenantNo(2), ..key });
    });
    gateway.add(9, "stripe", Some(PRESETS[0].1), |source| source.tenant_no = TenantNo(2)).await;
    for source in [1, 2] {
        assert_eq!(gateway.deliver(source, &stripe_event("evt_1")).await.status, 200, "known from now on");
    }
    let open = |bytes: &str| {
        let headers = pairs(&[("content-length", bytes), ("expect", "100-continue")]);
        request(&format!("POST {}", path(1)), &headers, b"")
    };
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = gateway.connect().await;
        stream.write_all(&open("700")).await.expect("sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("100 Continue: it is being read");
        held.push(stream);
    }
    let reply = gateway.deliver(2, b"{}").await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "two of eight: {reply:?}");
    assert_eq!(reply.json()["message"], "too much of this tenant is in flight; try again");
    assert_eq!(gateway.post(9, &[], b"{}").await.status, 401, "another tenant's request is examined");
    drop(held.pop());
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while gateway.post(1, &[], b"{}").await.status == 503 {
        assert!(tokio::time::Instant::now() < deadline, "what a sender that left held is given back");
    }
    let reply = gateway.post(1, &[], &[b'x'; 900]).await;
    assert_eq!(reply.status, 503, "700 of 1,500 bytes are held: {reply:?}");
    drop(held);
    gateway.stop().await;
}

#[tokio::test]
async fn one_address_has_so_many_connections_and_a_trusted_proxy_any_number() {
    for (proxies, wanted) in [(TrustedProxies::default(), 503), (loopback(), 404)] {
        let config =
            EdgeConfig { connections_per_address_max: 2, trusted_proxies: proxies, ..EdgeConfig::default() };
        let gateway = Gateway::bounded(config).await;
        let mut open = Vec::new();
        for _ in 0..2 {
            let mut stream = gateway.connect().await;
            let probe = format!("HEAD {} HTTP/1.1\r\nhost: a\r\n\r\n", path(1));
            stream.write_all(probe.as_bytes()).await.expect("sent");
            stream.read_exact(&mut [0; 12]).await.expect("answered");
            open.push(stream);
        }
        let reply = gateway.raw(&request("GET /", &[], b"")).await;
        assert_eq!(reply.status, wanted, "{reply:?}");
        drop(open);
        gateway.stop().await;
    }
}

#[tokio::test]
async fn the_owner_is_told_of_a_limit_once_in_a_while() {
    let gateway = Gateway::bounded(tight()).await;
    answered(&gateway, 200, "192.0.2.1", true).await;
    for _ in 0..20 {
        assert_eq!(send(&gateway, 1, "evt_x", "192.0.2.1", true).await.status, 429);
    }
    let rejections = Arc::clone(&gateway.rejections);
    gateway.stop().await;
    let reasons: Vec<_> = rejections.rows().into_iter().map(|row| row.reason).collect();
    assert_eq!(reasons, ["RATE_LIMITED"]);
}
