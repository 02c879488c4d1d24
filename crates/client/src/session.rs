//! One stream, from Hello to its end.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use portero_proto::v1;
use portero_proto::v1::{subscribe_request, subscribe_response};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::backoff::between;
use crate::batch::Item;
use crate::delivery::Delivery;
use crate::driver::{Command, Driver, Stop};
use crate::error::Error;
use crate::late::Answer;
use crate::link::{Frames, Link};
use crate::options::INFLIGHT_EVENTS_MAX;
use crate::outcome::{Outcome, from_duration, to_duration};

/// Silence after which the other side counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// Bounds of the heartbeat that a gateway may ask for.
const HEARTBEAT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A stream that lasted so long ends a series of failures.
const PROVEN: Duration = Duration::from_secs(5);
/// Frames that may wait for the connection.
const OUTBOUND_MAX: usize = 16;
/// Requests for more time that may wait; further ones are dropped.
const CONTROL_MAX: usize = 1_024;
/// How long a closed stream may take to end on the gateway's side.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why a stream ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// A shutdown began before the stream did.
    Stopped,
    /// The shutdown is complete as far as the stream goes.
    Closed,
    /// The gateway asked for it: reconnect after the wait.
    Drained { wait: Duration },
    /// It broke.
    Failed(Error),
}

/// What woke the loop.
enum Step {
    Frame(Option<Result<v1::SubscribeResponse, tonic::Status>>),
    Command(Command),
    /// The connection takes a frame, or (`false`) no more.
    Room(bool),
    Answer(Answer),
    Time,
}

/// A stream that was welcomed.
struct Live {
    no: u64,
    link: Box<dyn Link>,
    frames: Frames,
    outbound: mpsc::Sender<v1::SubscribeRequest>,
    /// The gateway reads no more; what it has to say is in `frames`.
    deaf: bool,
    heartbeat_every: Duration,
    heartbeat_at: Instant,
    heard_at: Instant,
    control: VecDeque<subscribe_request::Frame>,
    /// Deliveries without an outcome.
    held: HashMap<Bytes, CancellationToken>,
    /// When to reconnect, once the gateway asked for it.
    reconnect_at: Option<Instant>,
    call: Option<BoxFuture<'static, Answer>>,
}

impl Driver {
    /// Runs one stream on a connection.
    pub(crate) async fn session(&mut self, link: Box<dyn Link>) -> Ended {
        let (outbound, receiver) = mpsc::channel(OUTBOUND_MAX);
        let said = self.flow;
        let hello = v1::Hello { flow: Some(said), ..self.hello.clone() };
        let hello = v1::SubscribeRequest { frame: Some(subscribe_request::Frame::Hello(hello)) };
        outbound.try_send(hello).expect("the channel is empty");
        let opening = link.subscribe(receiver);
        let opening = timeout(SILENCE_MAX, async {
            let mut frames = opening.await?;
            match frames.next().await {
                Some(Ok(v1::SubscribeResponse {
                    frame: Some(subscribe_response::Frame::Welcome(welcome)),
                })) => Ok((frames, welcome)),
                Some(Ok(_)) => Err(Error::Protocol("the first frame was not Welcome")),
                Some(Err(status)) => Err(status.into()),
                None => Err(Error::Closed),
            }
        });
        let (frames, welcome) = match self.attend(opening).await {
            None => return Ended::Stopped,
            Some(Err(_)) => return Ended::Failed(Error::Silent),
            Some(Ok(Err(error))) => return Ended::Failed(error),
            Some(Ok(Ok(opened))) => opened,
        };
        self.streams += 1;
        self.queue.begin(self.streams);
        self.observer.connected(&welcome.stream_id, welcome.generation, welcome.assigned_lanes);
        let began = Instant::now();
        let asked = welcome.heartbeat_every.map_or(HEARTBEAT.1, from_duration);
        // A little early, because the gateway counts on its side of the network.
        let heartbeat_every = asked.clamp(HEARTBEAT.0, HEARTBEAT.1).mul_f64(0.8);
        let live = Live {
            no: self.streams,
            link,
            frames,
            outbound,
            deaf: false,
            heartbeat_every,
            heartbeat_at: began + heartbeat_every,
            heard_at: began,
            // Limits that changed since Hello was sent.
            control: (self.flow != said)
                .then_some(subscribe_request::Frame::Flow(self.flow))
                .into_iter()
                .collect(),
            held: HashMap::new(),
            reconnect_at: None,
            call: None,
        };
        let ended = self.converse(live).await;
        if began.elapsed() >= PROVEN {
            self.backoff.reset();
        }
        ended
    }

    async fn converse(&mut self, mut live: Live) -> Ended {
        loop {
            let now = Instant::now();
            if let Some(ended) = self.is_over(&live, now) {
                if matches!(ended, Ended::Closed | Ended::Drained { .. }) {
                    live.farewell().await;
                }
                return ended;
            }
            if live.call.is_none() && self.late.due(now).is_some_and(|due| due <= now) {
                live.call = Some(self.late.call(&*live.link, &self.hello.subscription));
            }
            let ready = !live.deaf && (live.has_frame(now) || self.batch.due().is_some_and(|due| due <= now));
            let wake = self.wake(&live, now);
            let step = tokio::select! {
                frame = live.frames.next() => Step::Frame(frame),
                // The driver itself holds a sender: there is always a next command.
                Some(command) = self.commands.recv() => Step::Command(command),
                room = live.outbound.reserve(), if ready => Step::Room(room.is_ok()),
                answer = answer(&mut live.call) => Step::Answer(answer),
                () = sleep_until(wake) => Step::Time,
            };
            match step {
                Step::Frame(None) => return Ended::Failed(Error::Closed),
                Step::Frame(Some(Err(status))) => return Ended::Failed(status.into()),
                Step::Frame(Some(Ok(frame))) => {
                    live.heard_at = Instant::now();
                    if let Err(error) = self.on_frame(&mut live, frame) {
                        return Ended::Failed(error);
                    }
                }
                Step::Command(command) => self.on_command(&mut live, command),
                Step::Room(true) => self.send_one(&mut live, Instant::now()),
                Step::Room(false) => live.deaf = true,
                Step::Answer(answer) => {
                    live.call = None;
                    let brought = self.late.answered(answer, Instant::now());
                    self.report(brought);
                }
                Step::Time => {}
            }
        }
    }

    /// Sends the most urgent frame; there is room for one.
    fn send_one(&mut self, live: &mut Live, now: Instant) {
        let frame = live.next_frame(now);
        let frame = frame.or_else(|| self.batch.take(now).map(subscribe_request::Frame::Settle));
        if frame.is_some() && live.outbound.try_send(v1::SubscribeRequest { frame }).is_err() {
            // Nobody else sends: the channel can only be closed. What the frame held is still on the books.
            live.deaf = true;
        }
    }

    fn is_over(&self, live: &Live, now: Instant) -> Option<Ended> {
        let quiet = self.batch.is_empty();
        if let Stop::Close(deadline) = self.stop
            && ((quiet && self.late.is_empty()) || now >= deadline)
        {
            return Some(Ended::Closed);
        }
        if let Some(at) = live.reconnect_at
            && quiet
            && live.held.is_empty()
            && self.stop == Stop::No
        {
            return Some(Ended::Drained { wait: at.saturating_duration_since(now) });
        }
        (now >= live.heard_at + SILENCE_MAX).then_some(Ended::Failed(Error::Silent))
    }

    /// When the loop must look again although nothing arrived. What is due already waits for room, not for time.
    fn wake(&self, live: &Live, now: Instant) -> Instant {
        let deadline = match self.stop {
            Stop::Close(deadline) => Some(deadline),
            Stop::No | Stop::Goodbye => None,
        };
        [Some(live.heartbeat_at), self.batch.due(), self.late.due(now), deadline]
            .into_iter()
            .flatten()
            .filter(|at| *at > now)
            .fold(live.heard_at + SILENCE_MAX, Instant::min)
    }

    fn on_frame(&mut self, live: &mut Live, frame: v1::SubscribeResponse) -> Result<(), Error> {
        match frame.frame {
            Some(subscribe_response::Frame::Deliver(deliver)) => self.on_deliver(live, deliver)?,
            Some(subscribe_response::Frame::Settled(settled)) => {
                let (done, again) = self.batch.settled(settled, Instant::now());
                self.settled(done, again);
            }
            Some(subscribe_response::Frame::Revoke(revoke)) => {
                self.observer.revoked(revoke.tokens.len(), &revoke.reason);
                let tokens: HashSet<Bytes> = revoke.tokens.into_iter().collect();
                self.queue.remove(&tokens);
                for revoked in tokens.iter().filter_map(|token| live.held.remove(token)) {
                    revoked.cancel();
                }
            }
            Some(subscribe_response::Frame::Heartbeat(heartbeat)) => {
                self.observer.lag(heartbeat.head_lag, heartbeat.oldest_unsettled_age.map(from_duration));
            }
            Some(subscribe_response::Frame::Drain(drain)) => {
                self.observer.draining(&drain.reason);
                let low = drain.reconnect_after_min.map_or(Duration::ZERO, from_duration);
                let high = drain.reconnect_after_max.map_or(low, from_duration);
                live.reconnect_at = Some(Instant::now() + between(low, high, &mut self.rng));
                self.release_untouched(live);
            }
            Some(subscribe_response::Frame::Welcome(_)) => {
                return Err(Error::Protocol("Welcome came twice"));
            }
            // A frame of a newer protocol: nothing for this version.
            None => {}
        }
        Ok(())
    }

    fn on_deliver(&mut self, live: &mut Live, deliver: v1::Deliver) -> Result<(), Error> {
        let leaving = self.stop != Stop::No || live.reconnect_at.is_some();
        for delivery in deliver.deliveries {
            let delivery = Delivery::attached(delivery, live.no, self.sender.clone())
                .ok_or(Error::Protocol("a delivery without event or token"))?;
            self.observer.delivered(&delivery);
            if leaving {
                self.release(delivery);
                continue;
            }
            live.held.insert(delivery.token().clone(), delivery.revoked().clone());
            self.queue.push(delivery);
        }
        if live.held.len() > usize::try_from(INFLIGHT_EVENTS_MAX).unwrap_or(usize::MAX) {
            return Err(Error::Protocol("more than 10,000 unsettled deliveries"));
        }
        Ok(())
    }

    fn on_command(&mut self, live: &mut Live, command: Command) {
        match command {
            Command::Settle(item) if item.stream == live.no => {
                live.held.remove(&item.token);
                self.batch.push(item, Instant::now());
            }
            Command::Settle(item) => self.keep(item),
            Command::Hold { token, stream, duration } => {
                if stream == live.no && live.held.contains_key(&token) && live.control.len() < CONTROL_MAX {
                    let hold = v1::Hold { token, duration: Some(to_duration(duration)) };
                    live.control.push_back(subscribe_request::Frame::Hold(hold));
                }
            }
            Command::Flow(flow) => {
                self.flow = flow;
                live.control.retain(|frame| !matches!(frame, subscribe_request::Frame::Flow(_)));
                live.control.push_back(subscribe_request::Frame::Flow(flow));
            }
            Command::Goodbye => {
                if self.stop == Stop::No {
                    self.stop = Stop::Goodbye;
                    live.control.push_back(subscribe_request::Frame::Goodbye(v1::Goodbye {}));
                    self.release_untouched(live);
                }
            }
            Command::Close { deadline } => {
                self.stop = Stop::Close(deadline);
                self.release_untouched(live);
                self.batch.hurry(Instant::now());
            }
        }
    }

    /// Gives back what the application has not seen.
    fn release_untouched(&mut self, live: &mut Live) {
        for delivery in self.queue.take_all() {
            live.held.remove(delivery.token());
            self.release(delivery);
        }
    }

    fn release(&mut self, delivery: Delivery) {
        let item = Item {
            token: delivery.token().clone(),
            receipt_id: delivery.receipt_id().to_owned(),
            outcome: Outcome::Release,
            stream: delivery.stream(),
            reply: None,
        };
        self.batch.push(item, Instant::now());
    }
}

impl Live {
    fn has_frame(&self, now: Instant) -> bool {
        !self.control.is_empty() || self.heartbeat_at <= now
    }

    fn next_frame(&mut self, now: Instant) -> Option<subscribe_request::Frame> {
        if self.heartbeat_at <= now {
            self.heartbeat_at = now + self.heartbeat_every;
            return Some(subscribe_request::Frame::Heartbeat(v1::Heartbeat {}));
        }
        self.control.pop_front()
    }

    /// Ends our half and lets the gateway end its own.
    async fn farewell(self) {
        let Self { mut frames, outbound, .. } = self;
        drop(outbound);
        let until = Instant::now() + FAREWELL;
        while let Ok(Some(Ok(_))) = timeout_at(until, frames.next()).await {}
    }
}

/// The answer of the call under way; never, when there is none.
async fn answer(call: &mut Option<BoxFuture<'static, Answer>>) -> Answer {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}
