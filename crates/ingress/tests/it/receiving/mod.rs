//! What goes wrong where webhooks are received, kind by kind: the request that shows it, and what the gateway does.
//! `docs/receiving.md` is the list.

mod batches;
mod bytes;
mod characters;
mod handshakes;
mod headers;
mod ids;
mod page;
mod secrets;
mod time;
mod transfer;
mod urls;

use crate::support::{Answer, Endpoint, Gateway, Message};

/// A secret in every form that a shared secret may have here: text, and base64 after `whsec_`.
const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// A recipe that signs the body in `x-signature`; `more` is added to its scheme.
fn signs_the_body(more: &str) -> String {
    format!(
        r#"{{"version":1,"schemes":[{{"signature":{{"header":"x-signature"}},"algorithm":"hmac-sha256","keys":["text"],"message":"{{body}}"{more}}}]}}"#
    )
}

/// Signs a body as the endpoint's provider would, and sends it.
async fn deliver(gateway: &Gateway, endpoint: &Endpoint, body: &[u8]) -> Answer {
    gateway.send(endpoint, &Message::signed(endpoint, body)).await
}

fn stripe_event(id: &str) -> Vec<u8> {
    format!(r#"{{"id":"{id}","type":"invoice.paid","data":{{"object":{{"id":"in_1"}}}}}}"#).into_bytes()
}
