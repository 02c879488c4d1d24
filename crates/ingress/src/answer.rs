//! What the edge says, as an HTTP response.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use portero_recipe::Reply;
use portero_types::{ReceiptId, RequestId};
use serde::Serialize;

use crate::accept::Outcome;

/// Carried by every answer.
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Whether a committed request brought something new, also where a provider wants other words than ours.
pub(crate) const STATUS_HEADER: HeaderName = HeaderName::from_static("x-portero-status");

/// The receipt of a committed request that held one event.
pub(crate) const RECEIPT_HEADER: HeaderName = HeaderName::from_static("x-portero-receipt");

/// Headers that a recipe's reply may not set.
const OURS: [&str; 11] = [
    "connection",
    "content-length",
    "content-type",
    "location",
    "set-cookie",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-portero-receipt",
    "x-portero-status",
    "x-request-id",
];

/// The body type of every answer.
pub type AnswerBody = Full<Bytes>;

/// What an answer says of an error.
#[derive(Clone, Debug)]
pub(crate) struct ErrorWords {
    /// A stable code.
    pub(crate) error: &'static str,
    /// Why it was rejected, in a recipe's words.
    pub(crate) reason: Option<&'static str>,
    /// What is wrong and what to do.
    pub(crate) message: Cow<'static, str>,
}

/// An answer before it knows its request id.
#[derive(Clone)]
pub(crate) struct Answer {
    /// Label of the request counter.
    pub(crate) outcome: &'static str,
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: Bytes,
    error: Option<ErrorWords>,
    events: Option<Vec<EventWords>>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl std::fmt::Debug for Answer {
    /// Shows no body and no header: the answer to a provider's check of the URL may repeat a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("outcome", &self.outcome)
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// One event of an accepted request.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct EventWords {
    status: &'static str,
    receipt_id: ReceiptId,
}

impl EventWords {
    /// The words for one event; `own` is the receipt id that it was submitted with.
    pub(crate) const fn new(outcome: Outcome, own: ReceiptId) -> Self {
        match outcome {
            Outcome::Accepted => Self { status: "accepted", receipt_id: own },
            Outcome::Duplicate { first } | Outcome::Conflict { first } => {
                Self { status: "duplicate", receipt_id: first }
            }
        }
    }
}

#[derive(Serialize)]
struct AcceptedBody<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt_id: Option<ReceiptId>,
    request_id: RequestId,
    /// Only when the request held several.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    events: &'a [EventWords],
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    message: &'a str,
    /// Left out of the 404, which is the same for everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<RequestId>,
}

impl Answer {
    fn json(outcome: &'static str, status: StatusCode, body: Bytes) -> Self {
        Self {
            outcome,
            status,
            content_type: Some(HeaderValue::from_static("application/json")),
            body,
            error: None,
            events: None,
            headers: Vec::new(),
        }
    }

    /// Words for an error, which are also its outcome.
    pub(crate) fn error(status: StatusCode, words: ErrorWords) -> Self {
        Self { error: Some(words.clone()), ..Self::json(words.error, status, Bytes::new()) }
    }

    /// The same with one more header.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Every event is committed: `accepted` when at least one is new, else `duplicate`; `empty` when there was none.
    pub(crate) fn committed(events: Vec<EventWords>) -> Self {
        let outcome = if events.is_empty() {
            "empty"
        } else if events.iter().any(|event| event.status == "accepted") {
            "accepted"
        } else {
            "duplicate"
        };
        let mut headers = vec![(STATUS_HEADER, HeaderValue::from_static(outcome))];
        if let [event] = events.as_slice()
            && let Ok(id) = HeaderValue::try_from(event.receipt_id.to_string())
        {
            headers.push((RECEIPT_HEADER, id));
        }
        Self { events: Some(events), headers, ..Self::json(outcome, StatusCode::OK, Bytes::new()) }
    }

    /// The words that a provider wants to hear instead of ours. Never a redirect, and never a header of the connection.
    pub(crate) fn replaced(mut self, reply: Reply) -> Self {
        self.status = StatusCode::from_u16(reply.status)
            .ok()
            .filter(|status| !status.is_informational() && !status.is_redirection())
            .unwrap_or(StatusCode::OK);
        self.content_type = reply.content_type.and_then(|text| HeaderValue::try_from(text).ok());
        let theirs = reply
            .headers
            .iter()
            .filter(|(name, _)| !OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)))
            .filter_map(|(name, value)| Some((name.parse().ok()?, HeaderValue::try_from(value).ok()?)));
        // What is said of committed events is said in headers all the same.
        self.headers.retain(|(name, _)| *name == STATUS_HEADER || *name == RECEIPT_HEADER);
        self.headers.extend(theirs);
        self.body = reply.body.into();
        self.error = None;
        self.events = None;
        self
    }

    /// A status without words.
    pub(crate) fn plain(outcome: &'static str, status: StatusCode) -> Self {
        Self { content_type: None, ..Self::json(outcome, status, Bytes::new()) }
    }

    /// The HTTP response.
    pub(crate) fn into_response(self, request_id: RequestId) -> Response<AnswerBody> {
        let body = match (&self.error, &self.events) {
            (Some(words), _) => json(&ErrorBody {
                error: words.error,
                reason: words.reason,
                message: &words.message,
                request_id: (self.status != StatusCode::NOT_FOUND).then_some(request_id),
            }),
            (None, Some(events)) => json(&AcceptedBody {
                status: self.outcome,
                receipt_id: events.first().map(|event| event.receipt_id),
                request_id,
                events: if events.len() > 1 { events } else { &[] },
            }),
            (None, None) => self.body,
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let id = HeaderValue::try_from(request_id.to_string()).expect("a request id is ASCII");
        headers.insert(REQUEST_ID_HEADER, id);
        if let Some(content_type) = self.content_type {
            headers.insert(CONTENT_TYPE, content_type);
        }
        headers.extend(self.headers);
        response
    }
}

fn json(body: &impl Serialize) -> Bytes {
    // These structs have no map with odd keys and no fallible field.
    serde_json::to_vec(body).expect("plain structs serialise").into()
}

/// The bytes of the answer to a connection that is one too many.
pub(crate) fn one_connection_too_many(request_id: RequestId) -> Vec<u8> {
    let body = r#"{"error":"overloaded","message":"too many connections are open; try again"}"#;
    format!(
        "HTTP/1.1 503 Service Unavailable\r\nx-request-id: {request_id}\r\nretry-after: 1\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The bytes of the answer to a peer that speaks plain HTTP where TLS is expected.
pub(crate) fn needs_tls(request_id: RequestId) -> Vec<u8> {
    let body = r#"{"error":"tls_required","message":"this port takes TLS only: use https:// in the URL"}"#;
    format!(
        "HTTP/1.1 400 Bad Request\r\nx-request-id: {request_id}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use portero_types::Timestamp;

    use super::*;

    fn request_id() -> RequestId {
        RequestId::new(Timestamp::from_secs(1), 7)
    }

    #[test]
    fn a_recipes_reply_is_neither_a_redirect_nor_rules_the_connection() {
        let reply = Reply {
            status: 302,
            content_type: Some("text/plain".into()),
            headers: [
                ("location", "/"),
                ("Transfer-Encoding", "chunked"),
                ("x-hook", "1"),
                ("X-Portero-Status", "accepted"),
                ("bad name", "1"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            body: b"[accepted]".to_vec(),
        };
        let response = Answer::committed(Vec::new()).replaced(reply).into_response(request_id());
        assert_eq!(response.status(), StatusCode::OK);
        let names: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-request-id", "content-type", "x-portero-status", "x-hook"]);
        assert_eq!(response.headers()[STATUS_HEADER], "empty", "ours, not theirs");
    }

    #[test]
    fn what_became_of_an_event_is_in_the_headers_also_under_a_recipes_reply() {
        let id = |n| ReceiptId::new(Timestamp::from_secs(2), n);
        let reply = Reply { status: 202, content_type: None, headers: Vec::new(), body: Vec::new() };
        let one = vec![EventWords::new(Outcome::Duplicate { first: id(1) }, id(2))];
        for answer in [Answer::committed(one.clone()), Answer::committed(one).replaced(reply.clone())] {
            let response = answer.into_response(request_id());
            assert_eq!(response.headers()[STATUS_HEADER], "duplicate");
            assert_eq!(response.headers()[RECEIPT_HEADER], id(1).to_string().as_str());
        }
        let two = vec![EventWords::new(Outcome::Accepted, id(1)), EventWords::new(Outcome::Accepted, id(2))];
        let response = Answer::committed(two).into_response(request_id());
        assert!(!response.headers().contains_key(RECEIPT_HEADER), "each event has its own");
        let handshake =
            Answer::plain("handshake", StatusCode::OK).replaced(reply).into_response(request_id());
        assert!(!handshake.headers().contains_key(STATUS_HEADER));
    }

    #[test]
    fn one_event_is_named_at_the_top_and_several_in_a_list() {
        let id = |n| ReceiptId::new(Timestamp::from_secs(2), n);
        let one = Answer::committed(vec![EventWords::new(Outcome::Accepted, id(1))]);
        assert_eq!(one.outcome, "accepted");
        let two = Answer::committed(vec![
            EventWords::new(Outcome::Duplicate { first: id(1) }, id(2)),
            EventWords::new(Outcome::Conflict { first: id(3) }, id(4)),
        ]);
        assert_eq!(two.outcome, "duplicate");
        let words = two.events.expect("events");
        assert_eq!((words[0].receipt_id, words[1].receipt_id), (id(1), id(3)));
    }
}
