//! An event as it is shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portero_client::Delivery;
use serde::Serialize;

use crate::commands::present::{clean, moment};

/// An event; its serialised form is what `--output json` promises.
#[derive(Serialize)]
pub(super) struct Event<'a> {
    receipt_id: &'a str,
    tenant: &'a str,
    source: &'a str,
    provider: &'a str,
    event_id: &'a str,
    event_id_derived: bool,
    event_type: &'a str,
    ordering_key: &'a str,
    attempt: u32,
    generation: i64,
    shard: u32,
    position: u64,
    received_at: String,
    request_id: &'a str,
    trace_parent: &'a str,
    idempotency_key: &'a str,
    content_type: &'a str,
    body_bytes: usize,
    #[serde(flatten)]
    content: Option<Content<'a>>,
}

/// What is shown only when it was asked for.
#[derive(Serialize)]
struct Content<'a> {
    headers: Vec<Header<'a>>,
    /// When it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    /// When it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

#[derive(Serialize)]
struct Header<'a> {
    name: &'a str,
    value: String,
}

impl<'a> Event<'a> {
    /// Of a delivery, with or without headers and body.
    pub(super) fn new(delivery: &'a Delivery, with_content: bool) -> Self {
        let event = delivery.event();
        Self {
            receipt_id: &event.receipt_id,
            tenant: &event.tenant,
            source: &event.source,
            provider: &event.provider,
            event_id: &event.event_id,
            event_id_derived: event.event_id_derived,
            event_type: &event.event_type,
            ordering_key: &event.ordering_key,
            attempt: delivery.attempt(),
            generation: delivery.generation(),
            shard: delivery.shard(),
            position: delivery.position(),
            received_at: moment(delivery.received_at()),
            request_id: &event.request_id,
            trace_parent: &event.trace_parent,
            idempotency_key: &event.idempotency_key,
            content_type: &event.content_type,
            body_bytes: event.body.len(),
            content: with_content.then(|| Content::new(delivery)),
        }
    }

    /// For people: one line, and with its content one more.
    pub(super) fn line(&self) -> String {
        let line = format!(
            "{} {}/{} {} {} {} attempt={} position={}/{}",
            self.received_at,
            self.tenant,
            self.source,
            or_dash(self.event_type),
            or_dash(self.event_id),
            or_dash(self.ordering_key),
            self.attempt,
            self.shard,
            self.position,
        );
        let mut line = clean(&line).into_owned();
        if let Some(content) = &self.content {
            let body = content.body.map_or_else(
                || format!("base64:{}", content.body_base64.as_deref().unwrap_or_default()),
                // Line ends may stay: they are what makes a formatted body readable.
                |body| {
                    body.trim_end()
                        .split('\n')
                        .map(|line| clean(line.trim_end_matches('\r')))
                        .collect::<Vec<_>>()
                        .join("\n")
                },
            );
            line.push('\n');
            line.push_str(&body);
        }
        line
    }
}

impl<'a> Content<'a> {
    fn new(delivery: &'a Delivery) -> Self {
        let body = std::str::from_utf8(delivery.body()).ok();
        let headers = delivery.event().headers.iter();
        Self {
            headers: headers
                .map(|header| Header {
                    name: &header.name,
                    value: String::from_utf8_lossy(&header.value).into_owned(),
                })
                .collect(),
            body,
            body_base64: body.is_none().then(|| STANDARD.encode(delivery.body())),
        }
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

#[cfg(test)]
mod tests {
    use portero_client::v1;

    use super::*;

    fn delivery(body: &'static [u8]) -> Delivery {
        let event = v1::Event {
            receipt_id: "rcpt_1".to_owned(),
            tenant: "demo".to_owned(),
            source: "stripe".to_owned(),
            event_id: "evt_1".to_owned(),
            ordering_key: "sub_\u{1b}[2J".to_owned(),
            received_at: Some(prost_types::Timestamp { seconds: 1_750_000_000, nanos: 0 }),
            headers: vec![v1::Header { name: "user-agent".to_owned(), value: b"Stripe/1.0".to_vec() }],
            body: bytes::Bytes::from_static(body),
            ..v1::Event::default()
        };
        let offered = v1::Delivery {
            event: Some(event),
            attempt: 2,
            shard: 3,
            position: 17,
            ..v1::Delivery::default()
        };
        Delivery::detached(offered)
    }

    #[test]
    fn a_line_names_the_event_and_its_place() {
        let delivery = delivery(b"{}");
        assert_eq!(
            Event::new(&delivery, false).line(),
            "2025-06-15T15:06:40.000000Z demo/stripe - evt_1 sub_\\u{1b}[2J attempt=2 position=3/17"
        );
    }

    #[test]
    fn bodies_are_shown_only_when_asked_for_and_cannot_command_the_terminal() {
        let text = delivery(b"{\r\n  \"a\": 1\x1b\n}\n");
        assert!(!Event::new(&text, false).line().contains("\"a\""));
        assert!(
            Event::new(&text, true).line().ends_with("\n{\n  \"a\": 1\\u{1b}\n}"),
            "{}",
            Event::new(&text, true).line()
        );
        assert!(Event::new(&delivery(b"\xff\xfe"), true).line().ends_with("\nbase64://4="));
    }

    #[test]
    fn json_holds_the_body_as_text_or_base64() {
        let json = |delivery: &Delivery, content| {
            serde_json::to_value(Event::new(delivery, content)).expect("serialises")
        };
        let text = json(&delivery(b"{}"), true);
        assert_eq!((text["body"].as_str(), text.get("body_base64")), (Some("{}"), None));
        assert_eq!(text["headers"][0]["value"], "Stripe/1.0");
        let binary = json(&delivery(b"\xff\xfe"), true);
        assert_eq!((binary.get("body"), binary["body_base64"].as_str()), (None, Some("//4=")));
        let plain = json(&delivery(b"{}"), false);
        assert!(plain.get("body").is_none() && plain.get("headers").is_none());
        assert_eq!((plain["position"].as_u64(), plain["body_bytes"].as_u64()), (Some(17), Some(2)));
    }
}
