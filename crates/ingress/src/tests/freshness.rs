//! The configuration is asked for its freshness as long as a request is under way.

use super::*;

const PAYPAL: u8 = 21;

async fn posted_half(gateway: &Gateway, event: &str) -> (TcpStream, Vec<u8>) {
    let (mut headers, body) = signed(1, &stripe_event(event), NOW);
    headers.push(("content-length".to_owned(), body.len().to_string()));
    let mut stream = gateway.connect().await;
    let (first, rest) = body.split_at(body.len() / 2);
    stream.write_all(&request(&format!("POST {}", path(1)), &headers, first)).await.expect("sent");
    // The head has been read when the source's request is counted as begun.
    while gateway.edge.requests_in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    (stream, rest.to_vec())
}

#[tokio::test]
async fn a_machine_that_was_suspended_while_a_body_came_in_answers_503() {
    let gateway = Gateway::start().await;
    let (mut stream, rest) = posted_half(&gateway, "evt_1").await;
    gateway.machine.advance(STALE_AFTER);
    stream.write_all(&rest).await.expect("sent");
    let reply = Reply::read(&mut stream).await;
    assert_eq!((reply.status, gateway.stored()), (503, vec![]), "{reply:?}");

    gateway.directory.refresh_now().await.expect("readable");
    let (mut stream, rest) = posted_half(&gateway, "evt_1").await;
    stream.write_all(&rest).await.expect("sent");
    assert_eq!(Reply::read(&mut stream).await.status, 200, "it goes on by itself");
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_that_came_in_slowly_is_judged_by_the_latest_configuration() {
    let gateway = Gateway::start().await;
    for (expected, change) in [(401, 0), (404, 1)] {
        let (mut stream, rest) = posted_half(&gateway, "evt_1").await;
        gateway.config.change(|config| match change {
            0 => config.secrets.retain(|secret| secret.source_no != SourceNo(1)),
            _ => config.sources.retain(|source| source.no != SourceNo(1)),
        });
        gateway.directory.refresh_now().await.expect("readable");
        stream.write_all(&rest).await.expect("sent");
        let reply = Reply::read(&mut stream).await;
        assert_eq!((reply.status, gateway.stored()), (expected, vec![]), "{reply:?}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_machine_that_was_suspended_before_the_commit_answers_503() {
    let gateway = Gateway::start().await;
    let sample = fetching::sample("paypal", "plain");
    let webhook = |source: &mut portero_store::Source| {
        source.settings.insert("webhook_id".to_owned(), "1JE4291016473214C".to_owned());
    };
    gateway.add(PAYPAL, "paypal", None, webhook).await;
    gateway.fetch.answer(&sample.certificate_url, Ok(&sample.certificate));
    gateway.fetch.shut();
    let (reply, ()) = tokio::join!(gateway.post(PAYPAL, &sample.headers, &sample.body), async {
        gateway.fetch.until_in_flight(1).await;
        gateway.machine.advance(STALE_AFTER);
        gateway.fetch.open(1);
    });
    assert_eq!((reply.status, gateway.stored()), (503, vec![]), "{reply:?}");

    gateway.directory.refresh_now().await.expect("readable");
    gateway.fetch.open(1);
    let reply = gateway.post(PAYPAL, &sample.headers, &sample.body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    gateway.stop().await;
}
