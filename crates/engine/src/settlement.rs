//! What a consumer says of a delivery, and what the lane answers.

use std::time::Duration;

use portero_types::limits::REASON_BYTES_MAX;

use crate::Token;

/// Codes that the engine itself gives.
pub mod reason {
    /// Reached `attempts_max`, and the consumer gave no code of its own.
    pub const ATTEMPTS_EXHAUSTED: &str = "ATTEMPTS_EXHAUSTED";
    /// Reached `interruptions_max`: consumers went away with it without a word.
    pub const INTERRUPTED: &str = "INTERRUPTED";
    /// Rejected, and the consumer gave no code of its own.
    pub const REJECTED: &str = "REJECTED";
    /// Still deferred at its deadline.
    pub const DEFER_DEADLINE: &str = "DEFER_DEADLINE";
    /// Not settled within `max_hold`.
    pub const HOLD_EXPIRED: &str = "HOLD_EXPIRED";
    /// No frame of the client can carry it.
    pub const TOO_LARGE_FOR_CLIENT: &str = "TOO_LARGE_FOR_CLIENT";
    /// What is stored of it cannot be opened.
    pub const BODY_UNREADABLE: &str = "BODY_UNREADABLE";
    /// Given up by an operator.
    pub const OPERATOR: &str = "OPERATOR";
    /// Longest code that is kept, bytes; a longer one is cut.
    pub const CODE_BYTES_MAX: usize = 64;
}

/// Why an event failed or steps aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    code: String,
    text: String,
}

impl Reason {
    /// Cuts `code` to 64 and `text` to [`REASON_BYTES_MAX`] bytes, at character boundaries, and drops NUL characters,
    /// which no text column takes. Either may be empty.
    #[must_use]
    pub fn new(code: &str, text: &str) -> Self {
        Self { code: cut(code, reason::CODE_BYTES_MAX), text: cut(text, REASON_BYTES_MAX) }
    }

    /// The stable code; may be empty.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The words for people; may be empty.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Both, for the reason of something that follows from it.
    pub(crate) fn in_words(&self) -> String {
        match (self.code.is_empty(), self.text.is_empty()) {
            (true, _) => self.text.clone(),
            (false, true) => self.code.clone(),
            (false, false) => format!("{}: {}", self.code, self.text),
        }
    }

    pub(crate) fn or_code(mut self, code: &str) -> Self {
        if self.code.is_empty() {
            code.clone_into(&mut self.code);
        }
        self
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut kept = String::new();
    for character in text.chars().filter(|character| *character != '\0') {
        if kept.len() + character.len_utf8() > bytes_max {
            break;
        }
        kept.push(character);
    }
    kept
}

/// What a consumer says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Ack,
    /// Failed for now: counts an attempt and parks the entity until the event is due again.
    Retry {
        /// Not before this long from now, cut to `retry_delay_max`; `None` for the backoff.
        delay: Option<Duration>,
    },
    /// Not worked on: offered again at once, uncounted.
    Release,
    /// Never going to work: a dead letter now. Counts as an attempt.
    Reject,
    /// Valid but too early: steps aside uncounted, earlier attempts are forgotten, and it is offered again after each
    /// durable ack of its entity, until its deadline.
    Defer,
}

/// An outcome for one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Which delivery.
    pub token: Token,
    /// What became of it.
    pub outcome: Outcome,
    /// Why; used by retry, reject and defer.
    pub reason: Reason,
}

/// The caller's own number for a settlement; comes back with its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u64);

/// What became of a settlement. Each settlement gets exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Written (ack, retry, reject, defer), or nothing had to be (release). An acked or rejected event is not delivered again.
    Durable,
    /// A late ack: written, but another delivery of the event had begun, or another owner had made the delivery.
    DurableLate,
    /// The event was settled before, and that is written. Nothing changed.
    Already,
    /// The delivery is over: the event was or will be delivered again. Nothing changed.
    Stale,
    /// No delivery of this lane. Nothing changed.
    UnknownToken,
    /// Nothing is recorded, or it is not known whether it is. Send it again.
    TryAgain,
}

/// The answer to one settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// From the settlement.
    pub tag: Tag,
    /// What became of it.
    pub status: Status,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// By `Goodbye`, half-close or drain: what it had is offered again at once, uncounted.
    Graceful,
    /// Without a word: what it had is interrupted, which is counted apart from attempts.
    Abnormal,
}

/// Why the caller could not send a delivery that it had polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Undeliverable {
    /// The stream could not take it after all: offered again at once, uncounted.
    NotSent,
    /// Retention has dropped the body: counted as expired.
    BodyGone,
    /// It was offered alone and no frame of the client can carry it: a dead letter with the code
    /// [`TOO_LARGE_FOR_CLIENT`](reason::TOO_LARGE_FOR_CLIENT).
    TooLarge,
    /// What is stored of it cannot be opened, for now or for good: it waits with its entity, uncounted, and is tried again
    /// every [`unreadable_pause`](crate::LaneConfig::unreadable_pause) with the code
    /// [`BODY_UNREADABLE`](reason::BODY_UNREADABLE), until somebody mends it or an operator gives it up.
    Unreadable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_cut_at_character_boundaries_and_lose_nul() {
        let reason = Reason::new(&"C".repeat(100), &"ä\0".repeat(REASON_BYTES_MAX));
        assert_eq!(reason.code().len(), reason::CODE_BYTES_MAX);
        assert_eq!(reason.text().len(), REASON_BYTES_MAX);
        assert!(!reason.text().contains('\0'));
    }
}
