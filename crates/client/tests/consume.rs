//! A consumer with a handler, against a gateway on a real socket.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portero_client::{
    CancellationToken, Client, ClientConfig, Delivery, Error, ErrorKind, Observer, Outcome, SubscribeOptions,
    Token, v1,
};
use portero_proto::v1::{subscribe_request, subscribe_response};
use support::{Gateway, patient};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

struct Consumer {
    shutdown: CancellationToken,
    running: JoinHandle<Result<(), Error>>,
}

impl Consumer {
    async fn start<H, F>(gateway: &Gateway, change: impl FnOnce(&mut SubscribeOptions), handler: H) -> Self
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut config = ClientConfig::new(&gateway.endpoint);
        config.token = Token::fixed("let-me-in");
        config.instance_id = Some("pod-1".to_owned());
        let client = Client::connect(config).await.expect("a good configuration");
        let shutdown = CancellationToken::new();
        let mut options = SubscribeOptions { shutdown: shutdown.clone(), ..SubscribeOptions::default() };
        change(&mut options);
        let running = tokio::spawn(client.subscribe("billing", options).run(handler));
        Self { shutdown, running }
    }

    async fn ended(self) -> Result<(), Error> {
        patient(self.running).await.expect("no panic")
    }
}

fn defaults(_: &mut SubscribeOptions) {}

/// A handler that tells each call, and acks when it is let.
fn gated() -> (mpsc::UnboundedReceiver<Delivery>, Arc<Semaphore>, impl Fn(Delivery) -> AckLater + Send + Sync)
{
    let (calls, receiver) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let inner = Arc::clone(&gate);
    let handler = move |delivery: Delivery| {
        calls.send(delivery).expect("the test listens");
        let gate = Arc::clone(&inner);
        let work: AckLater = Box::pin(async move {
            gate.acquire().await.expect("open").forget();
            Outcome::Ack
        });
        work
    };
    (receiver, gate, handler)
}

/// Tells how many deliveries went on after each reconnect, and how many did not.
struct Resumptions(mpsc::UnboundedSender<(usize, usize)>);

impl Observer for Resumptions {
    fn resumed(&self, kept: usize, stopped: usize) {
        self.0.send((kept, stopped)).expect("the test listens");
    }
}

type AckLater = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>;

#[tokio::test]
async fn the_hello_introduces_the_consumer_and_the_call_carries_the_token() {
    let mut gateway = Gateway::start().await;
    let change = |options: &mut SubscribeOptions| options.max_inflight_events = 50;
    let _consumer = Consumer::start(&gateway, change, |_| async { Outcome::Ack }).await;
    let (stream, hello) = gateway.stream().await;
    assert_eq!(stream.authorization.as_deref(), Some("Bearer let-me-in"));
    assert_eq!(hello.subscription, "subscriptions/billing");
    assert_eq!(hello.instance_id, "pod-1");
    assert_eq!(hello.protocol, 1);
    assert_eq!(hello.max_message_bytes, 4 << 20);
    assert_eq!(hello.flow.map(|flow| flow.max_inflight_events), Some(50));
    assert!(!hello.boot_id.is_empty());
}

#[tokio::test]
async fn outcomes_given_together_travel_together() {
    let mut gateway = Gateway::start().await;
    let _consumer = Consumer::start(&gateway, defaults, |_| async { Outcome::Ack }).await;
    let (mut stream, _) = gateway.stream().await;
    let names: Vec<String> = (0..60).map(|n| format!("t{n}")).collect();
    let events: Vec<_> = names.iter().zip(0..).map(|(name, n)| (name.as_str(), n, name.as_str())).collect();
    stream.deliver(&events);
    let mut frames = 0;
    let mut items = 0;
    while items < 60 {
        items += stream.settle().await.items.len();
        frames += 1;
    }
    assert!(frames <= 20, "{frames} frames for 60 outcomes");
}

#[tokio::test]
async fn every_outcome_reaches_the_gateway_with_its_reason() {
    let mut gateway = Gateway::start().await;
    let _consumer = Consumer::start(&gateway, defaults, |delivery| async move {
        match delivery.receipt_id() {
            "rcpt_1" => Outcome::Ack,
            "rcpt_2" => Outcome::retry_after(Duration::from_secs(7), "DB", "away"),
            "rcpt_3" => Outcome::Release,
            "rcpt_4" => Outcome::reject("BAD", "no such order"),
            _ => Outcome::defer("EARLY", "no payment yet"),
        }
    })
    .await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a"), ("2", 2, "b"), ("3", 3, "c"), ("4", 4, "d"), ("5", 5, "e")]);
    let mut items = Vec::new();
    while items.len() < 5 {
        items.extend(stream.settle().await.items);
    }
    items.sort_by(|a, b| a.token.cmp(&b.token));
    let outcomes: Vec<_> = items.iter().map(v1::Settlement::outcome).collect();
    let expected =
        [v1::Outcome::Ack, v1::Outcome::Retry, v1::Outcome::Release, v1::Outcome::Reject, v1::Outcome::Defer];
    assert_eq!(outcomes, expected);
    assert_eq!(items[1].delay.map(|delay| delay.seconds), Some(7));
    assert_eq!((items[3].reason_code.as_str(), items[3].reason_text.as_str()), ("BAD", "no such order"));
}

#[tokio::test]
async fn entities_run_side_by_side_up_to_the_concurrency() {
    let mut gateway = Gateway::start().await;
    let (mut calls, gate, handler) = gated();
    let _consumer = Consumer::start(&gateway, |options| options.concurrency = 2, handler).await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a"), ("2", 2, "b"), ("3", 3, "c")]);
    patient(calls.recv()).await.expect("the first");
    patient(calls.recv()).await.expect("the second");
    assert!(calls.try_recv().is_err(), "a third ran beyond the concurrency");
    gate.add_permits(1);
    patient(calls.recv()).await.expect("the third");
    gate.add_permits(2);
    stream.outcomes(3).await;
}

#[tokio::test]
async fn a_panicking_handler_gives_a_retry_and_harms_nobody_else() {
    let mut gateway = Gateway::start().await;
    let _consumer = Consumer::start(&gateway, defaults, |delivery| async move {
        assert_ne!(delivery.receipt_id(), "rcpt_1", "poison");
        Outcome::Ack
    })
    .await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a")]);
    let settle = stream.settle().await;
    assert_eq!(settle.items[0].outcome(), v1::Outcome::Retry);
    assert_eq!(settle.items[0].reason_code, "HANDLER_PANICKED");
    stream.deliver(&[("2", 2, "b")]);
    assert_eq!(stream.settle().await.items[0].outcome(), v1::Outcome::Ack);
}

#[tokio::test]
async fn work_finished_while_the_connection_is_cut_is_settled_by_unary_call_and_not_done_again() {
    let mut gateway = Gateway::start().await;
    let (mut calls, gate, handler) = gated();
    let _consumer = Consumer::start(&gateway, defaults, handler).await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("old", 1, "a")]);
    patient(calls.recv()).await.expect("a call");
    gateway.cut();
    while stream.frame().await.is_some() {}
    let (mut stream, _) = gateway.stream().await;
    // The gateway does not know that the event is being worked on, and offers it again.
    stream.deliver(&[("new", 1, "a")]);
    stream.deliver(&[("other", 2, "b")]);
    assert_eq!(patient(calls.recv()).await.expect("another entity").receipt_id(), "rcpt_2");
    gate.add_permits(2);
    let mut outcomes = stream.outcomes(2).await;
    outcomes.sort();
    assert_eq!(outcomes[0].0, "new");
    assert_eq!(outcomes[1].0, "other");
    assert!(calls.try_recv().is_err(), "the event was worked on twice");
    patient(async {
        while gateway.settled() != [("old".into(), v1::Outcome::Ack)] {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// F32 on the client's side: a stream that is cut while a handler runs costs neither a second run nor the first one's work.
#[tokio::test]
async fn a_handler_whose_connection_is_cut_runs_on_and_its_outcome_goes_to_the_next_stream() {
    let mut gateway = Gateway::start().await;
    let (mut calls, gate, handler) = gated();
    let (resumptions, mut resumed) = mpsc::unbounded_channel();
    let change = |options: &mut SubscribeOptions| {
        options.concurrency = 1;
        options.observer = Arc::new(Resumptions(resumptions));
    };
    let _consumer = Consumer::start(&gateway, change, handler).await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a"), ("2", 2, "b")]);
    let running = patient(calls.recv()).await.expect("a call");
    gateway.cut();
    while stream.frame().await.is_some() {}
    let (mut stream, hello) = gateway.resuming_stream().await;
    assert_eq!(hello.unsettled_tokens.len(), 2, "the one that runs, and the one that waits for its turn");
    assert_eq!(patient(resumed.recv()).await, Some((2, 0)));
    stream.deliver(&[("3", 3, "c")]);
    assert!(!running.revoked().is_cancelled());
    gate.add_permits(3);
    let mut outcomes = stream.outcomes(3).await;
    outcomes.sort();
    assert_eq!(outcomes, ["1", "2", "3"].map(|token| (token.into(), v1::Outcome::Ack)));
    assert_eq!(patient(calls.recv()).await.expect("a call").receipt_id(), "rcpt_2");
    assert_eq!(patient(calls.recv()).await.expect("a call").receipt_id(), "rcpt_3");
    assert!(calls.try_recv().is_err(), "an event was worked on twice");
    assert!(gateway.settled().is_empty(), "nothing had to be settled beside the stream");
}

#[tokio::test]
async fn a_handler_whose_work_is_not_resumed_is_told_to_stop_and_its_event_runs_after_it() {
    let mut gateway = Gateway::start().await;
    let (started, mut begun) = mpsc::unbounded_channel();
    let _consumer = Consumer::start(&gateway, defaults, move |delivery| {
        let started = started.clone();
        async move {
            started.send(delivery.token().clone()).expect("the test listens");
            if delivery.token() == "old" {
                delivery.revoked().cancelled().await;
                return Outcome::Release;
            }
            Outcome::Ack
        }
    })
    .await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("old", 1, "a")]);
    assert_eq!(patient(begun.recv()).await.expect("a call"), "old");
    gateway.cut();
    while stream.frame().await.is_some() {}
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("new", 1, "a")]);
    assert_eq!(patient(begun.recv()).await.expect("a second call"), "new");
    assert_eq!(stream.outcomes(1).await, [("new".into(), v1::Outcome::Ack)]);
}

#[tokio::test]
async fn a_later_event_of_an_entity_waits_for_the_handler_of_an_older_stream() {
    let mut gateway = Gateway::start().await;
    let (mut calls, gate, handler) = gated();
    let _consumer = Consumer::start(&gateway, defaults, handler).await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a")]);
    patient(calls.recv()).await.expect("a call");
    gateway.cut();
    while stream.frame().await.is_some() {}
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("2", 2, "a")]);
    stream.deliver(&[("3", 3, "b")]);
    assert_eq!(patient(calls.recv()).await.expect("another entity").receipt_id(), "rcpt_3");
    assert!(calls.try_recv().is_err(), "two events of one entity ran at a time");
    gate.add_permits(3);
    assert_eq!(patient(calls.recv()).await.expect("the later event").receipt_id(), "rcpt_2");
    stream.outcomes(2).await;
}

#[tokio::test]
async fn a_revoked_delivery_tells_its_handler() {
    let mut gateway = Gateway::start().await;
    let (started, mut begun) = mpsc::unbounded_channel();
    let _consumer = Consumer::start(&gateway, defaults, move |delivery| {
        let started = started.clone();
        async move {
            started.send(()).expect("the test listens");
            delivery.revoked().cancelled().await;
            Outcome::Release
        }
    })
    .await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a")]);
    patient(begun.recv()).await.expect("a call");
    let tokens = vec!["1".into()];
    stream.send(subscribe_response::Frame::Revoke(v1::Revoke { tokens, reason: "held".to_owned() }));
    assert_eq!(stream.outcomes(1).await, [("1".into(), v1::Outcome::Release)]);
}

#[tokio::test]
async fn after_a_drain_the_consumer_finishes_and_comes_back() {
    let mut gateway = Gateway::start().await;
    let (mut calls, gate, handler) = gated();
    let _consumer = Consumer::start(&gateway, defaults, handler).await;
    let (mut stream, first) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a")]);
    patient(calls.recv()).await.expect("a call");
    stream.send(subscribe_response::Frame::Drain(v1::Drain::default()));
    gate.add_permits(1);
    assert_eq!(stream.outcomes(1).await, [("1".into(), v1::Outcome::Ack)]);
    assert!(stream.frame().await.is_none(), "the client ends its half");
    drop(stream);
    let (_stream, second) = gateway.stream().await;
    assert_eq!(first.boot_id, second.boot_id);
    assert!(gateway.settled().is_empty());
}

#[tokio::test]
async fn a_shutdown_lets_handlers_finish_and_then_ends() {
    let mut gateway = Gateway::start().await;
    let (mut calls, gate, handler) = gated();
    let consumer = Consumer::start(&gateway, |options| options.concurrency = 1, handler).await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a"), ("2", 2, "b")]);
    patient(calls.recv()).await.expect("a call");
    consumer.shutdown.cancel();
    assert!(matches!(stream.frame().await, Some(subscribe_request::Frame::Goodbye(_))));
    assert_eq!(stream.outcomes(1).await, [("2".into(), v1::Outcome::Release)]);
    gate.add_permits(1);
    assert_eq!(stream.outcomes(1).await, [("1".into(), v1::Outcome::Ack)]);
    assert!(stream.frame().await.is_none(), "the client ends its half");
    drop(stream);
    consumer.ended().await.expect("a clean end");
}

#[tokio::test]
async fn a_handler_that_outlasts_the_shutdown_is_dropped_and_its_event_released() {
    let mut gateway = Gateway::start().await;
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&dropped);
    let (started, mut begun) = mpsc::unbounded_channel();
    let change = |options: &mut SubscribeOptions| options.shutdown_deadline = Duration::ZERO;
    let consumer = Consumer::start(&gateway, change, move |_| {
        let (started, guard) = (started.clone(), CountDrop(Arc::clone(&counter)));
        async move {
            started.send(()).expect("the test listens");
            let _guard = guard;
            std::future::pending().await
        }
    })
    .await;
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a")]);
    patient(begun.recv()).await.expect("a call");
    consumer.shutdown.cancel();
    assert!(matches!(stream.frame().await, Some(subscribe_request::Frame::Goodbye(_))));
    assert_eq!(stream.outcomes(1).await, [("1".into(), v1::Outcome::Release)]);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    drop(stream);
    consumer.ended().await.expect("a clean end");
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_refusal_that_cannot_be_mended_ends_the_run_with_its_kind() {
    for (status, kind) in [
        (tonic::Status::not_found("no such subscription"), ErrorKind::NotFound),
        (tonic::Status::permission_denied("not yours"), ErrorKind::PermissionDenied),
        (tonic::Status::invalid_argument("instance_id"), ErrorKind::Invalid),
        (tonic::Status::unauthenticated("expired"), ErrorKind::Unauthenticated),
    ] {
        let mut gateway = Gateway::start().await;
        let consumer = Consumer::start(&gateway, defaults, |_| async { Outcome::Ack }).await;
        gateway.raw_stream().await.fail(status);
        assert_eq!(consumer.ended().await.expect_err("refused").kind(), kind);
    }
}

#[tokio::test]
async fn an_unavailable_gateway_is_tried_again() {
    let mut gateway = Gateway::start().await;
    let _consumer = Consumer::start(&gateway, defaults, |_| async { Outcome::Ack }).await;
    gateway.raw_stream().await.fail(tonic::Status::unavailable("starting"));
    gateway.raw_stream().await.fail(tonic::Status::aborted("generation"));
    let (mut stream, _) = gateway.stream().await;
    stream.deliver(&[("1", 1, "a")]);
    assert_eq!(stream.outcomes(1).await, [("1".into(), v1::Outcome::Ack)]);
}

#[tokio::test]
async fn a_bad_name_or_option_is_refused_before_anything_is_sent() {
    let client = Client::connect(ClientConfig::new("http://127.0.0.1:1")).await.expect("good");
    let named = |name: &str| client.subscribe(name, SubscribeOptions::default()).open();
    assert!(matches!(named("Not A Name"), Err(Error::Config { field: "subscription", .. })));
    let options = SubscribeOptions { concurrency: 0, ..SubscribeOptions::default() };
    let refused = client.subscribe("billing", options).open();
    assert!(matches!(refused, Err(Error::Config { field: "concurrency", .. })));
}
