//! Telling other gateways which consumers have streams here, and ending streams whose consumer has moved on.
//!
//! A consumer whose connection broke without a word opens a new stream, maybe elsewhere; what is left of the old one here is
//! a ghost that would keep its deliveries until its silence is noticed.

use std::collections::VecDeque;

use portero_engine::StreamId;
use portero_store::ErrorKind;
use tokio::time::Instant;

use super::jobs::broken_write;
use super::{Actor, Done, PACE};
use crate::metrics;
use crate::roll::Reported;
use crate::stream::{EndReason, Ending, Stream};

/// Changes that others have to know, in order.
#[derive(Default)]
pub(super) struct Members {
    waiting: VecDeque<Change>,
    busy: bool,
}

#[derive(Clone)]
enum Change {
    Joined { stream: StreamId, instance: String, boot: String },
    Left { instance: String, boot: String },
}

/// Changes that were told, up to the first that could not be.
pub(super) struct MembersDone {
    joined: Vec<StreamId>,
    left_over: VecDeque<Change>,
    error: Option<portero_store::Error>,
}

impl Actor {
    pub(super) fn stream_joined(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(&id) {
            let (instance, boot) = (stream.instance.clone(), stream.boot.clone());
            self.members.waiting.push_back(Change::Joined { stream: id, instance, boot });
        }
    }

    /// A stream is gone. While another one of its instance is here, or all of them are leaving anyway, nobody needs to know.
    pub(super) fn stream_left(&mut self, stream: &Stream) {
        let is_here = self.streams.values().any(|other| other.instance == stream.instance);
        if self.drain.is_none() && !is_here {
            let (instance, boot) = (stream.instance.clone(), stream.boot.clone());
            self.members.waiting.push_back(Change::Left { instance, boot });
        }
    }

    /// Tells the changes one after the other, in one job.
    pub(super) fn tell_members(&mut self) {
        if self.members.busy || self.members.waiting.is_empty() {
            return;
        }
        // Who has left before anyone knew of it never came.
        let streams = &self.streams;
        self.members.waiting.retain(|change| match change {
            Change::Joined { stream, .. } => streams.contains_key(stream),
            Change::Left { .. } => true,
        });
        self.members.busy = true;
        let changes = std::mem::take(&mut self.members.waiting);
        let (store, session, subscription) = (self.shared.store.clone(), self.session, self.subscription.no);
        let lost = changes.clone();
        self.spawn(
            async move {
                let mut done = MembersDone { joined: Vec::new(), left_over: changes, error: None };
                while let Some(change) = done.left_over.front() {
                    let told = match change {
                        Change::Joined { instance, boot, .. } => {
                            store.join(session, subscription, instance, boot).await
                        }
                        Change::Left { instance, boot } => {
                            store.leave(session, subscription, instance, boot).await
                        }
                    };
                    if let Err(error) = told {
                        tokio::time::sleep(PACE).await;
                        done.error = Some(error);
                        break;
                    }
                    if let Some(Change::Joined { stream, .. }) = done.left_over.pop_front() {
                        done.joined.push(stream);
                    }
                }
                Done::Members(done)
            },
            move || {
                let error = Some(broken_write());
                Done::Members(MembersDone { joined: Vec::new(), left_over: lost, error })
            },
        );
    }

    pub(super) fn members_told(&mut self, done: MembersDone) {
        self.members.busy = false;
        let now = Instant::now();
        for id in done.joined {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.joined_at = Some(now);
            }
        }
        let Some(error) = done.error else { return };
        let mut left_over = done.left_over;
        if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::OutcomeUnknown) {
            // Of this one, not of those behind it. When the session is fenced or the subscription gone, this actor ends in a moment.
            left_over.pop_front();
            tracing::debug!(subscription.id = %self.subscription.id, %error, "others could not be told of a stream here");
        }
        for change in left_over.into_iter().rev() {
            self.members.waiting.push_front(change);
        }
    }

    /// Ends streams whose consumer has a newer one on another gateway. What was read before one joined does not count.
    pub(super) fn end_replaced(&mut self, reported: &Reported) {
        for instance in &reported.share.replaced {
            let ghosts: Vec<StreamId> = self
                .streams
                .iter()
                .filter(|(_, stream)| stream.instance == *instance)
                .filter(|(_, stream)| stream.joined_at.is_some_and(|joined| joined < reported.asked_at))
                .map(|(id, _)| *id)
                .collect();
            for ghost in ghosts {
                self.replace(ghost);
            }
        }
    }

    /// Ends a stream whose consumer has a newer one. When it had said goodbye, it owes nothing.
    pub(super) fn replace(&mut self, ghost: StreamId) {
        let said_goodbye = self.streams.get(&ghost).is_some_and(|stream| stream.closing);
        metrics::replaced();
        tracing::info!(subscription.id = %self.subscription.id, stream.id = ghost.0, "a consumer has a newer stream; the older one ends");
        self.end(ghost, EndReason::Replaced, if said_goodbye { Ending::Graceful } else { Ending::Abnormal });
    }
}
