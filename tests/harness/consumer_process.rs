//! A consumer in a process of its own, which can be killed, stopped and crash: this very test program, started again as one
//! of its tests.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use portero_client::{
    CancellationToken, Client, ClientConfig, Delivery, Disconnect, Observer, Outcome, SettlementStatus,
    SubscribeOptions, Token,
};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;

use super::history::{Offer, Pen, What, hex};
use super::{History, Process, Record, Site, eventually};

/// Where a consumer process finds its part.
const PART: &str = "PORTERO_TEST_CONSUMER";
/// The test that a consumer process runs.
const ENTRY: &str = "harness::consumer_process::a_consumer_process_plays_its_part";
/// How long running handlers may take after a stop was asked for.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// What a consumer does with deliveries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Behaviour {
    /// Acks after so many milliseconds.
    Ack { after_ms: u64 },
    /// Ends without warning whenever it is given this event; acks the others.
    AbortOn { event: String },
    /// Fails a fifth of the events in many ways, which it chooses by the event's id and this number.
    Unreliable { seed: u64 },
}

/// All that a consumer process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    name: String,
    url: String,
    token: String,
    subscription: String,
    history: PathBuf,
    behaviour: Behaviour,
}

/// A consumer process: started, stopped, killed, started again.
pub(crate) struct ConsumerProcess {
    part: Part,
    process: Option<Process>,
}

impl ConsumerProcess {
    /// One that is not started yet. Its name is its instance id.
    pub(crate) fn new(
        site: &Site,
        name: &str,
        url: String,
        subscription: &str,
        behaviour: Behaviour,
    ) -> Self {
        let part = Part {
            name: name.to_owned(),
            url,
            token: site.consumer_token(subscription),
            subscription: subscription.to_owned(),
            history: site.path(&format!("{name}.history")).into(),
            behaviour,
        };
        Self { part, process: None }
    }

    /// Starts it.
    pub(crate) fn launch(&mut self) {
        assert!(self.process.is_none(), "the consumer runs already");
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args(["--exact", ENTRY, "--test-threads=1", "--nocapture"]).env_clear();
        command
            .env(PART, serde_json::to_string(&self.part).expect("plain values"))
            .env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(Process::spawn(&mut command));
    }

    pub(crate) fn name(&self) -> &str {
        &self.part.name
    }

    /// The file with its history.
    pub(crate) fn history(&self) -> PathBuf {
        self.part.history.clone()
    }

    /// Ends it without warning (SIGKILL).
    pub(crate) fn kill(&mut self) {
        let process = self.process.take().expect("the consumer runs");
        let run = process.id();
        process.kill();
        self.note_end(run);
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        self.process.as_ref().expect("the consumer runs").signal(name);
    }

    /// Its exit status, once it has ended by itself; it can be started again then.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        let process = self.process.as_mut()?;
        let (run, status) = (process.id(), process.exited()?);
        self.process = None;
        self.note_end(run);
        Some(status)
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    pub(crate) async fn stop(&mut self, within: Duration) -> ExitStatus {
        let run = self.process.as_ref().expect("the consumer runs").id();
        eventually("the consumer runs", within, async || {
            let history = History::read(&[self.history()]);
            let begun = |record: &Record| record.run == run && record.what == What::Begun;
            history.0.iter().any(begun).then_some(())
        })
        .await;
        self.signal("TERM");
        eventually("the consumer ends", within, async || self.exited()).await
    }

    /// A run is over, whatever it did: nothing of it is in its hands any more.
    fn note_end(&self, run: u32) {
        Pen::new(&self.part.history, &self.part.name, run).write(What::Ended);
    }
}

/// The main function of a consumer process. In a test run, where nobody gave it a part, it holds that there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_process_plays_its_part() {
    #[expect(clippy::disallowed_methods, reason = "the parent process says through it what to do")]
    let Ok(part) = std::env::var(PART) else { return };
    let part: Part = serde_json::from_str(&part).expect("a part");
    let mut config = ClientConfig::new(part.url.clone());
    config.token = Token::fixed(&part.token);
    config.instance_id = Some(part.name.clone());
    let client = Client::connect(config).await.expect("a client");
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).expect("signals");
    let on_signal = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        on_signal.cancel();
    });
    let pen = Arc::new(Pen::new(&part.history, &part.name, std::process::id()));
    pen.write(What::Begun);
    let options = SubscribeOptions {
        max_inflight_events: 200,
        concurrency: 64,
        shutdown: stop,
        shutdown_deadline: SHUTDOWN,
        observer: Arc::new(Scribe(Arc::clone(&pen))),
        ..SubscribeOptions::default()
    };
    let behaviour = Arc::new(part.behaviour);
    let handler = move |delivery: Delivery| {
        pen.write(What::Started(Offer::new(&delivery)));
        let watching =
            AbortOnDropHandle::new(tokio::spawn(note_revocation(delivery.clone(), Arc::clone(&pen))));
        let work = behave(Arc::clone(&behaviour), delivery, Arc::clone(&pen));
        async move {
            let outcome = work.await;
            drop(watching);
            outcome
        }
    };
    client.subscribe(&part.subscription, options).run(handler).await.expect("a good end");
}

async fn note_revocation(delivery: Delivery, pen: Arc<Pen>) {
    delivery.revoked().cancelled().await;
    pen.write(What::Revoked { token: hex(delivery.token()) });
}

async fn behave(behaviour: Arc<Behaviour>, delivery: Delivery, pen: Arc<Pen>) -> Outcome {
    match &*behaviour {
        Behaviour::Ack { after_ms } => {
            tokio::time::sleep(Duration::from_millis(*after_ms)).await;
            Outcome::Ack
        }
        Behaviour::AbortOn { event } if event == delivery.event_id() => abort(&pen),
        Behaviour::AbortOn { .. } => Outcome::Ack,
        Behaviour::Unreliable { seed } => unreliable(*seed, &delivery, &pen).await,
    }
}

/// Twenty of a hundred events fail.
async fn unreliable(seed: u64, delivery: &Delivery, pen: &Pen) -> Outcome {
    let (fate, first) = (fate(seed, delivery.event_id()), delivery.attempt() == 1);
    match fate {
        0..6 if delivery.attempt() <= 2 => {
            Outcome::retry_after(Duration::from_millis(100 + 50 * fate), "NOT_NOW", "a dependency is down")
        }
        6..10 if first => Outcome::defer("TOO_EARLY", "what it needs is not there yet"),
        10..12 => Outcome::reject("NEVER", "it makes no sense"),
        12..13 if first => abort(pen),
        13..14 if first => panic!("a handler with a mistake"),
        14..20 => {
            tokio::time::sleep(Duration::from_millis(50 * fate)).await;
            Outcome::Ack
        }
        _ => Outcome::Ack,
    }
}

/// A number below 100 that is the same for the same event.
pub(crate) fn fate(seed: u64, event: &str) -> u64 {
    let hash = event.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) % 100
}

fn abort(pen: &Pen) -> ! {
    pen.write(What::Ended);
    std::process::abort()
}

/// Writes down what the SDK reports.
struct Scribe(Arc<Pen>);

impl Observer for Scribe {
    fn connected(&self, _stream_id: &str, generation: i64, _assigned_lanes: u32) {
        self.0.write(What::Connected { generation });
    }

    fn resumed(&self, kept: usize, stopped: usize) {
        self.0.write(What::Resumed { kept, stopped });
    }

    fn disconnected(&self, why: &Disconnect<'_>, _next_attempt_in: Option<Duration>) {
        self.0.write(What::Disconnected { why: format!("{why:?}") });
    }

    fn delivered(&self, delivery: &Delivery) {
        self.0.write(What::Delivered(Offer::new(delivery)));
    }

    fn handled(&self, delivery: &Delivery, outcome: &Outcome, _took: Duration) {
        let (token, receipt) = (hex(delivery.token()), delivery.receipt_id().to_owned());
        self.0.write(What::Handled { token, receipt, outcome: outcome.name().to_owned() });
    }

    fn settled(&self, receipt_id: &str, outcome: &Outcome, status: SettlementStatus) {
        self.0.write(What::Settled {
            receipt: receipt_id.to_owned(),
            outcome: outcome.name().to_owned(),
            status: status.name().to_owned(),
        });
    }
}
