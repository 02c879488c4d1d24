//! The life of one stream: hello, welcome, deliveries, settlements, heartbeats, end.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use portero_auth::{Caller, LEEWAY, Reason};
use portero_dispatcher::{
    DrainReason, EndReason, Ending, Frame, MAX_HOLD, Settler, Status as Settled, StreamHandle, StreamSpec,
};
use portero_proto::v1;
use portero_proto::v1::subscribe_request::Frame as ClientFrame;
use portero_proto::v1::subscribe_response::Frame as ServerFrame;
use portero_types::{Generation, SubscriptionNo};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tonic::{Code, Status, Streaming};

use super::service::{Call, Subscriber, from_attach};
use super::standing::Standing;
use super::{convert, token};
use crate::authenticate::coded;
use crate::connection::Peer;
use crate::error::invalid;
use crate::{name, time};

const PROTOCOL: u32 = 1;
const HELLO_WITHIN: Duration = Duration::from_secs(10);
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
/// A client that sends nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// After the client closed its side, settlements that are on their way get so long.
const FAREWELL: Duration = Duration::from_secs(5);
/// Frames of ours that wait for the transport before no more are taken from the dispatcher.
const QUEUE_MAX: usize = 8;
/// Settlements whose statuses the client has not taken: twice the largest window of deliveries.
const OWED_MAX: usize = 20_000;
/// After its connection's client is no longer trusted, a consumer has so long to settle; then the connection is cut.
const SETTLE_WITHIN: Duration = portero_tls::LEAVE_WITHIN.saturating_sub(Duration::from_secs(10));
const MESSAGE_BYTES_DEFAULT: u64 = 4 << 20;
const MESSAGE_BYTES_MIN: u64 = 64 << 10;
const HOLD_MAX: Duration = Duration::from_secs(3_600);
const NAME_BYTES_MAX: usize = 128;
const UNSETTLED_MAX: usize = 10_000;

type Outgoing = mpsc::Sender<Result<v1::SubscribeResponse, Status>>;
type Settling = FuturesUnordered<BoxFuture<'static, (u64, Vec<Bytes>, Vec<Settled>)>>;

struct Session {
    subscription: SubscriptionNo,
    generation: Generation,
    handle: StreamHandle,
    settler: Settler,
    settling: Settling,
    queue: VecDeque<ServerFrame>,
    heard: Instant,
    /// Settlements whose statuses are not handed to the transport yet.
    owed: usize,
    /// The connection's client; `None` once the consumer was asked to leave because nobody trusts it any more.
    peer: Option<Peer>,
    /// Why the stream ends though nothing is wrong with it: its token has expired, or its grant is gone.
    refusal: Option<Status>,
}

/// What follows from a frame or an end.
enum Next {
    Go,
    HalfClosed,
    Gone,
}

/// Serves one stream until it ends; an error is the status that the client gets.
pub(super) async fn run(
    service: Subscriber,
    own: Caller,
    peer: Peer,
    mut incoming: Streaming<v1::SubscribeRequest>,
    outgoing: &Outgoing,
) -> Result<(), Status> {
    let hello = tokio::time::timeout(HELLO_WITHIN, incoming.message())
        .await
        .map_err(|_| Status::deadline_exceeded("no Hello came within ten seconds"))?
        .map_err(|status| if is_malformed(&status) { malformed() } else { status })?;
    let hello = match hello.and_then(|request| request.frame) {
        Some(ClientFrame::Hello(hello)) => hello,
        Some(_) => return Err(Status::invalid_argument("the first frame must be Hello")),
        None => {
            return Err(Status::invalid_argument("the stream ended before Hello, or the frame was empty"));
        }
    };
    let id = name::subscription(&hello.subscription, "subscription")?;
    let mut standing = Standing::new(&service, own);
    let number = service.permitted(standing.own(), &id, Call::Subscribe).await?;
    let spec = spec(&hello, number)?;
    let flow = spec.flow;
    let handle = service.dispatcher.attach(spec).await.map_err(from_attach)?;
    let mut session = Session {
        subscription: number,
        generation: handle.generation(),
        settler: handle.settler(),
        handle,
        settling: FuturesUnordered::new(),
        queue: VecDeque::new(),
        heard: Instant::now(),
        owed: 0,
        peer: Some(peer),
        refusal: None,
    };
    tracing::info!(
        subscription.id = hello.subscription, stream.id = session.handle.id(), instance = hello.instance_id,
        subject = %standing.own().subject, lanes = session.handle.lanes(), "a consumer's stream opened"
    );
    session.queue.push_back(ServerFrame::Welcome(v1::Welcome {
        stream_id: session.handle.id().to_string(),
        generation: session.generation.0,
        heartbeat_every: Some(time::duration_to_proto(HEARTBEAT_EVERY)),
        max_hold: Some(time::duration_to_proto(MAX_HOLD)),
        flow: Some(v1::Flow { max_inflight_events: flow.events_max, max_inflight_bytes: flow.bytes_max }),
        assigned_lanes: u32::try_from(session.handle.lanes()).unwrap_or(u32::MAX),
        resumed_tokens: session.handle.resumed().iter().map(|item| token::encode(number, item)).collect(),
        subscription_lanes: session.handle.subscription_lanes().into(),
    }));
    let expires = standing.own().expires_at.plus(LEEWAY).since(service.clock.now());
    let result =
        session.serve(&service, &mut standing, &mut incoming, outgoing, Instant::now() + expires).await;
    let (ending, result) = match result {
        Ok(ending) => (ending, session.refusal.take().map_or(Ok(()), Err)),
        Err(status) => (Ending::Abnormal, Err(status)),
    };
    tracing::info!(
        subscription.id = hello.subscription, stream.id = session.handle.id(), ending = ?ending,
        status = ?result.as_ref().err().map(Status::code), "a consumer's stream ended"
    );
    session.handle.end(ending).await;
    result
}

fn spec(hello: &v1::Hello, subscription: SubscriptionNo) -> Result<StreamSpec, Status> {
    for (field, value) in [("instance_id", &hello.instance_id), ("boot_id", &hello.boot_id)] {
        if value.is_empty() || value.len() > NAME_BYTES_MAX || value.chars().any(char::is_control) {
            return Err(invalid(field, "must be 1 to 128 bytes without control characters"));
        }
    }
    if hello.protocol != PROTOCOL {
        return Err(invalid("protocol", "must be 1: this gateway speaks no other"));
    }
    let message_bytes_max = match u64::from(hello.max_message_bytes) {
        0 => MESSAGE_BYTES_DEFAULT,
        given if given < MESSAGE_BYTES_MIN => {
            return Err(invalid("max_message_bytes", "must be at least 65536"));
        }
        given => given,
    };
    if hello.unsettled_tokens.len() > UNSETTLED_MAX {
        return Err(invalid("unsettled_tokens", "must be at most 10000"));
    }
    // What is no token of this subscription is simply not resumed.
    let unsettled =
        hello.unsettled_tokens.iter().filter_map(|bytes| token::decode(subscription, bytes)).collect();
    Ok(StreamSpec {
        subscription,
        instance: hello.instance_id.clone(),
        boot: hello.boot_id.clone(),
        flow: convert::flow(hello.flow)?,
        message_bytes_max,
        unsettled,
    })
}

impl Session {
    async fn serve(
        &mut self,
        service: &Subscriber,
        standing: &mut Standing,
        incoming: &mut Streaming<v1::SubscribeRequest>,
        outgoing: &Outgoing,
        expires: Instant,
    ) -> Result<Ending, Status> {
        let mut heartbeat = heartbeat();
        let mut ended = pin!(self.handle.ended());
        loop {
            tokio::select! {
                message = incoming.message() => match self.received(message).await? {
                    Next::Go => {}
                    Next::HalfClosed => return Ok(self.farewell(outgoing).await),
                    Next::Gone => return Ok(Ending::Abnormal),
                },
                permit = outgoing.reserve(), if !self.queue.is_empty() => {
                    let (Ok(permit), Some(frame)) = (permit, self.queue.pop_front()) else { return Ok(Ending::Abnormal) };
                    if let ServerFrame::Settled(settled) = &frame {
                        self.owed -= settled.results.len();
                    }
                    permit.send(Ok(v1::SubscribeResponse { frame: Some(frame) }));
                }
                reason = &mut ended => {
                    self.farewell(outgoing).await;
                    return Err(from_end(reason));
                }
                Ok(frame) = self.handle.next(), if self.queue.len() < QUEUE_MAX => self.queue_frame(frame, service),
                Some((frame_no, tokens, statuses)) = self.settling.next() => {
                    self.queue.push_back(settled(frame_no, tokens, statuses));
                }
                _ = heartbeat.tick() => self.queue_heartbeat(service).await,
                () = tokio::time::sleep_until(self.heard + SILENCE_MAX) => {
                    return Err(Status::deadline_exceeded("no frame came from the client for 25 seconds"));
                }
                () = tokio::time::sleep_until(expires) => {
                    let message = "the token has expired; reconnect with a new one";
                    let status = coded(Code::Unauthenticated, Reason::Expired.code(), message);
                    return Ok(self.refuse(status, outgoing).await);
                }
                () = distrusted(self.peer.as_ref()) => {
                    self.peer = None;
                    self.handle.distrust(SETTLE_WITHIN).await;
                }
                status = standing.lost(service, self.subscription) => {
                    return Ok(self.refuse(status, outgoing).await);
                }
            }
        }
    }

    async fn received(
        &mut self,
        message: Result<Option<v1::SubscribeRequest>, Status>,
    ) -> Result<Next, Status> {
        let request = match message {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(Next::HalfClosed),
            Err(status) if status.code() == Code::OutOfRange => {
                return Err(invalid("frame", "must be at most 1 MiB"));
            }
            Err(status) if is_malformed(&status) => return Err(malformed()),
            Err(_) => return Ok(Next::Gone),
        };
        self.heard = Instant::now();
        match request.frame {
            Some(ClientFrame::Settle(settle)) => self.settle(settle)?,
            Some(ClientFrame::Flow(flow)) => self.handle.flow(convert::flow(Some(flow))?).await,
            Some(ClientFrame::Hold(hold)) => {
                let duration = hold.duration.unwrap_or_default();
                let duration = time::duration(&duration, "hold.duration", HOLD_MAX)?;
                if let Some(token) = token::decode(self.subscription, &hold.token) {
                    self.handle.hold(token, duration).await;
                }
            }
            Some(ClientFrame::Heartbeat(_)) => {}
            Some(ClientFrame::Goodbye(_)) => self.handle.goodbye().await,
            Some(ClientFrame::Hello(_)) => {
                return Err(Status::invalid_argument("Hello must come first and once"));
            }
            None => {
                return Err(Status::invalid_argument(
                    "a frame was empty, or of a kind that protocol 1 does not have",
                ));
            }
        }
        Ok(Next::Go)
    }

    fn settle(&mut self, settle: v1::Settle) -> Result<(), Status> {
        if self.owed + settle.items.len() > OWED_MAX {
            return Err(Status::resource_exhausted(
                "too many settlements wait for their statuses; read them",
            ));
        }
        self.owed += settle.items.len();
        let items = convert::settlements(&settle.items, self.subscription)?;
        let tokens = settle.items.into_iter().map(|item| item.token).collect();
        let settler = self.settler.clone();
        self.settling.push(Box::pin(async move { (settle.frame_no, tokens, settler.settle(items).await) }));
        Ok(())
    }

    fn queue_frame(&mut self, frame: Frame, service: &Subscriber) {
        let frame = match frame {
            Frame::Deliver(deliveries) => {
                let (subscription, generation) = (self.subscription, self.generation);
                let deliveries = deliveries
                    .into_iter()
                    .map(|delivery| convert::delivery(delivery, subscription, generation))
                    .collect();
                ServerFrame::Deliver(v1::Deliver { deliveries })
            }
            Frame::Revoke { tokens } => ServerFrame::Revoke(v1::Revoke {
                tokens: tokens.iter().map(|item| token::encode(self.subscription, item)).collect(),
                reason: "the delivery is over; only an acknowledgment still counts".to_owned(),
            }),
            Frame::Drain { deadline, reconnect_within, reason } => {
                let left = deadline.since(service.clock.now());
                ServerFrame::Drain(v1::Drain {
                    deadline: Some(time::to_proto(deadline)),
                    reconnect_after_min: Some(time::duration_to_proto(Duration::ZERO)),
                    reconnect_after_max: Some(time::duration_to_proto(reconnect_within.min(left))),
                    reason: match reason {
                        DrainReason::ShuttingDown => "this gateway is shutting down".to_owned(),
                        DrainReason::StreamAge => {
                            "the stream is old; a new one may find a better place".to_owned()
                        }
                        DrainReason::Distrusted => {
                            "the client certificate is no longer trusted; reconnect with another".to_owned()
                        }
                    },
                    time_left: Some(time::duration_to_proto(left)),
                })
            }
        };
        self.queue.push_back(frame);
    }

    async fn queue_heartbeat(&mut self, service: &Subscriber) {
        if self.queue.len() >= QUEUE_MAX {
            return;
        }
        let backlog = self.handle.backlog().await;
        let age = backlog.oldest_unsettled.map(|oldest| service.clock.now().since(oldest));
        self.queue.push_back(ServerFrame::Heartbeat(v1::ServerHeartbeat {
            head_lag: backlog.head_lag,
            oldest_unsettled_age: age.map(time::duration_to_proto),
        }));
    }

    /// The caller may no longer be here. Nobody's fault: what is in hand is not counted as interrupted.
    async fn refuse(&mut self, status: Status, outgoing: &Outgoing) -> Ending {
        self.refusal = Some(status);
        self.farewell(outgoing).await
    }

    /// The client closed its side: answer what it has settled, then end.
    async fn farewell(&mut self, outgoing: &Outgoing) -> Ending {
        self.handle.goodbye().await;
        let answer = async {
            while let Some((frame_no, tokens, statuses)) = self.settling.next().await {
                self.queue.push_back(settled(frame_no, tokens, statuses));
            }
            for frame in self.queue.drain(..).filter(|frame| matches!(frame, ServerFrame::Settled(_))) {
                if outgoing.send(Ok(v1::SubscribeResponse { frame: Some(frame) })).await.is_err() {
                    return;
                }
            }
        };
        // What was settled is settled, whether its status still arrives or not.
        let _ = tokio::time::timeout(FAREWELL, answer).await;
        Ending::Graceful
    }
}

/// Resolves when the client of the stream's connection is no longer trusted.
async fn distrusted(peer: Option<&Peer>) {
    match peer {
        Some(peer) => peer.distrusted.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Whether the transport handed on bytes that are no frame: tonic gives such a message the code INTERNAL.
fn is_malformed(status: &Status) -> bool {
    status.code() == Code::Internal
}

fn malformed() -> Status {
    Status::invalid_argument("a frame is not a well-formed SubscribeRequest")
}

fn heartbeat() -> Interval {
    let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT_EVERY, HEARTBEAT_EVERY);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

fn settled(frame_no: u64, tokens: Vec<Bytes>, statuses: Vec<Settled>) -> ServerFrame {
    ServerFrame::Settled(v1::Settled { frame_no, results: convert::results(tokens, statuses) })
}

fn from_end(reason: EndReason) -> Status {
    match reason {
        EndReason::Replaced => Status::aborted("a newer stream of the same instance took over"),
        EndReason::SubscriptionDeleted => Status::not_found("the subscription was deleted"),
        EndReason::Fenced => Status::aborted("another gateway took over; reconnect"),
        EndReason::WriteStall => Status::deadline_exceeded("no frame was taken for 30 seconds"),
        EndReason::ShuttingDown => Status::unavailable("this gateway is shutting down; reconnect"),
        EndReason::GenerationChanged => Status::aborted("generation: the log has another one; reconnect"),
        EndReason::Aged => Status::unavailable("the stream is old; reconnect"),
        EndReason::Distrusted => {
            Status::unavailable("the client certificate is no longer trusted; reconnect with another")
        }
        EndReason::Broken => Status::unavailable("this gateway lost the state of the stream; reconnect"),
    }
}
