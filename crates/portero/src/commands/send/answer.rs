//! What came back.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::commands::present::clean;

/// Longest part of an answer in foreign words that is shown, characters.
const WORDS_MAX: usize = 80;

/// One answer, or the lack of one. Its serialised form is what `--output json` promises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Answer {
    /// The HTTP status; `None` when there was no answer.
    pub(super) status: Option<u16>,
    /// The gateway's word for it: `accepted`, `duplicate`, or a code of an error; `answered` in a provider's own words.
    pub(super) outcome: String,
    /// Why it was rejected.
    pub(super) reason: Option<String>,
    /// The event's receipt.
    pub(super) receipt_id: Option<String>,
    /// The HTTP request's id.
    pub(super) request_id: Option<String>,
    /// For people.
    pub(super) message: Option<String>,
    /// From sending to the end of the answer, milliseconds.
    pub(super) duration_ms: f64,
}

/// The gateway's own form of answers.
#[derive(Default, Deserialize)]
struct Body {
    status: Option<String>,
    error: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    receipt_id: Option<String>,
    request_id: Option<String>,
}

/// What the gateway says in headers, whatever the body's words are.
#[derive(Clone, Debug, Default)]
pub(super) struct Heads {
    /// `accepted`, `duplicate` or `empty`, of a request that was committed.
    pub(super) status: Option<String>,
    /// The receipt of its one event.
    pub(super) receipt_id: Option<String>,
    /// The HTTP request's id.
    pub(super) request_id: Option<String>,
}

impl Answer {
    /// Reads an answer; one that is not in the gateway's own form is shown as it is, with what the headers say.
    pub(super) fn read(status: u16, heads: Heads, body: &[u8], took: Duration) -> Self {
        let ours: Option<Body> = serde_json::from_slice(body).ok();
        let is_ours = ours.as_ref().is_some_and(|body| body.status.is_some() || body.error.is_some());
        let body = if is_ours {
            ours.unwrap_or_default()
        } else {
            let words: String = String::from_utf8_lossy(body).trim().chars().take(WORDS_MAX).collect();
            Body { message: Some(words).filter(|words| !words.is_empty()), ..Body::default() }
        };
        Self {
            status: Some(status),
            outcome: body.status.or(body.error).or(heads.status).unwrap_or_else(|| "answered".to_owned()),
            reason: body.reason,
            receipt_id: body.receipt_id.or(heads.receipt_id),
            request_id: body.request_id.or(heads.request_id),
            message: body.message,
            duration_ms: millis(took),
        }
    }

    /// There was none.
    pub(super) fn none(why: &str, took: Duration) -> Self {
        Self {
            status: None,
            outcome: "no_answer".to_owned(),
            reason: None,
            receipt_id: None,
            request_id: None,
            message: Some(why.to_owned()),
            duration_ms: millis(took),
        }
    }

    /// Whether it was 2xx.
    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// Status, outcome and reason: what summaries count by.
    pub(super) fn label(&self) -> String {
        let status = self.status.map_or_else(|| "---".to_owned(), |status| status.to_string());
        let reason = self.reason.as_deref().map(|reason| format!(" {reason}")).unwrap_or_default();
        clean(&format!("{status} {}{reason}", self.outcome)).into_owned()
    }

    /// One line for people, with the receipt's id, or else the request's, by which a refusal can be explained.
    pub(super) fn line(&self) -> String {
        let receipt = self.receipt_id.as_deref().or(self.request_id.as_deref()).unwrap_or("-");
        let message = self.message.as_deref().map(|message| format!("  {message}")).unwrap_or_default();
        format!("{}  {}{}", self.label(), clean(receipt), clean(&message))
    }
}

fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_micros(1_500);

    #[test]
    fn the_gateways_own_answers_are_read() {
        let body = br#"{"status":"accepted","receipt_id":"rcpt_1","request_id":"req_1"}"#;
        let answer = Answer::read(200, Heads::default(), body, TOOK);
        assert_eq!(answer.line(), "200 accepted  rcpt_1");
        assert!(answer.is_success());
        let json = serde_json::to_string(&answer).expect("serialises");
        assert_eq!(
            json,
            r#"{"status":200,"outcome":"accepted","reason":null,"receipt_id":"rcpt_1","request_id":"req_1","message":null,"duration_ms":1.5}"#
        );
    }

    #[test]
    fn a_refusal_says_why() {
        let body = br#"{"error":"unauthorized","reason":"TIMESTAMP_TOO_OLD","message":"it is old"}"#;
        let heads = Heads { request_id: Some("req_2".to_owned()), ..Heads::default() };
        let answer = Answer::read(401, heads, body, TOOK);
        assert_eq!(answer.line(), "401 unauthorized TIMESTAMP_TOO_OLD  req_2  it is old");
        assert_eq!(answer.request_id.as_deref(), Some("req_2"));
        assert!(!answer.is_success());
    }

    #[test]
    fn a_providers_own_words_are_shown_and_cut() {
        let answer = Answer::read(200, Heads::default(), b"[accepted]", TOOK);
        assert_eq!(answer.line(), "200 answered  -  [accepted]");
        let heads = Heads {
            status: Some("duplicate".to_owned()),
            receipt_id: Some("rcpt_1".to_owned()),
            request_id: None,
        };
        assert_eq!(Answer::read(200, heads, b"[accepted]", TOOK).line(), "200 duplicate  rcpt_1  [accepted]");
        let long = Answer::read(502, Heads::default(), "<b>\u{1b}[2J".repeat(100).as_bytes(), TOOK);
        assert!(long.line().len() < 400 && !long.line().contains('\u{1b}'), "{}", long.line());
    }

    #[test]
    fn no_answer_is_no_success() {
        let answer = Answer::none("nobody listens", TOOK);
        assert_eq!((answer.label().as_str(), answer.is_success()), ("--- no_answer", false));
    }
}
