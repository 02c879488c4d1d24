//! A stream that was welcomed: its two directions, and when something is due on it.

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use portero_proto::v1;
use portero_proto::v1::subscribe_request;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::late::Answer;
use crate::link::{Frames, Link};
use crate::outcome::from_duration;

/// Silence after which the other side counts as dead.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(25);
/// Bounds of the heartbeat that a gateway may ask for.
const HEARTBEAT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Requests for more time that may wait; further ones are dropped.
const CONTROL_MAX: usize = 1_024;
/// How long a closed stream may take to end on the gateway's side.
const FAREWELL: Duration = Duration::from_secs(1);

/// A gateway's wish that the client reconnect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    /// When to reconnect.
    pub(crate) reconnect_at: Instant,
    /// When to go although work goes on: a little before the gateway takes it back, so that another may resume it.
    pub(crate) at_latest: Instant,
}

/// A stream that was welcomed.
pub(crate) struct Live {
    pub(crate) link: Box<dyn Link>,
    pub(crate) frames: Frames,
    pub(crate) outbound: mpsc::Sender<v1::SubscribeRequest>,
    /// The gateway reads no more; what it has to say is in `frames`.
    pub(crate) deaf: bool,
    heartbeat_every: Duration,
    heartbeat_at: Instant,
    pub(crate) heard_at: Instant,
    control: VecDeque<subscribe_request::Frame>,
    /// Set once the gateway asked for it.
    pub(crate) leaving: Option<Leaving>,
    /// A unary call beside the stream.
    pub(crate) call: Option<BoxFuture<'static, Answer>>,
}

impl Live {
    pub(crate) fn new(
        link: Box<dyn Link>,
        frames: Frames,
        outbound: mpsc::Sender<v1::SubscribeRequest>,
        heartbeat_every: Option<prost_types::Duration>,
        now: Instant,
    ) -> Self {
        let asked = heartbeat_every.map_or(HEARTBEAT.1, from_duration);
        // A little early, because the gateway counts on its side of the network.
        let heartbeat_every = asked.clamp(HEARTBEAT.0, HEARTBEAT.1).mul_f64(0.8);
        Self {
            link,
            frames,
            outbound,
            deaf: false,
            heartbeat_every,
            heartbeat_at: now + heartbeat_every,
            heard_at: now,
            control: VecDeque::new(),
            leaving: None,
            call: None,
        }
    }

    /// Asks for more time with a delivery.
    pub(crate) fn hold(&mut self, hold: v1::Hold) {
        if self.control.len() < CONTROL_MAX {
            self.control.push_back(subscribe_request::Frame::Hold(hold));
        }
    }

    /// Replaces the flow limits.
    pub(crate) fn flow(&mut self, flow: v1::Flow) {
        self.control.retain(|frame| !matches!(frame, subscribe_request::Frame::Flow(_)));
        self.control.push_back(subscribe_request::Frame::Flow(flow));
    }

    /// Asks for no more deliveries.
    pub(crate) fn goodbye(&mut self) {
        self.control.push_back(subscribe_request::Frame::Goodbye(v1::Goodbye {}));
    }

    pub(crate) fn has_frame(&self, now: Instant) -> bool {
        !self.control.is_empty() || self.heartbeat_at <= now
    }

    pub(crate) fn next_frame(&mut self, now: Instant) -> Option<subscribe_request::Frame> {
        if self.heartbeat_at <= now {
            self.heartbeat_at = now + self.heartbeat_every;
            return Some(subscribe_request::Frame::Heartbeat(v1::Heartbeat {}));
        }
        self.control.pop_front()
    }

    /// When something is due by itself: a heartbeat, or giving up on a silent gateway, or leaving.
    pub(crate) fn wakes(&self) -> impl Iterator<Item = Instant> {
        let leave = self.leaving.map(|leaving| leaving.at_latest);
        [self.heartbeat_at, self.heard_at + SILENCE_MAX].into_iter().chain(leave)
    }

    /// Ends our half and lets the gateway end its own.
    pub(crate) async fn farewell(self) {
        let Self { mut frames, outbound, .. } = self;
        drop(outbound);
        let until = Instant::now() + FAREWELL;
        while let Ok(Some(Ok(_))) = timeout_at(until, frames.next()).await {}
    }

    /// The answer of the call under way; never, when there is none.
    pub(crate) async fn answer(call: &mut Option<BoxFuture<'static, Answer>>) -> Answer {
        match call {
            Some(call) => call.await,
            None => std::future::pending().await,
        }
    }
}
