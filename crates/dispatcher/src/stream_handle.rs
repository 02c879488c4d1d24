//! What a consumer's connection holds of its stream.

use std::time::Duration;

use portero_engine::StreamId;
use portero_types::{Generation, SessionId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::actor::{Attached, Command};
use crate::session::Standing;
use crate::stream::{Backlog, DeliveryToken, EndReason, Ending, Flow, Frame, Settlement, Status};

/// A consumer's open stream. Dropping it ends the stream as an abnormal one.
pub struct StreamHandle {
    id: StreamId,
    generation: Generation,
    lanes: usize,
    subscription_lanes: u16,
    resumed: Vec<DeliveryToken>,
    frames: mpsc::Receiver<Frame>,
    /// Taken from `frames` and not given on yet.
    held: Option<Frame>,
    end: watch::Receiver<Option<EndReason>>,
    session: SessionId,
    standing: watch::Receiver<Standing>,
    actor: mpsc::Sender<Command>,
    ended: bool,
}

/// Takes outcomes for a stream while its frames are read elsewhere.
#[derive(Clone)]
pub struct Settler(mpsc::Sender<Command>);

impl Settler {
    /// One status per item, in order, after what has to be written is written.
    pub async fn settle(&self, items: Vec<Settlement>) -> Vec<Status> {
        let count = items.len();
        settle(&self.0, items, true).await.unwrap_or_else(|| vec![Status::TryAgain; count])
    }
}

/// Takes outcomes to an actor; `None` when it has ended.
pub(crate) async fn settle(
    actor: &mpsc::Sender<Command>,
    items: Vec<Settlement>,
    from_stream: bool,
) -> Option<Vec<Status>> {
    let (reply, answer) = oneshot::channel();
    actor.send(Command::Settle { items, from_stream, reply }).await.ok()?;
    answer.await.ok()
}

impl StreamHandle {
    pub(crate) fn new(
        attached: Attached,
        standing: watch::Receiver<Standing>,
        actor: mpsc::Sender<Command>,
    ) -> Self {
        let Attached { id, session, generation, frames, end, lanes, subscription_lanes, resumed } = attached;
        Self {
            id,
            generation,
            lanes,
            subscription_lanes,
            resumed,
            frames,
            held: None,
            end,
            session,
            standing,
            actor,
            ended: false,
        }
    }

    /// Its number within the subscription on this gateway, for logs.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id.0
    }

    /// The log's incarnation, which all of its deliveries belong to.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Lanes that it served when it was opened.
    #[must_use]
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// Lanes that the subscription has: of more streams than that, some serve none.
    #[must_use]
    pub const fn subscription_lanes(&self) -> u16 {
        self.subscription_lanes
    }

    /// Which of the deliveries that its consumer still works on go on here.
    #[must_use]
    pub fn resumed(&self) -> &[DeliveryToken] {
        &self.resumed
    }

    /// The next frame, or the reason why there is none any more. Cancel-safe.
    ///
    /// Deliveries are held back while this process may not trust its session: after it was paused, others may have taken
    /// its lanes over.
    ///
    /// # Errors
    /// [`EndReason`] when this side ended the stream.
    pub async fn next(&mut self) -> Result<Frame, EndReason> {
        loop {
            let is_held_back = match &self.held {
                None => {
                    tokio::select! {
                        biased;
                        // The end first: what still lies in the channel belongs to others by then.
                        ended = self.end.wait_for(Option::is_some) => return Err(reason(ended.ok().as_deref())),
                        frame = self.frames.recv() => self.held = Some(frame.ok_or(EndReason::Broken)?),
                    }
                    continue;
                }
                Some(Frame::Deliver(_)) => !self.standing.borrow_and_update().trusts(self.session),
                Some(Frame::Revoke { .. } | Frame::Drain { .. }) => false,
            };
            if !is_held_back && let Some(frame) = self.held.take() {
                return Ok(frame);
            }
            tokio::select! {
                biased;
                ended = self.end.wait_for(Option::is_some) => return Err(reason(ended.ok().as_deref())),
                changed = self.standing.changed() => changed.map_err(|_| EndReason::Broken)?,
            }
        }
    }

    /// Resolves with the reason when this side ends the stream, whether frames are taken or not.
    pub fn ended(&self) -> impl Future<Output = EndReason> + Send + 'static {
        let mut end = self.end.clone();
        async move { reason(end.wait_for(Option::is_some).await.ok().as_deref()) }
    }

    /// Takes outcomes apart from the frames.
    #[must_use]
    pub fn settler(&self) -> Settler {
        Settler(self.actor.clone())
    }

    /// Replaces the limits.
    pub async fn flow(&self, flow: Flow) {
        self.tell(Command::Flow { stream: self.id, flow }).await;
    }

    /// Gives a delivery more time.
    pub async fn hold(&self, token: DeliveryToken, duration: Duration) {
        self.tell(Command::Hold { token, duration }).await;
    }

    /// No more deliveries, please.
    pub async fn goodbye(&self) {
        self.tell(Command::Goodbye { stream: self.id }).await;
    }

    /// Asks the consumer to settle and reconnect, because its connection's client is no longer trusted. It gets no more
    /// deliveries, and the stream ends once nothing of it is open, `within` this time at the latest.
    pub async fn distrust(&self, within: Duration) {
        self.tell(Command::Distrust { stream: self.id, within }).await;
    }

    /// How far behind the subscription is.
    pub async fn backlog(&self) -> Backlog {
        let (reply, answer) = oneshot::channel();
        self.tell(Command::Backlog { reply }).await;
        answer.await.unwrap_or_default()
    }

    /// Ends the stream from the consumer's side.
    pub async fn end(mut self, ending: Ending) {
        self.ended = true;
        self.tell(Command::Ended { stream: self.id, ending }).await;
    }

    async fn tell(&self, command: Command) {
        // An actor that is gone has ended the stream; `next` says so.
        let _ = self.actor.send(command).await;
    }
}

/// Why a stream is over; an actor that is gone without a word broke down.
fn reason(said: Option<&Option<EndReason>>) -> EndReason {
    said.copied().flatten().unwrap_or(EndReason::Broken)
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let command = Command::Ended { stream: self.id, ending: Ending::Abnormal };
        if let Err(mpsc::error::TrySendError::Full(command)) = self.actor.try_send(command) {
            let actor = self.actor.clone();
            tokio::spawn(async move { actor.send(command).await });
        }
    }
}
