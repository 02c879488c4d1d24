//! One request, several events.

use portero_store::LogStore as _;
use portero_types::limits::EVENTS_PER_REQUEST_MAX;
use serde_json::{Value, json};

use super::SECRET;
use crate::support::{Endpoint, Gateway, Message};

const ADYEN_KEY: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
const COUNT: usize = 250;

/// A provider that sends batches: its preset, its body around so many items, and an item.
type Batching = (&'static str, fn(Vec<Value>) -> Value, fn(usize) -> Value);

const BATCHING: [Batching; 8] = [
    (
        "gocardless",
        |items| json!({"events": items}),
        |n| json!({"id": format!("EV{n}"), "resource_type": "payments", "action": "paid", "links": {"payment": format!("PM{n}")}}),
    ),
    (
        "hubspot",
        |items| json!(items),
        |n| json!({"eventId": n, "subscriptionId": 1, "portalId": 7, "objectId": n, "occurredAt": 1, "subscriptionType": "contact.creation"}),
    ),
    (
        "xero",
        |items| json!({"events": items}),
        |n| json!({"resourceId": format!("r{n}"), "tenantId": "t", "eventCategory": "INVOICE", "eventType": "UPDATE"}),
    ),
    (
        "microsoft-graph",
        |items| json!({"value": items}),
        |n| json!({"id": format!("n{n}"), "clientState": SECRET, "changeType": "updated", "resource": format!("Users/{n}")}),
    ),
    (
        "meta",
        |items| json!({"object": "page", "entry": items}),
        |n| json!({"id": "P", "time": 1, "messaging": [{"sender": {"id": format!("u{n}")}, "message": {"mid": format!("m{n}")}}]}),
    ),
    (
        "line",
        |items| json!({"destination": "U", "events": items}),
        |n| json!({"webhookEventId": format!("w{n}"), "type": "message", "source": {"userId": format!("u{n}")}}),
    ),
    (
        "quickbooks",
        |items| json!({"eventNotifications": [{"realmId": "R", "dataChangeEvent": {"entities": items}}]}),
        |n| json!({"name": "Customer", "id": n.to_string(), "operation": "Create", "lastUpdated": "2025-06-15"}),
    ),
    (
        "asana",
        |items| json!({"events": items}),
        |n| json!({"action": "changed", "resource": {"gid": format!("g{n}"), "resource_type": "task"}}),
    ),
];

fn endpoint(preset: &str) -> Endpoint {
    Endpoint::new(preset, SECRET).of(preset).url("https://hooks.example.com/in")
}

fn message(endpoint: &Endpoint, body: &[u8]) -> Message {
    match endpoint.name.as_str() {
        // It sends a token in each item and signs nothing.
        "microsoft-graph" => Message::post(&[], body),
        _ => Message::signed(endpoint, body),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_and_fifty_events_get_one_answer_and_an_id_and_a_key_each() {
    let endpoints: Vec<_> = BATCHING.iter().map(|(preset, ..)| endpoint(preset)).collect();
    let gateway = Gateway::start(&endpoints).await;
    for (endpoint, (preset, around, item)) in endpoints.iter().zip(BATCHING) {
        let items: Vec<Value> = (0..COUNT).map(item).collect();
        let body = around(items.clone()).to_string();
        let message = message(endpoint, body.as_bytes());
        let answer = gateway.send(endpoint, &message).await;
        assert!((200..300).contains(&answer.status), "{preset}: {answer:?}");
        let stored = gateway.stored(endpoint).await;
        assert_eq!(stored.len(), COUNT, "{preset}");
        let ids: std::collections::HashSet<_> = stored.iter().map(|event| &event.event_id).collect();
        let keys: std::collections::HashSet<_> = stored.iter().map(|event| &event.ordering_key).collect();
        assert_eq!((ids.len(), keys.len()), (COUNT, COUNT), "{preset}: an id and a key each");
        // The same again with one more: what is known does not hold up what is new.
        let more = around(items.into_iter().chain([item(COUNT)]).collect()).to_string();
        let again = gateway.send(endpoint, &self::message(endpoint, more.as_bytes())).await;
        assert!((200..300).contains(&again.status), "{preset}: {again:?}");
        assert_eq!(gateway.stored(endpoint).await.len(), COUNT + 1, "{preset}: one more");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_batch_with_one_bad_item_is_refused_whole_and_taken_whole_when_it_is_good() {
    let (adyen, graph) = (Endpoint::new("adyen", ADYEN_KEY).of("a"), endpoint("microsoft-graph"));
    let gateway = Gateway::start(&[adyen.clone(), graph.clone()]).await;
    let item = |n: usize| {
        json!({"NotificationRequestItem": {
            "pspReference": format!("P{n}"), "merchantAccountCode": "Shop", "merchantReference": "r",
            "amount": {"value": 100, "currency": "EUR"}, "eventCode": "CAPTURE", "success": "true", "additionalData": {},
        }})
    };
    let batch = json!({"live": "false", "notificationItems": (0..20).map(item).collect::<Vec<_>>()});
    let good = Message::signed(&adyen, batch.to_string().as_bytes());
    let forged = String::from_utf8(good.body.clone()).expect("text").replace("P13", "P99");
    let answer = gateway.send(&adyen, &good.clone().with_body(forged.as_bytes())).await;
    answer.is_refused("SIGNATURE_MISMATCH", "one of twenty is forged");
    assert!(gateway.stored(&adyen).await.is_empty(), "and none of the others is stored");
    assert_eq!(gateway.send(&adyen, &good).await.body, "[accepted]");
    assert_eq!(gateway.stored(&adyen).await.len(), 20);

    let (_, around, item) = BATCHING[3];
    let mut items: Vec<Value> = (0..3).map(item).collect();
    items[1]["clientState"] = "somebody else's".into();
    let answer = gateway.send(&graph, &Message::post(&[], around(items).to_string().as_bytes())).await;
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(gateway.stored(&graph).await.is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn adyens_values_are_joined_as_they_are_and_absent_ones_are_empty() {
    let endpoint = Endpoint::new("adyen", ADYEN_KEY);
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    // What is signed, as the documentation writes it, and the item that it stands for.
    let plain = r#"{"version":1,"schemes":[{"signature":{"header":"s"},"algorithm":"hmac-sha256","encoding":"base64","keys":["hex"],"message":"{body}"}]}"#;
    let plain = Endpoint::new(plain, ADYEN_KEY);
    for (id, signed, item) in [
        (
            "P1:AUTHORISATION",
            r"P1::Shop:14-08-2020-09:53:00:100:EUR:AUTHORISATION:true",
            json!({"pspReference": "P1", "merchantAccountCode": "Shop", "merchantReference": "14-08-2020-09:53:00",
                "amount": {"value": 100, "currency": "EUR"}, "eventCode": "AUTHORISATION", "success": "true"}),
        ),
        (
            "https://ca-test.example.com/reports/a:b.csv:REPORT_AVAILABLE",
            "https://ca-test.example.com/reports/a:b.csv::Shop:::EUR:REPORT_AVAILABLE:true",
            json!({"pspReference": "https://ca-test.example.com/reports/a:b.csv", "merchantAccountCode": "Shop",
                "amount": {"currency": "EUR"}, "eventCode": "REPORT_AVAILABLE", "success": "true"}),
        ),
        (
            "P3:CAPTURE:false",
            r"P3:O/1\2:Shop:a\b/c:0:JPY:CAPTURE:false",
            json!({"pspReference": "P3", "originalReference": r"O/1\2", "merchantAccountCode": "Shop", "merchantReference": r"a\b/c",
                "amount": {"value": 0, "currency": "JPY"}, "eventCode": "CAPTURE", "success": "false"}),
        ),
    ] {
        let mut item = item;
        let signature = Message::signed(&plain, signed.as_bytes()).header_mut("s").clone();
        item["additionalData"] = json!({"hmacSignature": signature});
        let body =
            json!({"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}).to_string();
        let answer = gateway.send(&endpoint, &Message::post(&[], body.as_bytes())).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "[accepted]"), "{id}: {answer:?}");
        assert!(gateway.receipt(&endpoint, &format!("acct:Shop:{id}")).await.is_some(), "{id}");
    }
    gateway.stop().await;
}

fn sendgrid() -> Endpoint {
    let public = include_str!("../../../../recipe/tests/it/keys/p256.public.pem");
    let spki: String = public.lines().filter(|line| !line.starts_with("---")).collect();
    Endpoint::new("sendgrid", &spki)
}

/// Signed with the private key to what the endpoint has.
fn sendgrids(endpoint: &Endpoint, body: &str) -> Message {
    let private = include_str!("../../../../recipe/tests/it/keys/p256.private.pem");
    Message::signed_by(endpoint, private, body.as_bytes(), portero_recipe::SignOptions::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_small_events_as_sendgrid_may_send_are_taken_and_one_too_many_refuses_them_all() {
    let endpoint = sendgrid();
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let batch = |first: usize, count: usize| {
        let event =
            |n| json!({"event": "open", "sg_event_id": format!("e{n}"), "sg_message_id": format!("m{n}")});
        Value::from((first..first + count).map(event).collect::<Vec<_>>()).to_string()
    };
    let count = async || gateway.store.heads().await.expect("readable").iter().sum::<u64>();
    let many = sendgrids(&endpoint, &batch(EVENTS_PER_REQUEST_MAX, EVENTS_PER_REQUEST_MAX + 1));
    let answer = gateway.send(&endpoint, &many).await;
    assert_eq!((answer.status, answer.field("reason").as_str()), (413, "TOO_MANY_EVENTS"), "{answer:?}");
    assert_eq!(count().await, 0);
    let full = sendgrids(&endpoint, &batch(0, EVENTS_PER_REQUEST_MAX));
    assert!(full.body.len() <= 768 * 1024, "as SendGrid bounds it");
    gateway.send(&endpoint, &full).await.is_accepted("as many as there may be");
    assert_eq!(count().await, u64::try_from(EVENTS_PER_REQUEST_MAX).expect("small"));
    assert_eq!(gateway.send(&endpoint, &full).await.field("status"), "duplicate");
    for n in [0, EVENTS_PER_REQUEST_MAX - 1] {
        let receipt = gateway.receipt(&endpoint, &format!("src:sendgrid:e{n}")).await.expect("stored");
        assert_eq!(receipt.duplicates, 1, "{n}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn sendgrids_line_ends_count_as_they_came() {
    let endpoint = sendgrid();
    let gateway = Gateway::start(std::slice::from_ref(&endpoint)).await;
    let event = |id: &str| {
        format!(r#"{{"email":"a@b.test","event":"open","sg_event_id":"{id}","sg_message_id":"{id}.0"}}"#)
    };
    let with_ends = |a: &str, b: &str| format!("[{},\r\n{}]\r\n", event(a), event(b));
    let compact = |a: &str, b: &str| format!("[{},{}]", event(a), event(b));
    let signed = |body: &str| sendgrids(&endpoint, body);

    let message = signed(&with_ends("e1", "e2"));
    for changed in [
        compact("e1", "e2"),
        with_ends("e1", "e2").replace("\r\n", "\n"),
        with_ends("e1", "e2").trim_end().to_owned(),
    ] {
        let answer = gateway.send(&endpoint, &message.clone().with_body(changed.as_bytes())).await;
        answer.is_refused("SIGNATURE_MISMATCH", "line ends were taken away");
    }
    gateway.send(&endpoint, &message).await.is_accepted("with line ends");
    let message = signed(&compact("e3", "e4"));
    let rebuilt = message.clone().with_body(with_ends("e3", "e4").as_bytes());
    gateway.send(&endpoint, &rebuilt).await.is_refused("SIGNATURE_MISMATCH", "line ends were added");
    gateway.send(&endpoint, &message).await.is_accepted("compact");
    assert_eq!(gateway.stored(&endpoint).await.len(), 4);
    gateway.stop().await;
}
