//! One stream, from Hello to its end.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use portero_proto::v1;
use portero_proto::v1::{subscribe_request, subscribe_response};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::between;
use crate::batch::Item;
use crate::delivery::Delivery;
use crate::driver::{Command, Driver, Stop};
use crate::error::Error;
use crate::late::Answer;
use crate::link::{Frames, Link};
use crate::live::{Leaving, Live, SILENCE_MAX};
use crate::options::INFLIGHT_EVENTS_MAX;
use crate::outcome::{Outcome, from_duration, to_duration};

/// A stream that lasted so long ends a series of failures.
const PROVEN: Duration = Duration::from_secs(5);
/// Frames that may wait for the connection.
const OUTBOUND_MAX: usize = 16;
/// Which part of the time that a gateway gives before a reconnect is used to finish work on the old stream, and how much of it
/// at most: nothing new comes meanwhile, and longer work can go on on the next stream.
const STAY: f64 = 0.8;
const STAY_MAX: Duration = Duration::from_secs(30);

/// Why a stream ended.
pub(crate) enum Ended {
    /// A shutdown began before the stream did.
    Stopped,
    /// The shutdown is complete as far as the stream goes.
    Closed,
    /// The gateway asked for it: reconnect after the wait. `unfinished`: the stream, when work of it goes on.
    Drained { wait: Duration, unfinished: Option<Box<Live>> },
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

/// Why the loop ends.
enum Over {
    /// As told, after a friendly farewell.
    Closed,
    /// Everything is settled that the gateway asked to settle before a reconnect.
    Left,
    /// Time to reconnect although work goes on.
    LeftUnfinished,
    Failed(Error),
}

impl Driver {
    /// Runs one stream on a connection.
    pub(crate) async fn session(&mut self, link: Box<dyn Link>) -> Ended {
        let said = self.flow;
        let (frames, outbound, welcome) = match self.open(&*link).await {
            None => return Ended::Stopped,
            Some(Err(error)) => return Ended::Failed(error),
            Some(Ok(opened)) => opened,
        };
        self.welcomed(&welcome);
        self.leave_former().await;
        let began = Instant::now();
        let mut live = Live::new(link, frames, outbound, welcome.heartbeat_every, began);
        if self.flow != said {
            // Limits that changed since Hello was sent.
            live.flow(self.flow);
        }
        let over = self.converse(&mut live).await;
        if began.elapsed() >= PROVEN {
            self.backoff.reset();
        }
        let leaving = live.leaving.take();
        let wait = leaving
            .map_or(Duration::ZERO, |leaving| leaving.reconnect_at.saturating_duration_since(Instant::now()));
        match over {
            Over::Closed => {
                live.farewell().await;
                Ended::Closed
            }
            Over::Left => {
                live.farewell().await;
                Ended::Drained { wait, unfinished: None }
            }
            Over::LeftUnfinished => Ended::Drained { wait, unfinished: Some(Box::new(live)) },
            // It said before that it would end.
            Over::Failed(error) if leaving.is_some() && !error.is_fatal(true) => {
                Ended::Drained { wait, unfinished: None }
            }
            Over::Failed(error) => Ended::Failed(error),
        }
    }

    /// Hello and Welcome; `None` when a shutdown began.
    async fn open(
        &mut self,
        link: &dyn Link,
    ) -> Option<Result<(Frames, mpsc::Sender<v1::SubscribeRequest>, v1::Welcome), Error>> {
        let (outbound, receiver) = mpsc::channel(OUTBOUND_MAX);
        let hello =
            v1::Hello { flow: Some(self.flow), unsettled_tokens: self.held.tokens(), ..self.hello.clone() };
        let hello = v1::SubscribeRequest { frame: Some(subscribe_request::Frame::Hello(hello)) };
        outbound.try_send(hello).expect("the channel is empty");
        let opening = link.subscribe(receiver);
        let opening = timeout(SILENCE_MAX, async {
            let mut frames = opening.await?;
            match frames.next().await {
                Some(Ok(v1::SubscribeResponse {
                    frame: Some(subscribe_response::Frame::Welcome(welcome)),
                })) => Ok((frames, outbound, welcome)),
                Some(Ok(_)) => Err(Error::Protocol("the first frame was not Welcome")),
                Some(Err(status)) => Err(status.into()),
                None => Err(Error::Closed),
            }
        });
        Some(self.attend(opening).await?.unwrap_or(Err(Error::Silent)))
    }

    /// Goes on with what the new stream resumed; the rest is told to stop.
    fn welcomed(&mut self, welcome: &v1::Welcome) {
        let resumed: HashSet<Bytes> = welcome.resumed_tokens.iter().cloned().collect();
        let (kept, stopped) = self.held.resume(&resumed);
        self.told.begin_anew();
        self.observer.connected(&welcome.stream_id, welcome.generation, welcome.assigned_lanes);
        if welcome.assigned_lanes == 0 {
            self.observer.idle(welcome.subscription_lanes);
        }
        if kept + stopped > 0 {
            self.observer.resumed(kept, stopped);
        }
        self.queue.resume();
    }

    async fn converse(&mut self, live: &mut Live) -> Over {
        loop {
            let now = Instant::now();
            if let Some(over) = self.is_over(live, now) {
                return over;
            }
            if live.call.is_none() && self.late.due(now).is_some_and(|due| due <= now) {
                live.call = Some(self.late.call(&*live.link, &self.hello.subscription));
            }
            let ready = !live.deaf && (live.has_frame(now) || self.batch.due().is_some_and(|due| due <= now));
            let wake = self.wake(live, now);
            let step = tokio::select! {
                frame = live.frames.next() => Step::Frame(frame),
                // The driver itself holds a sender: there is always a next command.
                Some(command) = self.commands.recv() => Step::Command(command),
                room = live.outbound.reserve(), if ready => Step::Room(room.is_ok()),
                answer = Live::answer(&mut live.call) => Step::Answer(answer),
                () = sleep_until(wake) => Step::Time,
            };
            match step {
                Step::Frame(None) => return Over::Failed(Error::Closed),
                Step::Frame(Some(Err(status))) => return Over::Failed(status.into()),
                Step::Frame(Some(Ok(frame))) => {
                    live.heard_at = Instant::now();
                    if let Err(error) = self.on_frame(live, frame) {
                        return Over::Failed(error);
                    }
                }
                Step::Command(command) => self.on_command(live, command),
                Step::Room(true) => self.send_one(live, Instant::now()),
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

    fn is_over(&self, live: &Live, now: Instant) -> Option<Over> {
        let quiet = self.batch.is_empty();
        if let Stop::Close(deadline) = self.stop
            && ((quiet && self.late.is_empty()) || now >= deadline)
        {
            return Some(Over::Closed);
        }
        if let Some(leaving) = live.leaving
            && quiet
            && self.stop == Stop::No
        {
            if self.held.is_empty() {
                return Some(Over::Left);
            }
            if now >= leaving.at_latest {
                return Some(Over::LeftUnfinished);
            }
        }
        (now >= live.heard_at + SILENCE_MAX).then_some(Over::Failed(Error::Silent))
    }

    /// When the loop must look again although nothing arrived. What is due already waits for room, not for time.
    fn wake(&self, live: &Live, now: Instant) -> Instant {
        let deadline = match self.stop {
            Stop::Close(deadline) => Some(deadline),
            Stop::No | Stop::Goodbye => None,
        };
        [self.batch.due(), self.late.due(now), deadline]
            .into_iter()
            .flatten()
            .chain(live.wakes())
            .filter(|at| *at > now)
            .fold(now + SILENCE_MAX, Instant::min)
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
                self.held.revoke(&tokens);
                for token in self.queue.remove(&tokens) {
                    self.held.finish(&token);
                }
            }
            Some(subscribe_response::Frame::Heartbeat(heartbeat)) => {
                self.observer.lag(heartbeat.head_lag, heartbeat.oldest_unsettled_age.map(from_duration));
            }
            Some(subscribe_response::Frame::Drain(drain)) => self.on_drain(live, &drain),
            Some(subscribe_response::Frame::Welcome(_)) => {
                return Err(Error::Protocol("Welcome came twice"));
            }
            // A frame of a newer protocol: nothing for this version.
            None => {}
        }
        Ok(())
    }

    fn on_drain(&mut self, live: &mut Live, drain: &v1::Drain) {
        self.observer.draining(&drain.reason);
        let now = Instant::now();
        let low = drain.reconnect_after_min.map_or(Duration::ZERO, from_duration);
        let high = drain.reconnect_after_max.map_or(low, from_duration);
        let reconnect_at = now + between(low, high, &mut self.rng);
        let stay = drain.time_left.map_or(SILENCE_MAX, from_duration).mul_f64(STAY).min(STAY_MAX);
        live.leaving = Some(Leaving { reconnect_at, at_latest: reconnect_at.max(now + stay) });
        self.release_untouched();
    }

    fn on_deliver(&mut self, live: &Live, deliver: v1::Deliver) -> Result<(), Error> {
        let leaving = self.stop != Stop::No || live.leaving.is_some();
        for delivery in deliver.deliveries {
            let delivery = Delivery::attached(delivery, self.sender.clone())
                .ok_or(Error::Protocol("a delivery without event or token"))?;
            self.observer.delivered(&delivery);
            if leaving {
                self.release(&delivery);
                continue;
            }
            self.held.add(&delivery);
            self.queue.push(delivery);
        }
        if self.held.len() > usize::try_from(INFLIGHT_EVENTS_MAX).unwrap_or(usize::MAX) {
            return Err(Error::Protocol("more than 10,000 unsettled deliveries"));
        }
        Ok(())
    }

    fn on_command(&mut self, live: &mut Live, command: Command) {
        match command {
            Command::Settle(item) => {
                if self.held.finish(&item.token) {
                    self.batch.push(item, Instant::now());
                } else {
                    // Of an older stream, and not resumed.
                    self.keep(item);
                }
            }
            Command::Hold { token, duration } => {
                if self.held.holds(&token) {
                    live.hold(v1::Hold { token, duration: Some(to_duration(duration)) });
                }
            }
            Command::Flow(flow) => {
                self.flow = flow;
                live.flow(flow);
            }
            Command::Goodbye => {
                if self.stop == Stop::No {
                    self.stop = Stop::Goodbye;
                    live.goodbye();
                    self.release_untouched();
                }
            }
            Command::Close { deadline } => {
                self.stop = Stop::Close(deadline);
                self.release_untouched();
                self.batch.hurry(Instant::now());
            }
        }
    }

    /// Gives back what the application has not seen.
    fn release_untouched(&mut self) {
        for delivery in self.queue.take_all() {
            self.held.finish(delivery.token());
            self.release(&delivery);
        }
    }

    fn release(&mut self, delivery: &Delivery) {
        let item = Item {
            token: delivery.token().clone(),
            receipt_id: delivery.receipt_id().to_owned(),
            outcome: Outcome::Release,
            reply: None,
        };
        self.batch.push(item, Instant::now());
    }
}
