//! Sizes, counts and times.

use super::*;

fn small() -> EdgeConfig {
    EdgeConfig { body_bytes_max: 1_000, ..EdgeConfig::default() }
}

#[tokio::test]
async fn a_body_over_the_limit_gets_413_whether_announced_or_not() {
    let gateway = Gateway::bounded(small()).await;
    let large = vec![b'x'; 200_000];
    let reply = gateway.post(1, &[], &large).await;
    assert_eq!(reply.status, 413, "announced: {reply:?}");
    let mut chunked = format!("{:x}\r\n", large.len()).into_bytes();
    chunked.extend_from_slice(&large);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    let headers = pairs(&[("transfer-encoding", "chunked")]);
    let reply = gateway.raw(&request(&format!("POST {}", path(1)), &headers, &chunked)).await;
    assert_eq!(reply.status, 413, "in chunks: {reply:?}");
    assert_eq!(reply.json()["error"], "too_large");
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_at_the_limit_is_taken() {
    let gateway = Gateway::bounded(small()).await;
    let mut body = stripe_event("evt_1");
    body.resize(1_000, b' ');
    assert_eq!(gateway.deliver(1, &body).await.status, 200);
    body.push(b' ');
    assert_eq!(gateway.deliver(1, &body).await.status, 413);
    gateway.stop().await;
}

#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let config = EdgeConfig { header_timeout: Duration::from_millis(50), ..EdgeConfig::default() };
    let gateway = Gateway::bounded(config).await;
    for begin in ["", "P", "POST /in", "PRI * HT", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = gateway.connect().await;
        stream.write_all(begin.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
        assert!(closed.is_ok(), "{begin:?} is cut off");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_slow_body_gets_408() {
    let config = EdgeConfig { body_timeout: Duration::from_millis(50), ..EdgeConfig::default() };
    let gateway = Gateway::bounded(config).await;
    let headers = pairs(&[("content-length", "100")]);
    let reply = gateway.raw(&request(&format!("POST {}", path(1)), &headers, b"{")).await;
    assert_eq!(reply.status, 408, "{reply:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn too_many_bytes_in_flight_are_shed() {
    let config = EdgeConfig { body_bytes_in_flight_max: 100, ..EdgeConfig::default() };
    let gateway = Gateway::bounded(config).await;
    let reply = gateway.post(1, &[], &[b'x'; 101]).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert_eq!(gateway.post(1, &[], &[b'x'; 100]).await.status, 401, "the share was given back");
    gateway.stop().await;
}

#[tokio::test]
async fn too_many_requests_are_shed() {
    let config = EdgeConfig { requests_max: 1, ..EdgeConfig::default() };
    let store = FakeStore::gated(0);
    let gateway = Gateway::with(config, Arc::clone(&store), Arc::new(Disabled)).await;
    let (headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    let mut first = gateway.connect().await;
    first.write_all(&post(&path(1), &headers, &body)).await.expect("sent");
    store.until_in_flight(1).await;
    assert_eq!(gateway.deliver(1, &stripe_event("evt_2")).await.status, 503);
    store.gate.add_permits(1);
    assert_eq!(Reply::read(&mut first).await.status, 200);
    gateway.stop().await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let config = EdgeConfig { connections_max: 1, ..EdgeConfig::default() };
    let gateway = Gateway::bounded(config).await;
    let mut first = gateway.connect().await;
    first.write_all(format!("HEAD {} HTTP/1.1\r\nhost: a\r\n\r\n", path(1)).as_bytes()).await.expect("sent");
    let mut start = [0; 12];
    first.read_exact(&mut start).await.expect("answered");
    let mut second = gateway.connect().await;
    let reply = Reply::read(&mut second).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    assert!(reply.header("x-request-id").is_some());
    drop(first);
    gateway.stop().await;
}

#[tokio::test]
async fn a_store_that_hangs_gets_503_and_the_event_is_stored_all_the_same() {
    let config = EdgeConfig { deadline: Duration::from_millis(50), ..EdgeConfig::default() };
    let store = FakeStore::gated(0);
    let gateway = Gateway::with(config, Arc::clone(&store), Arc::new(Disabled)).await;
    let reply = gateway.deliver(1, &stripe_event("evt_1")).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (503, Some("deadline_exceeded")));
    store.gate.add_permits(10);
    let accept = gateway.accept.clone();
    gateway.stop().await;
    accept.drain().await;
    assert_eq!(store.with(|state| state.log.clone()), ["evt_1"]);
}
