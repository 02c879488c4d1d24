//! Streams that flap, fall silent, or are never read.

use std::time::Duration;

use portero_client::v1;

use super::{PATIENCE, check, one_gateway};
use crate::harness::{
    Bare, Behaviour, Cluster, Consumer, Load, Proxy, eventually, next_delivery, subscription,
};

/// How long a peer that says nothing may count as alive, and a little more.
const SILENCE: Duration = Duration::from_secs(35);

/// F31: lanes go back and forth between streams while events are in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_that_flap_between_streams_keep_order_and_never_stall() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    for _ in 0..3 {
        cluster.add_consumer(Behaviour::Ack { after_ms: 30 }).await;
    }
    let load = Load::start(&cluster.provider(), 12, Duration::from_millis(10));
    for round in 0..12 {
        // One stays; the two others come and go, by turns gently, at once, and with a broken connection.
        let member = &mut cluster.consumers[1 + round % 2];
        match round % 3 {
            0 => assert!(member.process.stop(PATIENCE).await.success()),
            1 => member.process.kill(),
            _ => {
                member.link.sever();
                continue;
            }
        }
        member.process.launch();
    }
    let accepted = load.finish().await;
    let dead = cluster.all_concluded(&accepted, PATIENCE).await;
    assert!(dead.is_empty(), "{dead:?}");
    check(&mut cluster, accepted, dead).await;
}

/// F32: consumers' packets are lost, in both directions or in one, and nothing says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lanes_of_consumers_that_fell_silent_move_to_another() {
    let mut cluster = Cluster::start(1, |_| {}).await;
    for _ in 0..4 {
        cluster.add_consumer(Behaviour::Ack { after_ms: 0 }).await;
    }
    let load = Load::start(&cluster.provider(), 12, Duration::from_millis(20));
    eventually("all have work", PATIENCE, async || {
        let history = cluster.history();
        let has_work = |number: usize| {
            let name = cluster.consumers[number].process.name();
            history.started().filter(|(record, _)| record.consumer == name).count() > 10
        };
        (0..4).all(has_work).then_some(())
    })
    .await;
    cluster.consumers[0].link.blackhole();
    cluster.consumers[1].link.mute();
    cluster.consumers[2].link.deafen();
    let until = load.accepted() + 200;
    eventually("events come meanwhile", PATIENCE, async || (load.accepted() >= until).then_some(())).await;
    let accepted = load.finish().await;
    // While they are still unreachable.
    let dead = cluster.all_concluded(&accepted, SILENCE).await;
    assert!(dead.is_empty(), "{dead:?}");
    for member in &cluster.consumers {
        member.link.heal();
    }
    check(&mut cluster, accepted, dead).await;
}

/// S6: a consumer behind a narrow line gets what the line carries, and others do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_on_a_narrow_line_delays_no_other_and_gets_everything_in_order() {
    const EVENTS: usize = 100;
    let (site, gateway, setup) = one_gateway().await;
    let line = Proxy::start(gateway.grpc_address()).await;
    line.narrow_answers(100_000);
    let mut admin = setup.admin.clone();
    admin.create_subscription(subscription("far", |_| {})).await.expect("a subscription");
    let near = Consumer::start(&gateway).await;
    let far = Consumer::through(&line, &site, "far").await;
    near.is_connected().await;
    far.is_connected().await;
    let provider = setup.provider(&gateway);
    for event in 0..EVENTS {
        let entity = format!("entity-{}", event % 20);
        let body = serde_json::json!({
            "id": format!("evt_{event}"),
            "type": "invoice.paid",
            "padding": "x".repeat(10_000),
            "data": { "object": { "id": entity, "sequence": event / 20 } },
        });
        assert_eq!(provider.send(body.to_string().as_bytes()).await.status, 200);
    }
    near.has_acked(EVENTS, PATIENCE).await;
    assert!(far.acked() < EVENTS, "the line is narrow");
    far.has_acked(EVENTS, PATIENCE).await;
    near.check_promises();
    far.check_promises();
    near.stop().await;
    far.stop().await;
}

/// F33: one client takes as much as it is given and reads none of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_costs_bounded_memory_and_delays_no_other_stream() {
    const EVENTS: usize = 200;
    const BODY: usize = 500_000;
    /// A stream's window, its channel, what is being prepared for it, and room for what else the program does meanwhile.
    const MEMORY_MAX: u64 = 64 << 20;
    let (_site, gateway, mut setup) = one_gateway().await;
    setup.admin.create_subscription(subscription("stuck", |_| {})).await.expect("a subscription");
    let mut stuck = Bare::new(&gateway, "stuck").await;
    let greedy = v1::Flow { max_inflight_events: 10_000, max_inflight_bytes: 1 << 40 };
    let never_read = stuck.open(greedy).await;
    let consumer = Consumer::start(&gateway).await;
    consumer.is_connected().await;
    let provider = setup.provider(&gateway);
    let before = gateway.memory_bytes();
    let mut most = 0;
    for event in 0..EVENTS {
        let entity = format!("entity-{}", event % 50);
        let body = serde_json::json!({
            "id": format!("evt_{event}"),
            "type": "invoice.paid",
            "padding": "x".repeat(BODY),
            "data": { "object": { "id": entity, "sequence": event / 50 } },
        });
        assert_eq!(provider.send(body.to_string().as_bytes()).await.status, 200);
        most = most.max(gateway.memory_bytes());
    }
    consumer.has_acked(EVENTS, PATIENCE).await;
    consumer.check_promises();
    most = most.max(gateway.memory_bytes());
    let grown = most.saturating_sub(before);
    println!("memory grew by {} MiB while {} MiB were not read", grown >> 20, (EVENTS * BODY) >> 20);
    assert!(grown < MEMORY_MAX, "{} MiB for a client that reads nothing", grown >> 20);
    drop(never_read);
    consumer.stop().await;
}

/// F40: bodies at the limit, beyond it, and larger than what one client decodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_refused_at_the_edge_or_can_be_delivered_and_a_client_with_a_lower_limit_goes_on_without_it()
 {
    let (_site, gateway, mut setup) = one_gateway().await;
    setup.admin.create_subscription(subscription("small", |_| {})).await.expect("a subscription");
    let provider = setup.provider(&gateway);
    let body = |id: &str, bytes: usize| {
        let body = serde_json::json!({ "id": id, "type": "a", "data": { "object": { "id": "entity" } }, "padding": "" });
        let frame = body.to_string().len();
        body.to_string()
            .replace("\"padding\":\"\"", &format!("\"padding\":\"{}\"", "x".repeat(bytes - frame)))
    };
    for (id, bytes) in
        [("evt_39", 3_900_000), ("evt_40", 4 << 20), ("evt_41", 4_300_000), ("evt_over", (1 << 20) + 1)]
    {
        assert_eq!(provider.send(body(id, bytes).as_bytes()).await.status, 413, "{id}");
    }
    for (id, bytes) in [("evt_largest", 1 << 20), ("evt_next", 1_000)] {
        assert_eq!(provider.send(body(id, bytes).as_bytes()).await.status, 200, "{id}");
    }
    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(2, PATIENCE).await;
    assert_eq!(consumer.handled()[0].body.len(), 1 << 20, "with a client's defaults, byte for byte");

    let mut small = Bare::new(&gateway, "small").await;
    let hello = v1::Hello {
        subscription: small.subscription.clone(),
        instance_id: "small".to_owned(),
        boot_id: "1".to_owned(),
        protocol: 1,
        max_message_bytes: 64 << 10,
        ..v1::Hello::default()
    };
    let (_sender, mut stream) = small.open_with(v1::subscribe_request::Frame::Hello(hello)).await;
    let next = next_delivery(&mut stream).await.event.expect("an event");
    assert_eq!(next.event_id, "evt_next", "the stream goes on without what its client cannot decode");
    let request =
        v1::ListDeadLettersRequest { parent: "subscriptions/small".to_owned(), ..Default::default() };
    let dead = setup.admin.list_dead_letters(request).await.expect("a list").into_inner().dead_letters;
    let reasons: Vec<&str> = dead.iter().map(|letter| letter.reason_code.as_str()).collect();
    assert_eq!(reasons, ["TOO_LARGE_FOR_CLIENT"]);
    consumer.stop().await;
}
