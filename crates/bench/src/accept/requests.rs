//! Signed requests, prepared before the clock runs, so that sending one costs little more than copying it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portero_types::Clock as _;

use crate::clock::SystemClock;
use crate::serve::Ready;
use crate::stripe::{Events, Key};

/// Requests prepared per second of a round whose rate is not known yet.
const RATE_AT_FIRST: f64 = 20_000.0;
/// How much faster than the last round a round may be before signing happens while the clock runs.
const HEADROOM: f64 = 1.5;
/// Most signatures kept, 32 bytes each.
const SIGNATURES_MAX: usize = 8_000_000;

/// The requests of one round, each handed out once.
pub(super) struct Requests {
    /// Where they go.
    pub(super) address: SocketAddr,
    events: Events,
    key: Key,
    time: i64,
    /// The head up to the signature's digits.
    head: String,
    signatures: Vec<[u8; 32]>,
    next: AtomicU64,
}

impl Requests {
    /// Signs what a round of this length will need at about this rate (per second; 0: not known).
    pub(super) fn prepare(events: Events, key: &Key, ready: &Ready, length: Duration, rate: f64) -> Self {
        let time = SystemClock.now().as_secs();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nuser-agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\n\
             accept: */*\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {}\r\n\
             stripe-signature: t={time},v1=",
            ready.path,
            ready.address,
            events.bytes()
        );
        let mut body = Vec::with_capacity(events.bytes());
        let mut sign = |n| {
            body.clear();
            events.write(n, &mut body);
            key.sign(time, &body)
        };
        let signatures = (0..).take(count(length, rate)).map(&mut sign).collect();
        Self {
            address: ready.address,
            key: key.clone(),
            time,
            head,
            signatures,
            next: AtomicU64::new(0),
            events,
        }
    }

    /// Puts the next request, head and body, in place of what `out` holds.
    pub(super) fn write_next(&self, out: &mut Vec<u8>) {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let mut digits = [0; 64];
        out.clear();
        out.extend_from_slice(self.head.as_bytes());
        let digits_at = out.len();
        out.extend_from_slice(&digits);
        out.extend_from_slice(b"\r\n\r\n");
        let body_at = out.len();
        self.events.write(n, out);
        let prepared = usize::try_from(n).ok().and_then(|n| self.signatures.get(n).copied());
        let signature = prepared.unwrap_or_else(|| self.key.sign(self.time, &out[body_at..]));
        hex::encode_to_slice(signature, &mut digits).expect("32 bytes are 64 digits");
        out[digits_at..digits_at + 64].copy_from_slice(&digits);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded on both sides")]
fn count(length: Duration, rate: f64) -> usize {
    let rate = if rate > 0.0 { rate * HEADROOM } else { RATE_AT_FIRST };
    ((rate * length.as_secs_f64()).max(0.0) as usize).min(SIGNATURES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(rate: f64) -> Requests {
        let ready = Ready { address: "127.0.0.1:1".parse().expect("valid"), path: "/in/x".to_owned() };
        let events = Events::new(2048, 1, 10).expect("large enough");
        Requests::prepare(events, &Key::new("whsec_bench"), &ready, Duration::from_millis(1), rate)
    }

    #[test]
    fn requests_are_signed_and_distinct_prepared_or_not() {
        let requests = requests(1000.0);
        assert_eq!(requests.signatures.len(), 1);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..3 {
            let mut request = Vec::new();
            requests.write_next(&mut request);
            let text = String::from_utf8(request).expect("text");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
            assert!(head.contains("content-length: 2048") && body.len() == 2048);
            let signature = head.rsplit_once("stripe-signature: ").expect("signed").1;
            assert!(Key::new("whsec_bench").is_signed(signature, body.as_bytes(), requests.time));
            assert!(seen.insert(body.to_owned()));
        }
    }
}
