//! Transfer: chunks, continuation, versions, malformed and hostile messages, closing.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;

#[tokio::test]
async fn chunks_are_joined_and_a_trailing_slash_is_no_redirect() {
    let gateway = Gateway::start().await;
    let (mut headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    headers.push(("transfer-encoding".to_owned(), "chunked".to_owned()));
    let mut chunked = Vec::new();
    for chunk in body.chunks(7) {
        chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nx-trailer: 1\r\n\r\n");
    let reply = gateway.raw(&request(&format!("POST {}/", path(1)), &headers, &chunked)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(gateway.store.with(|state| opened(&state.events[0]).body), body, "the bytes as sent");
    gateway.stop().await;
}

#[tokio::test]
async fn a_sender_that_waits_for_100_gets_it_and_then_its_answer() {
    let gateway = Gateway::start().await;
    let (mut headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    headers.push(("expect".to_owned(), "100-continue".to_owned()));
    headers.push(("content-length".to_owned(), body.len().to_string()));
    let mut stream = gateway.connect().await;
    stream.write_all(&request(&format!("POST {}", path(1)), &headers, b"")).await.expect("sent");
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.expect("an interim answer");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&body).await.expect("sent");
    assert_eq!(Reply::read(&mut stream).await.status, 200);

    // One that does not wait is served as well.
    let impatient = request(&format!("POST {}", path(1)), &headers, &body);
    let reply = gateway.raw(&impatient).await;
    assert!(reply.status == 100 && reply.body.contains(" 200 "), "{reply:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_sender_that_waits_with_too_large_a_body_gets_413_without_sending_it() {
    let gateway = Gateway::start().await;
    let headers = pairs(&[("expect", "100-continue"), ("content-length", "2097152")]);
    let reply = gateway.raw(&request(&format!("POST {}", path(1)), &headers, b"")).await;
    assert_eq!(reply.status, 413, "{reply:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_served() {
    let gateway = Gateway::start().await;
    let stream = TokioIo::new(gateway.connect().await);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    for status in ["accepted", "duplicate"] {
        let (headers, body) = signed(1, &stripe_event("evt_1"), NOW);
        let mut request = http::Request::post(format!("http://localhost{}", path(1)));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).expect("valid");
        let response = client.send_request(request).await.expect("answered");
        assert!(response.headers().contains_key("x-request-id"));
        let body = response.into_body().collect().await.expect("read").to_bytes();
        assert!(String::from_utf8_lossy(&body).contains(status));
    }
    drop(client);
    let _ = connection.await.expect("no panic");
    gateway.stop().await;
}

#[tokio::test]
async fn malformed_and_smuggling_messages_are_never_accepted_and_do_no_harm() {
    let gateway = Gateway::start().await;
    let (headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    let signature: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let (path, body) = (path(1), String::from_utf8(body).expect("text"));
    let length = body.len();
    let messages = [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all, surely".to_owned(),
        format!("POST {path} HTTP/9.9\r\n\r\n"),
        format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n"),
        format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\n"),
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ncontent-length: {length}\r\n{signature}\r\n{body}"
        ),
        format!("POST {path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n{signature}\r\n{body}"),
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n{signature}\r\nzz\r\n{body}\r\n0\r\n\r\n"
        ),
        format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n{signature}\r\nffffffffffffffffff\r\n"
        ),
        format!("POST {path} HTTP/1.1\r\nhost : a\r\ncontent-length: {length}\r\n{signature}\r\n{body}"),
        format!("POST {path} HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "a".repeat(200_000)),
        format!("POST {path} HTTP/1.1\r\nhost: a\r\n{}\r\n", "a: b\r\n".repeat(5_000)),
        format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n{signature}\r\n{body}", length + 1),
    ];
    for message in messages {
        let mut stream = gateway.connect().await;
        // The server may well close before it has read everything.
        let _ = stream.write_all(message.as_bytes()).await;
        let _ = stream.shutdown().await;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        assert!(!start.starts_with("HTTP/1.1 2"), "{:.90}: {start}", message);
    }
    assert!(gateway.stored().is_empty());
    assert_eq!(gateway.deliver(1, body.as_bytes()).await.status, 200, "still serving");
    gateway.stop().await;
}

#[tokio::test]
async fn both_lengths_at_once_are_one_message_at_most() {
    let gateway = Gateway::start().await;
    let inner = format!("GET {} HTTP/1.1\r\nhost: a\r\n\r\n", path(1));
    let message = format!(
        "POST {} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}",
        path(1),
        5 + inner.len()
    );
    let mut stream = gateway.connect().await;
    stream.write_all(message.as_bytes()).await.expect("sent");
    stream.shutdown().await.expect("open");
    let reply = Reply::read(&mut stream).await;
    assert_eq!(reply.status, 401, "the chunks count, as RFC 9112 section 6.3 says: {reply:?}");
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(!reply.body.contains("HTTP/1.1"), "what follows is not taken for a request: {reply:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn shutting_down_lets_a_request_finish_and_closes_idle_connections() {
    let store = FakeStore::gated(0);
    let gateway = Gateway::with(EdgeConfig::default(), Arc::clone(&store), Arc::new(Disabled)).await;
    let mut idle = gateway.connect().await;
    idle.write_all(format!("HEAD {} HTTP/1.1\r\nhost: a\r\n\r\n", path(1)).as_bytes()).await.expect("sent");
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.expect("answered");

    let (headers, body) = signed(1, &stripe_event("evt_1"), NOW);
    let mut busy = gateway.connect().await;
    busy.write_all(&post(&path(1), &headers, &body)).await.expect("sent");
    store.until_in_flight(1).await;
    gateway.shutdown.cancel();
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.expect("closed");
    assert!(!gateway.serving.is_finished(), "it waits for the commit");
    store.gate.add_permits(1);
    assert_eq!(Reply::read(&mut busy).await.status, 200);
    let address = gateway.address;
    gateway.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}
