//! Sample events of the presets, for `portero send` and for tests.

use serde_json::{Value, json};

/// A realistic event of a provider, not yet signed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The event's type, as [`crate::extract()`] will find it.
    pub event_type: String,
    /// The entity, as [`crate::extract()`] will find it.
    pub entity: String,
    /// Headers beside those of the signature (account, API version), lower-case names.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A sample event of a preset, about `entity` (`None`: one that the sample chooses), with the given event id.
///
/// The id lands in the body or, by [`crate::sign()`], in a header, wherever the provider sends it. Shopify's and GitHub's
/// entities are numbers; another text is sent as a string. Adyen's event id is `{id}:AUTHORISATION`. `None` for a name that
/// is not a preset's.
#[must_use]
pub fn sample(preset: &str, id: &str, entity: Option<&str>) -> Option<Sample> {
    match preset {
        "stripe" => Some(stripe(id, entity.unwrap_or("sub_1PorteroSample"))),
        "github" => Some(github(entity.unwrap_or("1296269"))),
        "standard-webhooks" => Some(standard_webhooks(entity.unwrap_or("inv_1042"))),
        "slack" => Some(slack(id, entity.unwrap_or("T0PORTERO:C0GENERAL"))),
        "shopify" => Some(shopify(entity.unwrap_or("820982911946154508"))),
        "adyen" => Some(adyen(id, entity.unwrap_or(id))),
        "custom" => Some(custom(id, entity.unwrap_or("order-1042"))),
        _ => None,
    }
}

fn made(event_type: &str, entity: &str, headers: &[(&str, &str)], body: &Value) -> Sample {
    let mut all = vec![("content-type".to_owned(), "application/json".to_owned())];
    all.extend(headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Sample {
        event_type: event_type.to_owned(),
        entity: entity.to_owned(),
        headers: all,
        body: body.to_string().into_bytes(),
    }
}

/// A number where the text is one that JSON can hold exactly, else the text.
fn number(text: &str) -> Value {
    text.parse::<u64>().ok().filter(|n| n.to_string() == text).map_or_else(|| text.into(), Value::from)
}

fn stripe(id: &str, entity: &str) -> Sample {
    let event_type = "customer.subscription.updated";
    let body = json!({
        "id": id,
        "object": "event",
        "api_version": "2025-08-27.basil",
        "created": 1_750_000_000,
        "livemode": false,
        "type": event_type,
        "pending_webhooks": 1,
        "request": { "id": "req_PorteroSample", "idempotency_key": null },
        "data": {
            "object": {
                "id": entity,
                "object": "subscription",
                "customer": "cus_PorteroSample",
                "status": "active",
                "currency": "usd",
                "items": { "object": "list", "data": [{ "id": "si_1", "quantity": 3 }] },
            },
            "previous_attributes": { "status": "trialing" },
        },
    });
    made(event_type, entity, &[("user-agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")], &body)
}

fn github(entity: &str) -> Sample {
    let body = json!({
        "action": "opened",
        "number": 7,
        "pull_request": {
            "id": 900_719_925_474_099_301_u64,
            "number": 7,
            "state": "open",
            "title": "Knock before you enter",
            "user": { "login": "octocat", "id": 583_231 },
        },
        "repository": { "id": number(entity), "full_name": "octocat/hello-world", "private": false },
        "sender": { "login": "octocat", "id": 583_231 },
    });
    let headers = [("user-agent", "GitHub-Hookshot/044aadd"), ("x-github-hook-id", "292430182")];
    made("pull_request.opened", entity, &headers, &body)
}

fn standard_webhooks(entity: &str) -> Sample {
    let event_type = "invoice.paid";
    let body = json!({
        "type": event_type,
        "timestamp": "2025-06-15T15:06:40Z",
        "data": { "id": entity, "amount": 2_500, "currency": "EUR" },
    });
    made(event_type, entity, &[], &body)
}

fn slack(id: &str, entity: &str) -> Sample {
    let (team, channel) = entity.split_once(':').unwrap_or(("T0PORTERO", entity));
    let body = json!({
        "team_id": team,
        "api_app_id": "A0PORTERO",
        "event": {
            "type": "message",
            "channel": channel,
            "user": "U0PORTERO",
            "text": "The door is open :wave:",
            "ts": "1750000000.000100",
        },
        "type": "event_callback",
        "event_id": id,
        "event_time": 1_750_000_000,
    });
    made("message", &format!("{team}:{channel}"), &[], &body)
}

fn shopify(entity: &str) -> Sample {
    let body = json!({
        "id": number(entity),
        "email": "jon@example.com",
        "total_price": "254.98",
        "currency": "USD",
        "financial_status": "paid",
        "line_items": [{ "id": 866_550_311_766_439_020_u64, "title": "Door knocker", "quantity": 2 }],
    });
    let headers = [
        ("x-shopify-shop-domain", "portero-sample.myshopify.com"),
        ("x-shopify-api-version", "2026-07"),
        ("x-shopify-event-id", "98880550-7158-44d4-b7cd-2c97c8a091b5"),
    ];
    made("orders/paid", entity, &headers, &body)
}

fn adyen(id: &str, entity: &str) -> Sample {
    let original = if entity == id { "" } else { entity };
    let body = json!({
        "live": "false",
        "notificationItems": [{
            "NotificationRequestItem": {
                "additionalData": {},
                "pspReference": id,
                "originalReference": original,
                "merchantAccountCode": "PorteroSample",
                "merchantReference": "order:1042",
                "amount": { "value": 25_000, "currency": "EUR" },
                "eventCode": "AUTHORISATION",
                "success": "true",
                "eventDate": "2025-06-15T15:06:40+00:00",
                "paymentMethod": "visa",
            }
        }],
    });
    made("AUTHORISATION", entity, &[], &body)
}

fn custom(id: &str, entity: &str) -> Sample {
    let event_type = "order.placed";
    let body = json!({
        "id": id,
        "type": event_type,
        "entity": entity,
        "data": { "total": "42.00", "currency": "EUR" },
    });
    made(event_type, entity, &[], &body)
}
