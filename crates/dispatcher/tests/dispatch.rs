//! The dispatcher over a real store: what consumers get, what a restart keeps, what limits hold.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portero_directory::{Directory, DirectoryConfig};
use portero_dispatcher::{
    AttachError, Delivery, Dispatcher, DispatcherConfig, EndReason, Ending, Flow, Frame, Outcome, Reason,
    Settlement, Status, StreamHandle, StreamSpec,
};
use portero_keyring::{KeyId, Keyring};
use portero_store::testing::fixture::{self, NOW};
use portero_store::{AcceptStore as _, ConfigStore as _, LaneStore as _, SchemaStore as _, StartAt};
use portero_store_sqlite::SqliteStore;
use portero_types::{ManualClock, SessionId, SubscriptionId};

const PATIENCE: Duration = Duration::from_secs(30);

/// A dispatcher on a database file, as one run of a process.
struct Run {
    store: Arc<SqliteStore>,
    dispatcher: Dispatcher,
    clock: ManualClock,
    session: SessionId,
}

async fn create(path: &Path) {
    let store = SqliteStore::open(path).await.expect("opens");
    store.migrate().await.expect("migrates");
    store.create_tenant(fixture::new_tenant("acme")).await.expect("a tenant");
    store.create_source(fixture::new_source("acme", "stripe-eu")).await.expect("a source");
    let mut subscription = fixture::new_subscription("billing");
    subscription.start_at = StartAt::Earliest;
    subscription.attempts_max = 2;
    store.create_subscription(subscription).await.expect("a subscription");
    store.close().await;
}

impl Run {
    async fn start(path: &Path) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let run = RUNS.fetch_add(1, Ordering::SeqCst);
        let store = Arc::new(SqliteStore::open(path).await.expect("opens"));
        let keyring = Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable");
        let config = DirectoryConfig::default();
        let (directory, _) = Directory::open(Arc::clone(&store) as _, Arc::new(keyring), config)
            .await
            .expect("the directory opens");
        let clock = ManualClock::at(NOW);
        let session = SessionId::new(NOW, fixture::random(fixture::fresh() + (run << 32)));
        let config = DispatcherConfig {
            instance: "test".to_owned(),
            new_session: Arc::new(move || session),
            trace: None,
            seed: run,
        };
        let dispatcher =
            Dispatcher::start(Arc::clone(&store) as _, directory, Arc::new(clock.clone()), config)
                .await
                .expect("the dispatcher starts");
        Self { store, dispatcher, clock, session }
    }

    /// Accepts events of one entity, in order.
    async fn accept(&self, entity: &str, ids: &[&str]) {
        let tenant = self.store.tenant(&fixture::tenant_id("acme")).await.expect("read").expect("there");
        let source = self
            .store
            .source(&fixture::tenant_id("acme"), &fixture::source_id("stripe-eu"))
            .await
            .expect("read")
            .expect("there");
        let events: Vec<_> = ids.iter().map(|id| fixture::event_of(&tenant, &source, id, entity)).collect();
        self.store.accept(&events).await.expect("accepted");
        self.dispatcher.hint();
    }

    async fn attach(&self, instance: &str) -> StreamHandle {
        self.attach_with(instance, Flow::default()).await.expect("attached")
    }

    async fn attach_with(&self, instance: &str, flow: Flow) -> Result<StreamHandle, AttachError> {
        let spec = StreamSpec {
            subscription: SubscriptionId::new("billing").expect("valid"),
            instance: instance.to_owned(),
            boot: "1".to_owned(),
            flow,
            message_bytes_max: 4 << 20,
        };
        self.dispatcher.attach(spec).await
    }

    async fn stop(self) {
        self.dispatcher.stop(PATIENCE).await;
        self.store.close().await;
    }
}

/// The next `count` deliveries.
async fn deliveries(stream: &mut StreamHandle, count: usize) -> Vec<Delivery> {
    let mut got = Vec::new();
    while got.len() < count {
        let frame = tokio::time::timeout(PATIENCE, stream.next()).await.expect("a frame comes in time");
        if let Frame::Deliver(deliveries) = frame.expect("the stream goes on") {
            got.extend(deliveries);
        }
    }
    got
}

fn settlement(delivery: &Delivery, outcome: Outcome) -> Settlement {
    Settlement { token: Some(delivery.token), outcome, reason: Reason::new("TEST", "said the test") }
}

async fn settle(stream: &StreamHandle, delivery: &Delivery, outcome: Outcome) -> Status {
    let settler = stream.settler();
    let settled = settler.settle(vec![settlement(delivery, outcome)]);
    tokio::time::timeout(PATIENCE, settled).await.expect("settled in time")[0]
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.event.event_id.as_str()).collect()
}

async fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    (folder, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entitys_events_come_one_after_the_other_in_order() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    run.accept("a", &["a1", "a2", "a3"]).await;
    let mut stream = run.attach("c").await;
    for id in ["a1", "a2", "a3"] {
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), [id]);
        assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_durably_acked_does_not_come_again_after_a_restart_and_the_rest_does() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    for entity in ["a", "b", "c", "d"] {
        run.accept(entity, &[&format!("{entity}1"), &format!("{entity}2")]).await;
    }
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 4).await;
    for delivery in &first[..2] {
        assert_eq!(settle(&stream, delivery, Outcome::Ack).await, Status::Durable);
    }
    let acked: Vec<String> = ids(&first[..2]).iter().map(ToString::to_string).collect();
    run.stop().await;

    let run = Run::start(&path).await;
    let mut stream = run.attach("c").await;
    let mut seen: HashMap<String, Vec<String>> = HashMap::new();
    while seen.values().map(Vec::len).sum::<usize>() < 6 {
        for delivery in deliveries(&mut stream, 1).await {
            seen.entry(delivery.event.ordering_key.clone())
                .or_default()
                .push(delivery.event.event_id.clone());
            assert_eq!(settle(&stream, &delivery, Outcome::Ack).await, Status::Durable);
        }
    }
    for (entity, events) in seen {
        let mut wanted = vec![format!("{entity}1"), format!("{entity}2")];
        wanted.retain(|id| !acked.contains(id));
        assert_eq!(events, wanted);
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_never_holds_more_than_its_limit() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    for n in 0..20 {
        run.accept(&format!("e{n}"), &[&format!("id{n}")]).await;
    }
    let flow = Flow { events_max: 3, bytes_max: 1 << 20 };
    let mut stream = run.attach_with("c", flow).await.expect("attached");
    let mut held = deliveries(&mut stream, 3).await;
    for _ in 3..20 {
        let done = held.remove(0);
        assert_eq!(settle(&stream, &done, Outcome::Ack).await, Status::Durable);
        held.extend(deliveries(&mut stream, 1).await);
        assert_eq!(held.len(), 3);
    }
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_leaves_gracefully_leaves_its_events_uncounted_to_the_next() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    run.accept("a", &["a1"]).await;
    let mut first = run.attach("one").await;
    assert_eq!(ids(&deliveries(&mut first, 1).await), ["a1"]);
    first.end(Ending::Graceful).await;
    let mut second = run.attach("two").await;
    let got = deliveries(&mut second, 1).await;
    assert_eq!(ids(&got), ["a1"]);
    assert_eq!(settle(&second, &got[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_stream_of_the_same_instance_ends_the_older_one() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    let mut ghost = run.attach("same").await;
    let _newer = run.attach("same").await;
    let end = tokio::time::timeout(PATIENCE, ghost.next()).await.expect("ends in time");
    assert_eq!(end.expect_err("the stream is over"), EndReason::Replaced);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_fails_too_often_becomes_a_dead_letter_and_its_entity_goes_on() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    run.accept("a", &["bad", "good"]).await;
    let mut stream = run.attach("c").await;
    for _ in 0..2 {
        let got = deliveries(&mut stream, 1).await;
        assert_eq!(ids(&got), ["bad"]);
        let retry = Outcome::Retry { delay: Some(Duration::ZERO) };
        assert_eq!(settle(&stream, &got[0], retry).await, Status::Durable);
        run.clock.advance(Duration::from_secs(1));
    }
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&got), ["good"]);
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    let subscription = run
        .store
        .subscription(&SubscriptionId::new("billing").expect("valid"))
        .await
        .expect("read")
        .expect("there");
    let dead = run.store.dead_letters(subscription.no, None, 10).await.expect("read");
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].1.attempts, dead[0].1.reason_code.as_str()), (2, "TEST"));
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_event_is_offered_again_after_a_later_ack_of_its_entity_across_a_restart() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    run.accept("order", &["refund"]).await;
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Defer).await, Status::Durable);
    run.stop().await;

    let run = Run::start(&path).await;
    let mut stream = run.attach("c").await;
    // Whether an ack of the entity came in the last moment is not known after a restart, so it is offered once.
    let refund = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&refund), ["refund"]);
    assert_eq!(settle(&stream, &refund[0], Outcome::Defer).await, Status::Durable);
    run.accept("order", &["payment"]).await;
    let payment = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&payment), ["payment"]);
    assert_eq!(settle(&stream, &payment[0], Outcome::Ack).await, Status::Durable);
    let refund = deliveries(&mut stream, 1).await;
    assert_eq!(ids(&refund), ["refund"]);
    assert_eq!(settle(&stream, &refund[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_may_come_outside_of_the_stream_and_twice() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    run.accept("a", &["a1"]).await;
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    let id = SubscriptionId::new("billing").expect("valid");
    let unary = run.dispatcher.settle(&id, vec![settlement(&got[0], Outcome::Ack)]).await;
    assert_eq!(unary.expect("taken"), [Status::Durable]);
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Already);
    let unknown = Settlement { token: None, outcome: Outcome::Ack, reason: Reason::default() };
    assert_eq!(stream.settler().settle(vec![unknown]).await, [Status::UnknownToken]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_the_session_has_and_nobody_here_holds_are_taken_up_again() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    let id = SubscriptionId::new("billing").expect("valid");
    let subscription = run.store.subscription(&id).await.expect("read").expect("there");
    // As after an outage in which the actor dropped its lanes, or a claim whose answer was lost.
    let claimed = run.store.claim_lanes(run.session, subscription.no, subscription.lanes, 1).await;
    assert_eq!(claimed.expect("claimed").len(), 16);
    run.accept("a", &["a1"]).await;
    let mut stream = run.attach("c").await;
    let got = deliveries(&mut stream, 1).await;
    assert_eq!(settle(&stream, &got[0], Outcome::Ack).await, Status::Durable);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_unknown_subscriptions_and_streams_while_draining_are_refused() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    let unknown = SubscriptionId::new("nobody").expect("valid");
    assert_eq!(run.dispatcher.settle(&unknown, Vec::new()).await, Err(AttachError::NotFound));
    tokio::time::timeout(PATIENCE, run.dispatcher.drain(NOW)).await.expect("nobody to wait for");
    assert_eq!(run.attach_with("late", Flow::default()).await.err(), Some(AttachError::ShuttingDown));
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_written_although_no_stream_is_left_and_the_gateway_is_another_one() {
    let (_folder, path) = folder().await;
    let run = Run::start(&path).await;
    run.accept("a", &["a1", "a2"]).await;
    let mut stream = run.attach("c").await;
    let first = deliveries(&mut stream, 1).await;
    drop(stream);
    run.stop().await;

    let run = Run::start(&path).await;
    let billing = SubscriptionId::new("billing").expect("valid");
    let statuses = run.dispatcher.settle(&billing, vec![settlement(&first[0], Outcome::Ack)]).await;
    assert_eq!(statuses.expect("statuses"), [Status::DurableLate]);
    let mut stream = run.attach("c").await;
    assert_eq!(ids(&deliveries(&mut stream, 1).await), ["a2"]);
    run.stop().await;
}
