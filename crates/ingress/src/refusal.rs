//! Why a request is not accepted. One exhaustive table maps every cause to status, code, words and headers.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT_ENCODING, ALLOW, CONNECTION, HeaderValue, RETRY_AFTER};
use portero_outbound::FetchError;
use portero_recipe::{Reason, Reply};

use crate::accept::Failure;
use crate::answer::{Answer, ErrorWords};
use crate::body::BodyError;
use crate::limits::in_flight::Full;
use crate::limits::{Admission, Limit, Limited};

/// A refused request that verified or could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    /// What the recipe answers, or what fits the reason.
    pub(crate) status: StatusCode,
    /// `SCREAMING_SNAKE` code.
    pub(crate) reason: &'static str,
    /// A safe sentence.
    pub(crate) detail: Cow<'static, str>,
    /// What the provider wants to hear instead of our words.
    pub(crate) reply: Option<Reply>,
}

/// Why a request is not accepted.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// No source has this URL.
    NotFound,
    /// Another method than POST; the allowed ones.
    MethodNotAllowed(&'static str),
    /// A content encoding that is not undone, or not for this source; those that are.
    EncodingUnsupported(&'static str),
    /// A body that cannot be had.
    Body(BodyError),
    /// Too many requests in flight.
    Overloaded(Full),
    /// Somebody has sent as much as allowed.
    Limited(Limited),
    /// The configuration in memory is too old to trust.
    ConfigStale,
    /// This source's recipe or secrets cannot be used.
    SourceDisabled,
    /// A secret that may have signed it cannot be read.
    SecretUnreadable,
    /// It did not verify or cannot be read.
    Rejected(Box<Rejected>),
    /// What verification needs, or what confirms a subscription, could not be fetched.
    FetchFailed(FetchError),
    /// The secret that a handshake brought was not (or not surely) committed.
    SecretNotStored,
    /// The events were not (or not surely) committed.
    NotCommitted(Failure),
    /// Verifying and storing takes too long.
    DeadlineExceeded,
    /// A bug on our side.
    Internal,
}

/// A row of the table.
struct Row {
    status: StatusCode,
    code: &'static str,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
    close: bool,
}

impl Row {
    const fn new(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message: Cow::Borrowed(message), retry_after: None, close: false }
    }

    const fn unavailable(code: &'static str, message: &'static str, retry_after_secs: u64) -> Self {
        let mut row = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        row.retry_after = Some(Duration::from_secs(retry_after_secs));
        row
    }

    const fn closing(mut self) -> Self {
        self.close = true;
        self
    }
}

impl Refusal {
    /// The table.
    fn row(&self) -> Row {
        use StatusCode as S;
        match self {
            Self::NotFound => Row::new(S::NOT_FOUND, "not_found", "there is nothing at this URL"),
            Self::MethodNotAllowed(_) => {
                Row::new(S::METHOD_NOT_ALLOWED, "method_not_allowed", "send the event with POST")
            }
            Self::EncodingUnsupported(_) => Row::new(
                S::UNSUPPORTED_MEDIA_TYPE,
                "encoding_unsupported",
                "send the body without this content encoding",
            ),
            Self::Body(error) => body_row(*error),
            Self::Overloaded(full) => full_row(*full, "too many requests are in flight; try again"),
            Self::Limited(limited) => limited_row(*limited),
            Self::ConfigStale => {
                Row::unavailable("config_stale", "the gateway cannot read its configuration; try again", 5)
            }
            Self::SourceDisabled => Row::unavailable(
                "source_disabled",
                "the gateway cannot use this source's recipe or secrets; its operator must act",
                60,
            ),
            Self::SecretUnreadable => Row::unavailable("secret_unreadable", SECRET_UNREADABLE, 60),
            Self::Rejected(rejected) => {
                Row { message: rejected.detail.clone(), ..Row::new(rejected.status, "rejected", "") }
            }
            Self::FetchFailed(error) => fetch_row(*error),
            Self::SecretNotStored => {
                Row::unavailable("store_unavailable", "the secret cannot be stored now; try again", 5)
            }
            Self::NotCommitted(failure) => failure_row(*failure),
            Self::DeadlineExceeded => {
                Row::unavailable("deadline_exceeded", "storing the event takes too long; send it again", 5)
            }
            Self::Internal => {
                Row::new(S::INTERNAL_SERVER_ERROR, "internal", "the gateway failed; send it again")
            }
        }
    }

    /// The stable code: label of the request counter and `error` of the answer.
    pub(crate) fn code(&self) -> &'static str {
        self.row().code
    }

    /// Reason and words of a refusal that tells the source's owner something; one that is about this gateway tells nothing.
    pub(crate) fn about_the_request(&self) -> Option<(&'static str, Cow<'_, str>)> {
        match self {
            Self::Rejected(rejected) => Some((rejected.reason, Cow::Borrowed(&rejected.detail))),
            Self::SecretUnreadable => {
                Some((Reason::SecretUnreadable.code(), Cow::Borrowed(SECRET_UNREADABLE)))
            }
            Self::EncodingUnsupported(_) => Some((
                "ENCODING_UNSUPPORTED",
                Cow::Borrowed("this source does not take the content encoding"),
            )),
            Self::Body(BodyError::TooLarge) => Some((
                "BODY_TOO_LARGE",
                Cow::Borrowed("the body, as sent or inflated, is larger than the limit"),
            )),
            Self::FetchFailed(error) => {
                let detail = format!("what the request calls for cannot be fetched: {error}");
                Some(("FETCH_FAILED", Cow::Owned(detail)))
            }
            Self::Limited(limited) if limited.is_about_proof() => Some((
                "UNVERIFIED_LIMITED",
                Cow::Borrowed(
                    "requests that do not verify come faster than they are examined; this one was not read",
                ),
            )),
            Self::Limited(limited) => Some((
                "RATE_LIMITED",
                Cow::Borrowed(if limited.limit == Limit::Tenant {
                    "the tenant's sources send more than the tenant may"
                } else {
                    "the source sends more than it may"
                }),
            )),
            Self::NotFound
            | Self::MethodNotAllowed(_)
            | Self::Body(BodyError::NoMemory(_) | BodyError::Timeout | BodyError::Broken)
            | Self::Overloaded(_)
            | Self::ConfigStale
            | Self::SourceDisabled
            | Self::SecretNotStored
            | Self::NotCommitted(_)
            | Self::DeadlineExceeded
            | Self::Internal => None,
        }
    }

    /// Whether the owner is told once in a while only: many requests are refused alike.
    pub(crate) const fn comes_in_crowds(&self) -> bool {
        matches!(self, Self::Limited(_))
    }

    /// Tells the limits what became of a request that was refused.
    pub(crate) fn settle(&self, admission: &Admission) {
        match self {
            // Anybody can name keys that are not there, one after another: what is fetched in vain counts, as long as the
            // other side works.
            Self::FetchFailed(FetchError::Busy | FetchError::Refused(400..=499)) => admission.failed(),
            // Most of what a secret that cannot be read might have signed, it has not.
            Self::Rejected(_)
            | Self::SecretUnreadable
            | Self::EncodingUnsupported(_)
            | Self::MethodNotAllowed(_)
            | Self::Body(BodyError::TooLarge | BodyError::Timeout | BodyError::Broken) => admission.failed(),
            Self::NotFound
            | Self::Body(BodyError::NoMemory(_))
            | Self::Overloaded(_)
            | Self::Limited(_)
            | Self::ConfigStale
            | Self::SourceDisabled
            | Self::FetchFailed(_)
            | Self::SecretNotStored
            | Self::NotCommitted(_)
            | Self::DeadlineExceeded
            | Self::Internal => admission.undecided(),
        }
    }

    /// The answer.
    pub(crate) fn answer(&self) -> Answer {
        let row = self.row();
        let rejected = if let Self::Rejected(rejected) = self { Some(rejected) } else { None };
        let unreadable = matches!(self, Self::SecretUnreadable).then(|| Reason::SecretUnreadable.code());
        let words = ErrorWords {
            error: row.code,
            reason: rejected.map(|rejected| rejected.reason).or(unreadable),
            message: row.message,
        };
        let mut answer = Answer::error(row.status, words);
        if let Some(after) = row.retry_after {
            answer = answer.header(RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        if row.close {
            answer = answer.header(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Self::MethodNotAllowed(allowed) = self {
            answer = answer.header(ALLOW, HeaderValue::from_static(allowed));
        }
        if let Self::EncodingUnsupported(accepted) = self {
            answer = answer.header(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
        }
        match rejected.and_then(|rejected| rejected.reply.clone()) {
            Some(reply) => answer.replaced(reply),
            None => answer,
        }
    }
}

const SECRET_UNREADABLE: &str = "one of this source's secrets cannot be read, so whether the request is genuine cannot be told; send it again";

/// `whole` says it where nobody in particular has too much.
fn full_row(full: Full, whole: &'static str) -> Row {
    let message = match full {
        Full::Whole => whole,
        Full::Tenant => "too much of this tenant is in flight; try again",
        Full::Strangers => "too much is in flight from senders of whom nothing has verified yet; try again",
    };
    Row::unavailable("overloaded", message, 1)
}

/// Comes back when there is room, to the second, rounded up.
fn limited_row(limited: Limited) -> Row {
    let (code, message) = match limited.limit {
        Limit::Tenant => ("rate_limited", "the tenant sends more than it may; send it again later"),
        Limit::Source => ("rate_limited", "this source sends more than it may; send it again later"),
        Limit::UnverifiedSource => {
            ("unverified_limited", "too many requests that do not verify come to this URL; try again later")
        }
        Limit::UnverifiedAddress => (
            "unverified_limited",
            "too many requests that do not verify come from your address; try again later",
        ),
    };
    let mut row = Row::new(StatusCode::TOO_MANY_REQUESTS, code, message);
    let seconds = limited.after.as_secs() + u64::from(limited.after.subsec_nanos() > 0);
    row.retry_after = Some(Duration::from_secs(seconds.max(1)));
    row
}

fn body_row(error: BodyError) -> Row {
    match error {
        BodyError::TooLarge => {
            Row::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is larger than this gateway takes")
        }
        BodyError::NoMemory(full) => full_row(full, "too many bytes are in flight; try again"),
        BodyError::Timeout => {
            Row::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time").closing()
        }
        BodyError::Broken => {
            Row::new(StatusCode::BAD_REQUEST, "body_broken", "the body ended early or is malformed").closing()
        }
    }
}

fn fetch_row(error: FetchError) -> Row {
    let message = if error == FetchError::Busy {
        "too many keys are being fetched; send it again"
    } else {
        "the provider's key or confirmation cannot be fetched now; send it again"
    };
    Row::unavailable("fetch_failed", message, 5)
}

fn failure_row(failure: Failure) -> Row {
    match failure {
        Failure::Overloaded => Row::unavailable("overloaded", "too many events are waiting; try again", 1),
        Failure::ShuttingDown => {
            Row::unavailable("shutting_down", "the gateway is shutting down; try again", 1).closing()
        }
        Failure::Unavailable => {
            Row::unavailable("store_unavailable", "the event cannot be stored now; send it again", 5)
        }
        Failure::OutcomeUnknown => {
            Row::unavailable("outcome_unknown", "whether the event was stored is unknown; send it again", 5)
        }
        Failure::Refused => Row::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "store_refused",
            "the event verified but cannot be stored; the gateway's operator must act",
        ),
        // `process` answers it in the recipe's own words.
        Failure::Revoked => Row::new(
            StatusCode::UNAUTHORIZED,
            "secret_revoked",
            "the secret that the request is signed with is revoked",
        ),
        // `process` answers it as it answers an unknown URL.
        Failure::SourceDeleted => Refusal::NotFound.row(),
        Failure::Broken => {
            Row::unavailable("store_broken", "the store needs attention; the gateway's operator must act", 30)
        }
    }
}

#[cfg(test)]
mod tests {
    use portero_types::{RequestId, Timestamp};

    use super::*;
    use crate::answer::REQUEST_ID_HEADER;

    fn request_id() -> RequestId {
        RequestId::new(Timestamp::from_secs(1), 7)
    }

    fn every_refusal() -> Vec<Refusal> {
        let rejected = Rejected {
            status: StatusCode::UNAUTHORIZED,
            reason: "SIGNATURE_MISSING",
            detail: "add one".into(),
            reply: None,
        };
        let mut all = vec![
            Refusal::NotFound,
            Refusal::MethodNotAllowed("POST, HEAD"),
            Refusal::EncodingUnsupported("identity"),
            Refusal::ConfigStale,
            Refusal::SourceDisabled,
            Refusal::SecretUnreadable,
            Refusal::Rejected(Box::new(rejected)),
            Refusal::FetchFailed(FetchError::Busy),
            Refusal::FetchFailed(FetchError::Refused(404)),
            Refusal::SecretNotStored,
            Refusal::DeadlineExceeded,
            Refusal::Internal,
        ];
        all.extend([BodyError::TooLarge, BodyError::Timeout, BodyError::Broken].map(Refusal::Body));
        for full in [Full::Whole, Full::Tenant, Full::Strangers] {
            all.extend([Refusal::Overloaded(full), Refusal::Body(BodyError::NoMemory(full))]);
        }
        all.extend(
            [Limit::Tenant, Limit::Source, Limit::UnverifiedSource, Limit::UnverifiedAddress]
                .map(|limit| Refusal::Limited(Limited { limit, after: Duration::from_millis(1_001) })),
        );
        all.extend(
            [
                Failure::Overloaded,
                Failure::ShuttingDown,
                Failure::Unavailable,
                Failure::OutcomeUnknown,
                Failure::Refused,
                Failure::Broken,
            ]
            .map(Refusal::NotCommitted),
        );
        all
    }

    #[test]
    fn every_503_and_429_says_when_to_come_back_and_every_answer_has_a_request_id() {
        for refusal in every_refusal() {
            let response = refusal.answer().into_response(request_id());
            let limited = response.status() == StatusCode::TOO_MANY_REQUESTS;
            let unavailable = limited || response.status() == StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(response.headers().contains_key(RETRY_AFTER), unavailable, "{refusal:?}");
            if limited {
                assert_eq!(response.headers()[RETRY_AFTER], "2", "never too early");
            }
            assert!(response.headers().contains_key(REQUEST_ID_HEADER), "{refusal:?}");
            assert!(!response.status().is_success() && !response.status().is_redirection(), "{refusal:?}");
        }
    }

    #[test]
    fn what_was_not_committed_is_never_the_senders_fault() {
        for refusal in every_refusal() {
            if let Refusal::NotCommitted(_) = refusal {
                assert!(refusal.row().status.is_server_error(), "{refusal:?}");
            }
        }
    }
}
