//! Outcomes whose stream is over: they are settled by unary calls, so that work finished as a stream broke is not done again.

use std::collections::VecDeque;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use portero_proto::v1;
use tokio::time::Instant;

use crate::batch::{Item, apply};
use crate::error::Error;
use crate::link::Link;
use crate::outcome::{Outcome, SettlementStatus};

/// Most outcomes kept; the oldest go first.
const ITEMS_MAX: usize = 10_000;
/// Most items of one call. Half of what the protocol allows, so that even the longest reasons stay within a frame's 1 MiB.
const CALL_ITEMS_MAX: usize = 500;
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// First and longest wait after a call that recorded nothing.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Calls in a row that may record nothing, before their outcomes are given up: about five minutes.
const FAILURES_MAX: u32 = 36;

/// An answer to a unary settle.
pub(crate) type Answer = Result<v1::SettleResponse, Error>;

/// Outcomes to settle outside of their stream.
#[derive(Default)]
pub(crate) struct Late {
    waiting: VecDeque<Item>,
    called: Vec<Item>,
    not_before: Option<Instant>,
    failures: u32,
}

/// What a call brought.
#[derive(Default)]
pub(crate) struct Brought {
    pub(crate) done: Vec<(Item, SettlementStatus)>,
    pub(crate) lost: Vec<Item>,
    pub(crate) again: usize,
}

impl Late {
    /// Adds an outcome; gives back one that found no room. A release needs no call: the end of its stream released it.
    #[must_use]
    pub(crate) fn push(&mut self, item: Item) -> Option<Item> {
        if item.outcome == Outcome::Release {
            return None;
        }
        self.waiting.push_back(item);
        if self.waiting.len() > ITEMS_MAX { self.waiting.pop_front() } else { None }
    }

    /// Whether every outcome has its status.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.called.is_empty()
    }

    /// When the next call may go; `None` when there is nothing to call for, or a call is under way.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        (!self.waiting.is_empty() && self.called.is_empty()).then(|| self.not_before.unwrap_or(now))
    }

    /// Begins a call with the oldest outcomes. One at a time; its answer goes to [`answered`](Self::answered), and when it
    /// is dropped without one, [`recall`](Self::recall).
    pub(crate) fn call(&mut self, link: &dyn Link, subscription: &str) -> BoxFuture<'static, Answer> {
        self.called = self.waiting.drain(..self.waiting.len().min(CALL_ITEMS_MAX)).collect();
        let items = self.called.iter().map(|item| item.outcome.to_settlement(item.token.clone())).collect();
        let call = link.settle(v1::SettleRequest { subscription: subscription.to_owned(), items });
        async move { tokio::time::timeout(CALL_TIMEOUT, call).await.unwrap_or(Err(Error::Silent)) }.boxed()
    }

    /// The call's answer.
    pub(crate) fn answered(&mut self, answer: Answer, now: Instant) -> Brought {
        let items = std::mem::take(&mut self.called);
        let (done, again, refused) = match answer {
            Ok(response) => {
                let (done, again) = apply(items, response.results);
                (done, again, false)
            }
            // The token may be renewed until the next call; what the gateway finds wrong stays wrong.
            Err(error) => (Vec::new(), items, error.is_fatal(true)),
        };
        let mut brought = Brought { done, lost: Vec::new(), again: again.len() };
        if again.is_empty() {
            self.failures = 0;
            self.not_before = None;
        } else if refused || self.failures >= FAILURES_MAX {
            self.failures = 0;
            brought.again = 0;
            brought.lost = again;
        } else {
            let wait = AGAIN.0.saturating_mul(1 << self.failures.min(10)).min(AGAIN.1);
            self.failures += 1;
            self.not_before = Some(now + wait);
            self.put_back(again);
        }
        brought
    }

    /// The call was dropped: its outcomes wait again.
    pub(crate) fn recall(&mut self) {
        let items = std::mem::take(&mut self.called);
        self.put_back(items);
    }

    /// All outcomes without a status.
    pub(crate) fn take_all(&mut self) -> Vec<Item> {
        self.recall();
        self.waiting.drain(..).collect()
    }

    fn put_back(&mut self, items: Vec<Item>) {
        for item in items.into_iter().rev() {
            self.waiting.push_front(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message as _;

    use super::*;

    fn item(n: usize, outcome: Outcome) -> Item {
        let token = Bytes::from(format!("token-{n}"));
        Item { token, receipt_id: format!("rcpt_{n}"), outcome, reply: None }
    }

    #[test]
    fn a_release_needs_no_call() {
        let mut late = Late::default();
        assert!(late.push(item(0, Outcome::Release)).is_none());
        assert!(late.is_empty());
    }

    #[test]
    fn beyond_the_bound_the_oldest_outcome_is_given_back() {
        let mut late = Late::default();
        for n in 0..ITEMS_MAX {
            assert!(late.push(item(n, Outcome::Ack)).is_none());
        }
        let lost = late.push(item(ITEMS_MAX, Outcome::Ack)).expect("one too many");
        assert_eq!(lost.receipt_id, "rcpt_0");
    }

    #[test]
    fn the_largest_call_fits_what_a_gateway_decodes() {
        let longest = Outcome::Retry {
            after: Some(Duration::from_secs(86_400)),
            code: "X".repeat(64),
            text: "x".repeat(1_024),
        };
        let item = longest.to_settlement(Bytes::from(vec![0xff; 64]));
        let subscription = "s".repeat(100);
        let request = v1::SettleRequest { subscription, items: vec![item; CALL_ITEMS_MAX] };
        assert!(request.encoded_len() < 1 << 20, "{} bytes", request.encoded_len());
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_gateway_finds_wrong_is_given_up_and_what_it_cannot_record_is_kept() {
        let now = Instant::now();
        let mut late = Late { called: vec![item(0, Outcome::Ack)], ..Late::default() };
        let brought = late.answered(Err(tonic::Status::unavailable("").into()), now);
        assert_eq!((brought.again, brought.lost.len()), (1, 0));
        assert_eq!(late.due(now), Some(now + AGAIN.0));
        late.called = std::mem::take(&mut late.waiting).into();
        let brought = late.answered(Err(tonic::Status::not_found("").into()), now);
        assert_eq!((brought.again, brought.lost.len()), (0, 1));
        assert!(late.is_empty());
    }
}
