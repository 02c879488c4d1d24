//! What becomes of unsettled deliveries between one stream and the next.

use futures::FutureExt as _;

use super::*;

/// F32 on the client's side, S2: what a stream had unsettled is named to the next one and goes on there.
#[tokio::test(start_paused = true)]
async fn unsettled_deliveries_go_on_on_the_next_stream() {
    let (mut subscription, mut gateway) = start(false, 0);
    let stream = gateway.welcomed().await;
    (1..=3).for_each(|n| stream.deliver(n));
    let one = next(&mut subscription).await;
    drop(stream);
    let mut stream = gateway
        .asked(|unsettled| {
            assert_eq!(unsettled, ["token-1", "token-2", "token-3"]);
            unsettled.to_vec()
        })
        .await;
    assert_eq!(next(&mut subscription).await.receipt_id(), "rcpt_2", "what was not handed out still is");
    let settling = subscription.settle(&one, Outcome::Ack).await;
    let settle = stream.settle().await;
    assert_eq!(settle.items[0].token, "token-1", "its outcome goes to the stream that resumed it");
    stream.answer(&settle, v1::SettlementStatus::Durable);
    assert_eq!(settling.await, Ok(SettlementStatus::Durable));
    assert!(!one.revoked().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_resumed_is_stopped_and_never_handed_out_and_its_ack_goes_by_unary_call() {
    let (mut subscription, mut gateway) = start(false, 0);
    let stream = gateway.welcomed().await;
    (1..=3).for_each(|n| stream.deliver(n));
    let one = next(&mut subscription).await;
    drop(stream);
    let _stream = gateway.asked(|_| vec![Bytes::from_static(b"token-3")]).await;
    one.revoked().cancelled().await;
    assert_eq!(next(&mut subscription).await.receipt_id(), "rcpt_3");
    let settling = subscription.settle(&one, Outcome::Ack).await;
    let Some(Arrival::Settle(request, reply)) = gateway.arrivals.recv().await else {
        panic!("a token that was not resumed goes by unary call");
    };
    let results = results(&request.items, v1::SettlementStatus::DurableLate);
    reply.send(Ok(v1::SettleResponse { results })).expect("the client waits");
    assert_eq!(settling.await, Ok(SettlementStatus::DurableLate));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handed_out_while_there_is_no_stream() {
    let (mut subscription, mut gateway) = start(false, 0);
    let stream = gateway.welcomed().await;
    (1..=2).for_each(|n| stream.deliver(n));
    next(&mut subscription).await;
    drop(stream);
    let stream = gateway.stream().await;
    assert!(subscription.next().now_or_never().is_none(), "others may be working on it by now");
    drop(stream);
    let _stream = gateway.asked(<[Bytes]>::to_vec).await;
    assert_eq!(next(&mut subscription).await.receipt_id(), "rcpt_2");
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_between_hello_and_welcome_is_settled_all_the_same() {
    let (mut subscription, mut gateway) = start(false, 0);
    let stream = gateway.welcomed().await;
    stream.deliver(1);
    let delivery = next(&mut subscription).await;
    drop(stream);
    let mut stream = gateway.stream().await;
    let Some(subscribe_request::Frame::Hello(hello)) = stream.frame().await else { panic!("no hello") };
    let settling = subscription.settle(&delivery, Outcome::Ack).await;
    tokio::task::yield_now().await;
    stream.send(subscribe_response::Frame::Welcome(v1::Welcome {
        resumed_tokens: hello.unsettled_tokens,
        ..v1::Welcome::default()
    }));
    let Some(Arrival::Settle(request, reply)) = gateway.arrivals.recv().await else { panic!("no settle") };
    let results = results(&request.items, v1::SettlementStatus::Durable);
    reply.send(Ok(v1::SettleResponse { results })).expect("the client waits");
    assert_eq!(settling.await, Ok(SettlementStatus::Durable));
}

fn drain(time_left: Duration) -> subscribe_response::Frame {
    let second = Some(to_duration(Duration::from_secs(1)));
    subscribe_response::Frame::Drain(v1::Drain {
        reconnect_after_min: second,
        reconnect_after_max: second,
        time_left: Some(to_duration(time_left)),
        ..v1::Drain::default()
    })
}

/// F29, S7: work that outlasts a gateway's drain is handed to the next stream before the gateway takes it back.
#[tokio::test(start_paused = true)]
async fn work_that_outlasts_a_drain_is_resumed_before_the_old_stream_ends() {
    let (mut subscription, mut gateway) = start(false, 0);
    let mut old = gateway.welcomed().await;
    old.deliver(1);
    let delivery = next(&mut subscription).await;
    old.send(drain(Duration::from_secs(20)));
    let began = Instant::now();
    let mut new = gateway.stream().await;
    assert_eq!(began.elapsed().as_secs(), 16, "there was time to finish");
    while let Some(frame) = old.frame().now_or_never() {
        assert!(matches!(frame, Some(subscribe_request::Frame::Heartbeat(_))), "the old stream still stands");
    }
    let Some(subscribe_request::Frame::Hello(hello)) = new.frame().await else { panic!("no hello") };
    assert_eq!(hello.unsettled_tokens, ["token-1"]);
    new.send(subscribe_response::Frame::Welcome(v1::Welcome {
        resumed_tokens: hello.unsettled_tokens,
        ..v1::Welcome::default()
    }));
    while old.frame().await.is_some() {}
    subscription.settle(&delivery, Outcome::Ack).await;
    assert_eq!(new.settle().await.items[0].token, "token-1");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_its_gateway_ends_while_draining_is_followed_within_the_range_of_the_drain() {
    let (_subscription, mut gateway) = start(false, 0);
    let stream = gateway.welcomed().await;
    stream.send(subscribe_response::Frame::Drain(v1::Drain {
        reconnect_after_min: Some(to_duration(Duration::from_secs(5))),
        reconnect_after_max: Some(to_duration(Duration::from_secs(6))),
        ..v1::Drain::default()
    }));
    let _ = stream.to_client.send(Err(tonic::Status::unavailable("this gateway is shutting down")));
    let began = Instant::now();
    gateway.welcomed().await;
    assert!((5..=6).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}
