//! Entities that wait, as an operator sees and helps them on the command line.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use portero_client::Outcome;
use serde_json::Value;

use crate::harness::{Consumer, Gateway, Kind, Setup, Site, eventually, stripe_event};
use crate::kinds::on_each_store;

const PATIENCE: Duration = Duration::from_secs(60);

/// The command line of an operator who may do everything.
struct Operator {
    site: Arc<Site>,
    connect: Vec<String>,
}

impl Operator {
    fn new(gateway: &Gateway) -> Self {
        let site = Arc::clone(&gateway.site);
        let token = site.path("operator.token");
        std::fs::write(&token, site.admin_token()).expect("written");
        let connect = ["--endpoint", &gateway.grpc_url(), "--token-file", &token, "--output", "json"];
        let connect = connect.map(str::to_owned).to_vec();
        Self { site, connect }
    }

    fn run(&self, words: &str) -> Output {
        let connect = self.connect.iter().map(String::as_str);
        self.site.run(&words.split_whitespace().chain(connect).collect::<Vec<_>>())
    }

    /// The records that a command prints, one a line.
    fn records(&self, words: &str) -> Vec<Value> {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?} ended with {}: {said}", output.status);
        let lines = String::from_utf8(output.stdout).expect("text");
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// How a command fails: its exit code and what it says.
    fn refusal(&self, words: &str) -> (Option<i32>, String) {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?} succeeded");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

on_each_store!(an_operator_finds_what_waits_and_lets_it_go_on);

async fn an_operator_finds_what_waits_and_lets_it_go_on(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let operator = Operator::new(&gateway);
    let created = operator
        .records("subscription create strict --tenant acme --from earliest --dead-letter-policy park-entity");
    assert_eq!(created[0]["dead_letter_policy"], "park-entity");
    let provider = setup.provider(&gateway);
    for (number, id) in ["evt_bad", "evt_next", "evt_last"].iter().enumerate() {
        assert_eq!(provider.send(&stripe_event(id, "blocked", number)).await.status, 200);
    }
    assert_eq!(provider.send(&stripe_event("evt_slow", "failing", 0)).await.status, 200);
    let consumer = Consumer::with(&gateway, "strict", |handled| async move {
        match handled.event_id.as_str() {
            "evt_bad" => Outcome::reject("NO_SUCH_ORDER", "order 17 is unknown"),
            "evt_slow" if handled.attempt == 1 => {
                Outcome::retry_after(Duration::from_secs(3_600), "DOWN", "the ledger is away")
            }
            _ => Outcome::Ack,
        }
    })
    .await;

    let listed = eventually("both entities wait", PATIENCE, async || {
        let listed = operator.records("parked list strict");
        (listed.len() == 2 && listed.iter().any(|one| one["waiting_count"] == 1)).then_some(listed)
    })
    .await;
    let of = |key: &str| listed.iter().find(|one| one["ordering_key"] == key).expect("listed");
    let (blocked, failing) = (of("stripe:blocked"), of("stripe:failing"));
    assert_eq!((&blocked["state"], &blocked["tenant"]), (&Value::from("blocked"), &Value::from("acme")));
    assert_eq!((&blocked["reason_code"], &failing["reason_code"]), (&"NO_SUCH_ORDER".into(), &"DOWN".into()));
    assert_eq!((&failing["state"], &failing["attempts"]), (&Value::from("retry"), &Value::from(1)));
    assert!(!consumer.handled().iter().any(|handled| handled.event_id == "evt_next"), "it waits");

    let id = blocked["entity"].as_str().expect("an id");
    let (code, said) = operator.refusal(&format!("parked dead-letter strict {id}"));
    assert_eq!(code, Some(1));
    assert!(said.contains("dead letter already"), "{said}");
    let (code, said) = operator.refusal("parked retry strict 000000000000000000");
    assert_eq!(code, Some(66), "{said}");

    assert_eq!(operator.records("parked retry strict --all").len(), 2);
    consumer.has_acked(3, PATIENCE).await;
    let order: Vec<String> = consumer
        .handled()
        .into_iter()
        .filter(|handled| handled.ordering_key == "stripe:blocked")
        .map(|handled| handled.event_id)
        .collect();
    assert_eq!(order, ["evt_bad", "evt_next", "evt_last"]);
    eventually("nothing waits any more", PATIENCE, async || {
        operator.records("parked list strict").is_empty().then_some(())
    })
    .await;
    let letters = operator.records("subscription dead-letters strict");
    assert_eq!(letters.len(), 1, "{letters:?}");
}

on_each_store!(an_operator_gives_an_event_up_and_those_behind_it_go_on);

async fn an_operator_gives_an_event_up_and_those_behind_it_go_on(kind: Kind) {
    let site = Site::new(kind);
    let gateway = Gateway::start(&site).await;
    let setup = Setup::new(&gateway).await;
    let operator = Operator::new(&gateway);
    let provider = setup.provider(&gateway);
    for (number, id) in ["evt_bad", "evt_next"].iter().enumerate() {
        assert_eq!(provider.send(&stripe_event(id, "entity", number)).await.status, 200);
    }
    let consumer = Consumer::with(&gateway, "billing", |handled| async move {
        if handled.event_id == "evt_bad" {
            Outcome::retry_after(Duration::from_secs(3_600), "DOWN", "the ledger is away")
        } else {
            Outcome::Ack
        }
    })
    .await;
    let failing = eventually("the entity waits", PATIENCE, async || {
        operator.records("parked list billing").into_iter().find(|one| one["state"] == "retry")
    })
    .await;
    let id = failing["entity"].as_str().expect("an id");
    let asked = operator.records(&format!("parked dead-letter billing {id}"));
    assert_eq!(asked[0]["ordering_key"], "stripe:entity");
    consumer.has_acked(1, PATIENCE).await;
    let letters = operator.records("subscription dead-letters billing");
    assert_eq!(letters[0]["reason_code"], "OPERATOR", "{letters:?}");

    let changed = operator.records("subscription update billing --attempts-max 3 --defer-deadline 1h");
    assert_eq!((&changed[0]["attempts_max"], &changed[0]["defer_deadline_secs"]), (&3.into(), &3_600.into()));
    let (code, said) = operator.refusal("subscription update billing");
    assert_eq!(code, Some(64));
    assert!(said.contains("nothing is to be changed"), "{said}");
}
