//! One HTTP connection of the provider.

use std::time::Duration;

use anyhow::Context as _;
use portero_recipe::SignedRequest;
use reqwest::{Client, redirect};
use serde::Deserialize;

/// From the start of a request to the end of its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A client that keeps one connection to each receiver.
#[derive(Clone)]
pub(super) struct Wire(Client);

/// What a receiver answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The HTTP status.
    pub(super) status: u16,
    /// `accepted`, `duplicate`, or an error's code; empty when the receiver does not speak as Portero does.
    pub(super) outcome: String,
    /// Why it was refused.
    pub(super) reason: Option<String>,
    /// The event's receipt.
    pub(super) receipt_id: Option<String>,
}

/// Portero's form of answers.
#[derive(Default, Deserialize)]
struct Body {
    status: Option<String>,
    error: Option<String>,
    reason: Option<String>,
    receipt_id: Option<String>,
}

impl Wire {
    /// A connection that opens with its first request.
    pub(super) fn new() -> anyhow::Result<Self> {
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .timeout(TIMEOUT)
            .pool_max_idle_per_host(1)
            .build()
            .context("an HTTP client cannot be made")?;
        Ok(Self(client))
    }

    /// Posts a request and reads the answer.
    pub(super) async fn post(&self, url: &str, request: &SignedRequest) -> anyhow::Result<Answer> {
        let mut post = self.0.post(url).body(request.body.clone()).header("content-type", "application/json");
        for (name, value) in &request.headers {
            post = post.header(name, value);
        }
        // The library's own words would show the whole URL.
        let no_answer = |_| anyhow::anyhow!("a receiver of the demo does not answer");
        let mut response = post.send().await.map_err(no_answer)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(no_answer)? {
            anyhow::ensure!(body.len() + chunk.len() <= ANSWER_BYTES_MAX, "an answer is far too long");
            body.extend_from_slice(&chunk);
        }
        Ok(Answer::read(response.status().as_u16(), &body))
    }
}

impl Answer {
    fn read(status: u16, body: &[u8]) -> Self {
        let Body { status: outcome, error, reason, receipt_id } =
            serde_json::from_slice(body).unwrap_or_default();
        Self { status, outcome: outcome.or(error).unwrap_or_default(), reason, receipt_id }
    }

    /// The receipt of an event that was accepted with this answer.
    pub(super) fn accepted(&self) -> Option<&str> {
        self.receipt_id.as_deref().filter(|_| self.outcome == "accepted")
    }

    /// `200 accepted`, `401 SIGNATURE_MISMATCH`.
    pub(super) fn label(&self) -> String {
        let word = self.reason.as_deref().unwrap_or(&self.outcome);
        format!("{} {word}", self.status).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_in_a_few_words() {
        let accepted = Answer::read(200, br#"{"status":"accepted","receipt_id":"rcpt_1"}"#);
        assert_eq!((accepted.label().as_str(), accepted.accepted()), ("200 accepted", Some("rcpt_1")));
        let duplicate = Answer::read(200, br#"{"status":"duplicate","receipt_id":"rcpt_1"}"#);
        assert_eq!((duplicate.label().as_str(), duplicate.accepted()), ("200 duplicate", None));
        let refused = Answer::read(401, br#"{"error":"rejected","reason":"SIGNATURE_MISMATCH"}"#);
        assert_eq!(refused.label(), "401 SIGNATURE_MISMATCH");
        assert_eq!(Answer::read(200, b"ok").label(), "200");
    }
}
