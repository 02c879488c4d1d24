//! Stripe's side, written out by hand: events of a chosen size, their signatures, and the check of one.
//!
//! It uses nothing of Portero, so that what the baseline accepts and what the load consists of do not depend on the code
//! under measurement. The scheme: <https://docs.stripe.com/webhooks/signature>.

use std::fmt::Write as _;

use anyhow::ensure;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Oldest and newest signature accepted, seconds from now.
pub(crate) const TOLERANCE_SECS: i64 = 300;
/// Length of what stands behind `evt_` and `ch_`.
const NUMBER_DIGITS: usize = 24;

/// A signing secret. Holds the keyed hash, so that signing pays for the key once.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    /// From the text that the dashboard shows, `whsec_` included.
    pub(crate) fn new(secret: &str) -> Self {
        Self(Hmac::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length"))
    }

    /// The signature of a body at a time in seconds.
    pub(crate) fn sign(&self, time: i64, body: &[u8]) -> [u8; 32] {
        self.mac(&time.to_string(), body).finalize().into_bytes().into()
    }

    /// Whether one of a `Stripe-Signature` header's signatures is of this body and this time. Constant time per signature.
    pub(crate) fn is_signed(&self, header: &str, body: &[u8], now: i64) -> bool {
        let mut time = None;
        let mut signatures = Vec::with_capacity(1);
        for part in header.split(',') {
            match part.split_once('=') {
                Some(("t", value)) => time = Some(value),
                Some(("v1", value)) => signatures.push(value),
                _ => {}
            }
        }
        let Some(time) = time else { return false };
        let Ok(seconds) = time.parse::<i64>() else { return false };
        if now.abs_diff(seconds) > TOLERANCE_SECS.unsigned_abs() {
            return false;
        }
        let mac = self.mac(time, body);
        signatures.into_iter().any(|signature| {
            let mut bytes = [0; 32];
            hex::decode_to_slice(signature, &mut bytes).is_ok() && mac.clone().verify_slice(&bytes).is_ok()
        })
    }

    fn mac(&self, time: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(time.as_bytes());
        mac.update(b".");
        mac.update(body);
        mac
    }
}

/// Events that differ in their ids and in the charge that they are about, and are equally long.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    text: Vec<u8>,
    id_at: Vec<usize>,
    charge_at: Vec<usize>,
    batch: u32,
    charges: u64,
}

impl Events {
    /// Events of `bytes` bytes. `batch` keeps the ids of one round apart from another's; the events are about `charges`
    /// charges in turn.
    ///
    /// # Errors
    /// When `bytes` is too small for the event's fields.
    pub(crate) fn new(bytes: usize, batch: u32, charges: u64) -> anyhow::Result<Self> {
        let frame = text("");
        ensure!(bytes >= frame.len(), "a Stripe event takes at least {} bytes", frame.len());
        let text = text(&filler(bytes - frame.len()));
        let places =
            |mark: &str| text.match_indices(mark).map(|(at, mark)| at + mark.len() - NUMBER_DIGITS).collect();
        let zeros = "0".repeat(NUMBER_DIGITS);
        let (id_at, charge_at) = (places(&format!("evt_{zeros}")), places(&format!("ch_{zeros}")));
        Ok(Self { text: text.into_bytes(), id_at, charge_at, batch, charges: charges.max(1) })
    }

    /// Length of each event, bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Appends the `n`th event.
    pub(crate) fn write(&self, n: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.text);
        let mut number = String::with_capacity(2 * NUMBER_DIGITS);
        write!(number, "{:08x}{n:016x}{:024x}", self.batch, n % self.charges)
            .expect("a String takes everything");
        let (id, charge) = number.as_bytes().split_at(NUMBER_DIGITS);
        for (places, digits) in [(&self.id_at, id), (&self.charge_at, charge)] {
            for at in places {
                out[start + at..start + at + NUMBER_DIGITS].copy_from_slice(digits);
            }
        }
    }
}

/// A `charge.succeeded` event with the fields that Stripe sends, and `filler` as the metadata that a shop adds.
fn text(filler: &str) -> String {
    let zeros = "0".repeat(NUMBER_DIGITS);
    serde_json::json!({
        "id": format!("evt_{zeros}"),
        "object": "event",
        "api_version": "2025-08-27.basil",
        "created": 1_750_000_000,
        "data": { "object": {
            "id": format!("ch_{zeros}"),
            "object": "charge",
            "amount": 25_000,
            "amount_captured": 25_000,
            "amount_refunded": 0,
            "balance_transaction": "txn_3PpBench0Rk1",
            "billing_details": {
                "address": { "city": "Lisboa", "country": "PT", "line1": "Rua do Ouro 1", "postal_code": "1100-060" },
                "email": "ana@example.com", "name": "Ana Sousa", "phone": null,
            },
            "captured": true,
            "currency": "eur",
            "customer": "cus_PorteroBench1",
            "metadata": { "order": "1042", "note": filler },
            "outcome": { "network_status": "approved_by_network", "risk_level": "normal", "risk_score": 12, "type": "authorized" },
            "paid": true,
            "payment_intent": "pi_3PpBench0Rk1",
            "payment_method_details": { "card": { "brand": "visa", "exp_month": 12, "exp_year": 2030, "last4": "4242" }, "type": "card" },
            "receipt_url": format!("https://pay.example.com/receipts/ch_{zeros}"),
            "refunded": false,
            "status": "succeeded",
        } },
        "livemode": false,
        "pending_webhooks": 1,
        "request": { "id": "req_PorteroBench1", "idempotency_key": "5f2c1a9e-bench" },
        "type": "charge.succeeded",
    })
    .to_string()
}

/// Printable text that compresses about as little as tokens do.
fn filler(bytes: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[usize::from(state.to_le_bytes()[7] & 63)])
    };
    (0..bytes).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_as_long_as_asked_and_has_an_id_of_its_own() {
        let events = Events::new(2048, 7, 10).expect("large enough");
        let (mut a, mut b) = (Vec::new(), Vec::new());
        events.write(3, &mut a);
        events.write(13, &mut b);
        assert_eq!((a.len(), b.len()), (2048, 2048));
        let [a, b]: [serde_json::Value; 2] = [a, b].map(|body| serde_json::from_slice(&body).expect("JSON"));
        assert_eq!(a["id"], "evt_000000070000000000000003");
        assert_eq!(b["id"], "evt_00000007000000000000000d");
        assert_eq!(a["data"]["object"]["id"], b["data"]["object"]["id"]);
    }

    #[test]
    fn an_event_smaller_than_its_fields_is_refused() {
        assert!(Events::new(100, 0, 1).is_err());
    }

    #[test]
    fn a_signature_holds_for_its_body_its_time_and_the_window_only() {
        let key = Key::new("whsec_bench");
        let header = format!("t=1000,v1={}", hex::encode(key.sign(1000, b"body")));
        assert!(key.is_signed(&header, b"body", 1000));
        assert!(key.is_signed(&header, b"body", 1300));
        assert!(key.is_signed(&header, b"body", 700));
        assert!(!key.is_signed(&header, b"body", 1301));
        assert!(!key.is_signed(&header, b"body", 699));
        assert!(!key.is_signed(&header, b"other", 1000));
        assert!(!key.is_signed(&header.replace("t=1000", "t=1001"), b"body", 1000));
        assert!(!Key::new("whsec_other").is_signed(&header, b"body", 1000));
        assert!(!key.is_signed("v1=00", b"body", 1000));
    }
}
