//! What a consumer says of a delivery, and what the gateway answers.

use std::time::Duration;

use bytes::Bytes;
use portero_proto::v1;
use portero_types::limits::REASON_BYTES_MAX;

/// Longest reason code, bytes.
const CODE_BYTES_MAX: usize = 64;
/// Longest delay of a retry.
const DELAY_MAX: Duration = Duration::from_secs(24 * 3600);

/// What became of one delivery.
///
/// Codes are for machines: letters, digits and `_`, at most 64 bytes; they are upper-cased, and other characters become
/// `_`. Texts are for people, at most 1,024 bytes, longer ones are cut; both are stored, so they must hold no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Ack,
    /// Failed for now: counts an attempt; the entity waits, then the event comes again.
    Retry {
        /// Not before this long from now, at most 24 hours. `None`: the subscription's backoff.
        after: Option<Duration>,
        /// Stable code.
        code: String,
        /// For people.
        text: String,
    },
    /// Not worked on: offered again at once, uncounted.
    Release,
    /// Never going to work: a dead letter now.
    Reject {
        /// Stable code.
        code: String,
        /// For people.
        text: String,
    },
    /// Valid but too early: steps aside uncounted, and is offered again after each later ack of its entity.
    Defer {
        /// Stable code.
        code: String,
        /// For people.
        text: String,
    },
}

impl Outcome {
    /// A retry after the subscription's backoff.
    pub fn retry(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Retry { after: None, code: code.into(), text: text.into() }
    }

    /// A retry not before `after`.
    pub fn retry_after(after: Duration, code: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Retry { after: Some(after), code: code.into(), text: text.into() }
    }

    /// A dead letter now.
    pub fn reject(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Reject { code: code.into(), text: text.into() }
    }

    /// Valid but too early.
    pub fn defer(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Defer { code: code.into(), text: text.into() }
    }

    /// `ack`, `retry`, `release`, `reject` or `defer`: a label for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Retry { .. } => "retry",
            Self::Release => "release",
            Self::Reject { .. } => "reject",
            Self::Defer { .. } => "defer",
        }
    }

    /// As it goes over the wire, within the protocol's bounds: one bad reason must not end a stream.
    pub(crate) fn to_settlement(&self, token: Bytes) -> v1::Settlement {
        let (outcome, delay, reason) = match self {
            Self::Ack => (v1::Outcome::Ack, None, None),
            Self::Release => (v1::Outcome::Release, None, None),
            Self::Retry { after, code, text } => (v1::Outcome::Retry, *after, Some((code, text))),
            Self::Reject { code, text } => (v1::Outcome::Reject, None, Some((code, text))),
            Self::Defer { code, text } => (v1::Outcome::Defer, None, Some((code, text))),
        };
        let (reason_code, reason_text) =
            reason.map(|(code, text)| (clean_code(code), cut(text).to_owned())).unwrap_or_default();
        v1::Settlement {
            token,
            outcome: outcome.into(),
            delay: delay.map(|delay| to_duration(delay.min(DELAY_MAX))),
            reason_code,
            reason_text,
        }
    }
}

fn clean_code(code: &str) -> String {
    let code: String = code
        .chars()
        .take(CODE_BYTES_MAX)
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    if code.is_empty() { "UNSPECIFIED".to_owned() } else { code }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}

/// A duration as the protocol writes it; saturates.
pub(crate) fn to_duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// A duration from the protocol; negative ones are zero.
pub(crate) fn from_duration(duration: prost_types::Duration) -> Duration {
    let seconds = u64::try_from(duration.seconds).unwrap_or(0);
    Duration::new(seconds, u32::try_from(duration.nanos).unwrap_or(0).min(999_999_999))
}

/// The gateway's final word on a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettlementStatus {
    /// Committed: an acked or rejected event does not come again by itself, another outcome is recorded.
    Durable,
    /// An ack that came late: committed, but another delivery of the event had begun.
    DurableLate,
    /// Settled before; nothing changed.
    Already,
    /// The delivery was over: its event comes or came again. Nothing changed.
    Stale,
    /// Not a token of this subscription. Nothing changed.
    UnknownToken,
}

impl SettlementStatus {
    /// Whether the outcome is on record.
    #[must_use]
    pub fn is_durable(self) -> bool {
        matches!(self, Self::Durable | Self::DurableLate | Self::Already)
    }

    /// `durable`, `durable_late`, `already`, `stale` or `unknown_token`: a label for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::DurableLate => "durable_late",
            Self::Already => "already",
            Self::Stale => "stale",
            Self::UnknownToken => "unknown_token",
        }
    }

    /// `None` means: nothing is recorded, send it again. So does a status that this version does not know.
    pub(crate) fn from_proto(status: i32) -> Option<Self> {
        match v1::SettlementStatus::try_from(status).ok()? {
            v1::SettlementStatus::Durable => Some(Self::Durable),
            v1::SettlementStatus::DurableLate => Some(Self::DurableLate),
            v1::SettlementStatus::Already => Some(Self::Already),
            v1::SettlementStatus::Stale => Some(Self::Stale),
            v1::SettlementStatus::UnknownToken => Some(Self::UnknownToken),
            v1::SettlementStatus::TryAgain | v1::SettlementStatus::Unspecified => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_brought_within_the_protocols_bounds() {
        let wild = Outcome::Retry {
            after: Some(Duration::from_secs(1 << 30)),
            code: format!("db-down {}", "x".repeat(100)),
            text: "é".repeat(1_000),
        };
        let settlement = wild.to_settlement(Bytes::from_static(b"t"));
        assert_eq!(settlement.delay.map(|delay| delay.seconds), Some(86_400));
        assert!(settlement.reason_code.starts_with("DB_DOWN_XXX"));
        assert_eq!(settlement.reason_code.len(), 64);
        assert_eq!(settlement.reason_text.len(), 1_024);
        assert_eq!(Outcome::reject("", "").to_settlement(Bytes::new()).reason_code, "UNSPECIFIED");
    }

    #[test]
    fn an_ack_carries_no_reason() {
        let settlement = Outcome::Ack.to_settlement(Bytes::from_static(b"t"));
        assert_eq!(settlement.outcome(), v1::Outcome::Ack);
        assert!(settlement.reason_code.is_empty() && settlement.delay.is_none());
    }

    #[test]
    fn durations_survive_the_wire() {
        for duration in [Duration::ZERO, Duration::from_millis(1_500), Duration::from_secs(86_400)] {
            assert_eq!(from_duration(to_duration(duration)), duration);
        }
        assert_eq!(from_duration(prost_types::Duration { seconds: -1, nanos: -1 }), Duration::ZERO);
    }
}
