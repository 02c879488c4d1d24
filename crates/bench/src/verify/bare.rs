//! What one would write by hand for one provider: HMAC over time and body, and serde_json for three fields.

use serde::Deserialize;

use super::{NOW, SECRET};
use crate::stripe::{Events, Key};

/// A signed Stripe request.
pub(super) struct Signed {
    pub(super) header: String,
    pub(super) body: Vec<u8>,
}

/// What the bare code reads.
#[derive(Deserialize)]
struct Event<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    #[serde(borrow)]
    data: Data<'a>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    id: &'a str,
}

/// The hand-written receiver.
pub(super) struct Bare(Key);

impl Bare {
    pub(super) fn new() -> Self {
        Self(Key::new(SECRET))
    }

    /// Requests of `body_bytes` each.
    pub(super) fn requests(&self, body_bytes: usize, count: u64) -> anyhow::Result<Vec<Signed>> {
        let events = Events::new(body_bytes, 0, count)?;
        let signed = (0..count).map(|n| {
            let mut body = Vec::with_capacity(events.bytes());
            events.write(n, &mut body);
            let header = format!("t={NOW},v1={}", hex::encode(self.0.sign(NOW, &body)));
            Signed { header, body }
        });
        Ok(signed.collect())
    }

    /// Whether the signature is good.
    pub(super) fn verifies(&self, signed: &Signed) -> bool {
        self.0.is_signed(&signed.header, &signed.body, NOW)
    }

    /// Id, type and object, by a struct of just these.
    pub(super) fn typed(signed: &Signed) -> Option<(String, String, String)> {
        let event: Event<'_> = serde_json::from_slice(&signed.body).ok()?;
        Some((event.id.to_owned(), event.event_type.to_owned(), event.data.object.id.to_owned()))
    }

    /// The lengths of the same, by a tree of the whole.
    pub(super) fn tree(signed: &Signed) -> Option<(usize, usize, usize)> {
        let event: serde_json::Value = serde_json::from_slice(&signed.body).ok()?;
        Some((
            event["id"].as_str()?.len(),
            event["type"].as_str()?.len(),
            event["data"]["object"]["id"].as_str()?.len(),
        ))
    }
}
