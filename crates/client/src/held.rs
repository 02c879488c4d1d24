//! Deliveries that have no outcome yet, across streams: what a new stream may resume. Pure.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::delivery::Delivery;

/// Deliveries without an outcome, by token. Bounded by what one stream may have unsettled, because a new stream takes over
/// only what its gateway resumed.
#[derive(Debug, Default)]
pub(crate) struct Held {
    open: HashMap<Bytes, CancellationToken>,
    /// Taken back by the present stream while the application works on them: their outcomes may still go there.
    revoked: HashSet<Bytes>,
}

impl Held {
    /// Adds a delivery of the present stream.
    pub(crate) fn add(&mut self, delivery: &Delivery) {
        self.open.insert(delivery.token().clone(), delivery.revoked().clone());
    }

    /// The application is done with a delivery, or never began. Whether the present stream knows it, or, while there is
    /// none, the next one would have been asked about it.
    pub(crate) fn finish(&mut self, token: &Bytes) -> bool {
        self.open.remove(token).is_some() | self.revoked.remove(token)
    }

    /// Whether a delivery goes on.
    pub(crate) fn holds(&self, token: &Bytes) -> bool {
        self.open.contains_key(token)
    }

    /// The gateway takes deliveries back.
    pub(crate) fn revoke(&mut self, tokens: &HashSet<Bytes>) {
        for token in tokens {
            if let Some(revoked) = self.open.remove(token) {
                revoked.cancel();
                self.revoked.insert(token.clone());
            }
        }
    }

    /// The stream is over.
    pub(crate) fn stream_ended(&mut self) {
        self.revoked.clear();
    }

    /// What the next stream is asked to resume.
    pub(crate) fn tokens(&self) -> Vec<Bytes> {
        self.open.keys().cloned().collect()
    }

    /// A new stream goes on with these and with nothing else: the others are told to stop. How many go on, and how many stop.
    pub(crate) fn resume(&mut self, resumed: &HashSet<Bytes>) -> (usize, usize) {
        let before = self.open.len();
        self.open.retain(|token, revoked| {
            let goes_on = resumed.contains(token);
            if !goes_on {
                revoked.cancel();
            }
            goes_on
        });
        (self.open.len(), before - self.open.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use portero_proto::v1;
    use tokio::sync::mpsc;

    use super::*;

    fn delivery(token: &str) -> Delivery {
        let delivery = v1::Delivery {
            token: Bytes::from(token.to_owned()),
            event: Some(v1::Event::default()),
            ..v1::Delivery::default()
        };
        Delivery::attached(delivery, mpsc::channel(1).0).expect("well formed")
    }

    fn set(tokens: &[&str]) -> HashSet<Bytes> {
        tokens.iter().map(|token| Bytes::from((*token).to_owned())).collect()
    }

    #[test]
    fn what_a_new_stream_does_not_resume_is_stopped_and_forgotten() {
        let (mut held, a, b) = (Held::default(), delivery("a"), delivery("b"));
        held.add(&a);
        held.add(&b);
        held.stream_ended();
        assert_eq!(held.tokens().into_iter().collect::<HashSet<_>>(), set(&["a", "b"]));
        assert_eq!(held.resume(&set(&["a", "unheard-of"])), (1, 1));
        assert!(!a.revoked().is_cancelled() && b.revoked().is_cancelled());
        assert!(held.finish(a.token()) && !held.finish(b.token()));
        assert!(held.is_empty());
    }

    #[test]
    fn an_outcome_of_revoked_work_still_belongs_to_its_stream_but_not_to_the_next() {
        let (mut held, a, b) = (Held::default(), delivery("a"), delivery("b"));
        held.add(&a);
        held.add(&b);
        held.revoke(&set(&["a", "b", "unheard-of"]));
        assert!(a.revoked().is_cancelled() && held.is_empty());
        assert!(held.finish(a.token()));
        held.stream_ended();
        assert!(!held.finish(b.token()) && held.tokens().is_empty());
    }
}
