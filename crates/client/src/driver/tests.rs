//! The driver against a scripted gateway, on virtual time.

use std::collections::VecDeque;
use std::sync::Mutex;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use portero_proto::v1::{subscribe_request, subscribe_response};
use rand::SeedableRng as _;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::link::Frames;
use crate::observer::Silent;
use crate::outcome::{Outcome, to_duration};
use crate::subscription::{Settler, Subscription};

/// What reaches the gateway, in order of arrival.
enum Arrival {
    Stream(Stream),
    Settle(v1::SettleRequest, oneshot::Sender<Result<v1::SettleResponse, Error>>),
}

struct Stream {
    from_client: mpsc::Receiver<v1::SubscribeRequest>,
    to_client: mpsc::UnboundedSender<Result<v1::SubscribeResponse, tonic::Status>>,
}

struct Gateway {
    arrivals: mpsc::UnboundedReceiver<Arrival>,
}

#[derive(Clone)]
struct Line {
    arrivals: mpsc::UnboundedSender<Arrival>,
    can_renew: bool,
    /// Connection attempts that fail first.
    failures: Arc<Mutex<u32>>,
    /// Why the attempts fail that come next, in turn.
    refusals: Arc<Mutex<VecDeque<Error>>>,
}

impl Connect for Line {
    fn connect(&self) -> BoxFuture<'static, Result<Box<dyn Link>, Error>> {
        let mut failures = self.failures.lock().expect("not poisoned");
        if *failures > 0 {
            *failures -= 1;
            return async { Err(tonic::Status::unavailable("away").into()) }.boxed();
        }
        if let Some(error) = self.refusals.lock().expect("not poisoned").pop_front() {
            return async { Err(error) }.boxed();
        }
        let line = self.clone();
        async move { Ok(Box::new(line) as Box<dyn Link>) }.boxed()
    }

    fn can_renew(&self) -> bool {
        self.can_renew
    }
}

impl Link for Line {
    fn subscribe(
        &self,
        from_client: mpsc::Receiver<v1::SubscribeRequest>,
    ) -> BoxFuture<'static, Result<Frames, Error>> {
        let (to_client, frames) = mpsc::unbounded_channel();
        self.arrivals.send(Arrival::Stream(Stream { from_client, to_client })).expect("the gateway listens");
        async move { Ok(UnboundedReceiverStream::new(frames).boxed()) }.boxed()
    }

    fn settle(&self, request: v1::SettleRequest) -> BoxFuture<'static, Result<v1::SettleResponse, Error>> {
        let (reply, answer) = oneshot::channel();
        self.arrivals.send(Arrival::Settle(request, reply)).expect("the gateway listens");
        async move { answer.await.expect("the gateway answers") }.boxed()
    }
}

impl Gateway {
    async fn stream(&mut self) -> Stream {
        match self.arrivals.recv().await.expect("a client") {
            Arrival::Stream(stream) => stream,
            Arrival::Settle(..) => panic!("a unary settle instead of a stream"),
        }
    }

    /// A stream after its Hello and Welcome.
    async fn welcomed(&mut self) -> Stream {
        self.asked(|_| Vec::new()).await
    }

    /// A stream after its Hello and a Welcome that resumes what `resume` chooses of the unsettled tokens.
    async fn asked(&mut self, resume: impl FnOnce(&[Bytes]) -> Vec<Bytes>) -> Stream {
        let mut stream = self.stream().await;
        let Some(subscribe_request::Frame::Hello(mut hello)) = stream.frame().await else {
            panic!("no hello")
        };
        hello.unsettled_tokens.sort();
        stream.send(subscribe_response::Frame::Welcome(v1::Welcome {
            heartbeat_every: Some(to_duration(Duration::from_secs(10))),
            resumed_tokens: resume(&hello.unsettled_tokens),
            ..v1::Welcome::default()
        }));
        stream
    }
}

impl Stream {
    fn send(&self, frame: subscribe_response::Frame) {
        let _ = self.to_client.send(Ok(v1::SubscribeResponse { frame: Some(frame) }));
    }

    fn deliver(&self, n: u64) {
        let event = v1::Event {
            receipt_id: format!("rcpt_{n}"),
            ordering_key: format!("entity-{n}"),
            ..v1::Event::default()
        };
        let token = Bytes::from(format!("token-{n}"));
        let delivery = v1::Delivery { token, position: n, event: Some(event), ..v1::Delivery::default() };
        self.send(subscribe_response::Frame::Deliver(v1::Deliver { deliveries: vec![delivery] }));
    }

    fn answer(&self, settle: &v1::Settle, status: v1::SettlementStatus) {
        let results = results(&settle.items, status);
        self.send(subscribe_response::Frame::Settled(v1::Settled { frame_no: settle.frame_no, results }));
    }

    /// The next frame; `None` when the client is gone.
    async fn frame(&mut self) -> Option<subscribe_request::Frame> {
        self.from_client.recv().await.map(|request| request.frame.expect("a frame"))
    }

    /// The next Settle; heartbeats are passed over.
    async fn settle(&mut self) -> v1::Settle {
        loop {
            match self.frame().await {
                Some(subscribe_request::Frame::Settle(settle)) => return settle,
                Some(subscribe_request::Frame::Heartbeat(_)) => {}
                other => panic!("expected a settle, got {other:?}"),
            }
        }
    }
}

fn results(items: &[v1::Settlement], status: v1::SettlementStatus) -> Vec<v1::SettlementResult> {
    items
        .iter()
        .map(|item| v1::SettlementResult {
            token: item.token.clone(),
            status: status.into(),
            detail: String::new(),
        })
        .collect()
}

fn start(can_renew: bool, failures: u32) -> (Subscription, Gateway) {
    let (arrivals, receiver) = mpsc::unbounded_channel();
    let line =
        Line { arrivals, can_renew, failures: Arc::new(Mutex::new(failures)), refusals: Arc::default() };
    (start_on(line, Arc::new(Silent)), Gateway { arrivals: receiver })
}

fn start_on(line: Line, observer: Arc<dyn Observer>) -> Subscription {
    let (sender, commands) = mpsc::channel(COMMANDS_MAX);
    let queue = Queue::default();
    let settler = Settler { commands: sender.clone() };
    let driver = Driver {
        connect: Arc::new(line),
        hello: v1::Hello { subscription: "subscriptions/billing".to_owned(), ..v1::Hello::default() },
        flow: v1::Flow::default(),
        observer,
        queue: queue.clone(),
        commands,
        sender,
        rng: StdRng::seed_from_u64(1),
        batch: Batch::default(),
        late: Late::default(),
        held: Held::default(),
        backoff: Backoff::default(),
        told: Told::default(),
        stop: Stop::No,
        former: None,
    };
    let driver = Some(AbortOnDropHandle::new(tokio::spawn(driver.run())));
    Subscription { queue, settler, shutdown: CancellationToken::new(), driver }
}

async fn next(subscription: &mut Subscription) -> crate::Delivery {
    subscription.next().await.expect("no error").expect("a delivery")
}

#[tokio::test(start_paused = true)]
async fn the_client_sends_a_heartbeat_at_least_as_often_as_it_was_asked() {
    let (_subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    for _ in 0..10 {
        let before = Instant::now();
        assert!(matches!(stream.frame().await, Some(subscribe_request::Frame::Heartbeat(_))));
        assert!(before.elapsed() <= Duration::from_secs(10), "{:?}", before.elapsed());
        stream.send(subscribe_response::Frame::Heartbeat(v1::ServerHeartbeat::default()));
    }
}

/// F32 on the client's side: a gateway that fell silent is left, whatever the connection says.
#[tokio::test(start_paused = true)]
async fn twenty_five_seconds_of_silence_end_a_stream_and_another_follows() {
    let (_subscription, mut gateway) = start(false, 0);
    let mut silent = gateway.welcomed().await;
    let began = Instant::now();
    while silent.frame().await.is_some() {}
    assert_eq!(began.elapsed().as_secs(), 25);
    gateway.welcomed().await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_never_welcomes_is_left_after_twenty_five_seconds() {
    let (_subscription, mut gateway) = start(false, 0);
    let _mute = gateway.stream().await;
    let began = Instant::now();
    gateway.welcomed().await;
    assert!((25..36).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn attempts_go_on_through_an_outage_without_ever_waiting_more_than_ten_seconds() {
    let (_subscription, mut gateway) = start(false, 40);
    let began = Instant::now();
    gateway.welcomed().await;
    let spent = began.elapsed();
    assert!(spent > Duration::from_secs(60) && spent < Duration::from_secs(400), "{spent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_fixed_token_ends_the_subscription_and_a_renewable_one_is_tried_again() {
    let (mut subscription, mut gateway) = start(false, 0);
    let stream = gateway.stream().await;
    let _ = stream.to_client.send(Err(tonic::Status::unauthenticated("expired")));
    let error = subscription.next().await.expect_err("refused");
    assert_eq!(error.kind(), crate::ErrorKind::Unauthenticated);
    assert!(subscription.next().await.expect("told once").is_none());

    let (_subscription, mut gateway) = start(true, 0);
    let stream = gateway.stream().await;
    let _ = stream.to_client.send(Err(tonic::Status::unauthenticated("expired")));
    gateway.welcomed().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_not_recorded_is_sent_again_until_it_is() {
    let (mut subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    stream.deliver(1);
    let delivery = next(&mut subscription).await;
    let settling = subscription.settle(&delivery, Outcome::Ack).await;
    for _ in 0..5 {
        let settle = stream.settle().await;
        stream.answer(&settle, v1::SettlementStatus::TryAgain);
    }
    let settle = stream.settle().await;
    assert_eq!(settle.items.len(), 1);
    stream.answer(&settle, v1::SettlementStatus::Durable);
    assert_eq!(settling.await, Ok(SettlementStatus::Durable));
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_a_broken_stream_are_settled_before_the_next_stream_opens() {
    let (mut subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    (1..=3).for_each(|n| stream.deliver(n));
    let one = next(&mut subscription).await;
    let two = next(&mut subscription).await;
    let three = next(&mut subscription).await;
    // Sent but unanswered, finished while there is no stream, and finished on the next stream.
    let first = subscription.settle(&one, Outcome::Ack).await;
    stream.settle().await;
    drop(stream);
    let second = subscription.settle(&two, Outcome::Ack).await;
    let Some(Arrival::Settle(request, reply)) = gateway.arrivals.recv().await else {
        panic!("the stream came before the settle");
    };
    assert_eq!(request.subscription, "subscriptions/billing");
    assert_eq!(request.items.len(), 2);
    let results = results(&request.items, v1::SettlementStatus::DurableLate);
    reply.send(Ok(v1::SettleResponse { results })).expect("the client waits");
    assert_eq!(first.await, Ok(SettlementStatus::DurableLate));
    assert_eq!(second.await, Ok(SettlementStatus::DurableLate));

    let _stream = gateway.welcomed().await;
    let third = subscription.settle(&three, Outcome::Ack).await;
    let Some(Arrival::Settle(request, reply)) = gateway.arrivals.recv().await else {
        panic!("a token of an older stream goes by unary call");
    };
    let results = self::results(&request.items, v1::SettlementStatus::Stale);
    reply.send(Ok(v1::SettleResponse { results })).expect("the client waits");
    assert_eq!(third.await, Ok(SettlementStatus::Stale));
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_followed_within_its_range_once_the_work_is_settled() {
    let (mut subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    stream.deliver(1);
    let delivery = next(&mut subscription).await;
    stream.deliver(2);
    stream.send(subscribe_response::Frame::Drain(v1::Drain {
        reconnect_after_min: Some(to_duration(Duration::from_secs(3))),
        reconnect_after_max: Some(to_duration(Duration::from_secs(8))),
        ..v1::Drain::default()
    }));
    let began = Instant::now();
    // What the application has not seen goes back at once.
    let settle = stream.settle().await;
    assert_eq!(settle.items[0].outcome(), v1::Outcome::Release);
    assert_eq!(settle.items[0].token, "token-2");
    stream.answer(&settle, v1::SettlementStatus::Durable);
    let settling = subscription.settle(&delivery, Outcome::Ack).await;
    let settle = stream.settle().await;
    stream.answer(&settle, v1::SettlementStatus::Durable);
    assert_eq!(settling.await, Ok(SettlementStatus::Durable));
    assert!(stream.frame().await.is_none());
    drop(stream);
    gateway.welcomed().await;
    assert!((3..=9).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

/// F33 on the client's side: frames are read at once, whether the application takes deliveries or not.
#[tokio::test(start_paused = true)]
async fn a_revoked_delivery_is_cancelled_and_never_handed_out_when_it_still_waits() {
    let (mut subscription, mut gateway) = start(false, 0);
    let stream = gateway.welcomed().await;
    stream.deliver(1);
    let running = next(&mut subscription).await;
    stream.deliver(2);
    let tokens = vec![Bytes::from_static(b"token-1"), Bytes::from_static(b"token-2")];
    stream.send(subscribe_response::Frame::Revoke(v1::Revoke { tokens, reason: String::new() }));
    stream.deliver(3);
    running.revoked().cancelled().await;
    assert_eq!(next(&mut subscription).await.receipt_id(), "rcpt_3");
}

/// F29: what a consumer that leaves has not begun is given back, not left to be counted.
#[tokio::test(start_paused = true)]
async fn closing_says_goodbye_brings_outcomes_home_and_releases_the_rest() {
    let (mut subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    stream.deliver(1);
    stream.deliver(2);
    let delivery = next(&mut subscription).await;
    let settling = subscription.settle(&delivery, Outcome::Ack).await;
    let closing = tokio::spawn(subscription.close(Duration::from_secs(5)));
    assert!(matches!(stream.frame().await, Some(subscribe_request::Frame::Goodbye(_))));
    let settle = stream.settle().await;
    let outcomes: Vec<_> = settle.items.iter().map(v1::Settlement::outcome).collect();
    assert_eq!(outcomes, [v1::Outcome::Ack, v1::Outcome::Release]);
    stream.answer(&settle, v1::SettlementStatus::Durable);
    assert_eq!(settling.await, Ok(SettlementStatus::Durable));
    assert!(stream.frame().await.is_none());
    drop(stream);
    closing.await.expect("no panic").expect("closed");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_stream_still_settles_by_unary_call() {
    let (mut subscription, mut gateway) = start(false, 0);
    let stream = gateway.welcomed().await;
    stream.deliver(1);
    let delivery = next(&mut subscription).await;
    drop(stream);
    // The client comes back, and is not welcomed.
    let _mute = gateway.stream().await;
    let settling = subscription.settle(&delivery, Outcome::Ack).await;
    let closing = tokio::spawn(subscription.close(Duration::from_secs(5)));
    let Some(Arrival::Settle(request, reply)) = gateway.arrivals.recv().await else {
        panic!("a stream instead of the settle");
    };
    let results = results(&request.items, v1::SettlementStatus::Durable);
    reply.send(Ok(v1::SettleResponse { results })).expect("the client waits");
    assert_eq!(settling.await, Ok(SettlementStatus::Durable));
    closing.await.expect("no panic").expect("closed");
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_nobody_records_before_the_deadline_are_told_as_lost() {
    let (mut subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    stream.deliver(1);
    let delivery = next(&mut subscription).await;
    let settling = subscription.settle(&delivery, Outcome::Ack).await;
    stream.settle().await;
    let began = Instant::now();
    let closing = tokio::spawn(subscription.close(Duration::from_secs(5)));
    assert_eq!(settling.await, Err(crate::Lost));
    closing.await.expect("no panic").expect("closed");
    assert!(began.elapsed() < Duration::from_secs(7), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn new_flow_limits_hold_for_this_stream_and_the_next() {
    let (subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    subscription.set_flow(7, 1_000).await;
    let Some(subscribe_request::Frame::Flow(flow)) = stream.frame().await else { panic!("no flow") };
    assert_eq!((flow.max_inflight_events, flow.max_inflight_bytes), (7, 1_000));
    drop(stream);
    let mut stream = gateway.stream().await;
    let Some(subscribe_request::Frame::Hello(hello)) = stream.frame().await else { panic!("no hello") };
    assert_eq!(hello.flow.map(|flow| flow.max_inflight_events), Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_hold_reaches_the_gateway() {
    let (mut subscription, mut gateway) = start(false, 0);
    let mut stream = gateway.welcomed().await;
    stream.deliver(1);
    let delivery = next(&mut subscription).await;
    delivery.hold(Duration::from_secs(1 << 20)).await;
    let Some(subscribe_request::Frame::Hold(hold)) = stream.frame().await else { panic!("no hold") };
    assert_eq!(hold.token, "token-1");
    assert_eq!(hold.duration.map(|duration| duration.seconds), Some(3_600));
}

mod failing;
mod resuming;
