//! The audit log: what an owner of the database does to it behind the gateways' back is found.

use std::process::Output;
use std::sync::Arc;

use portero_client::v1;
use serde_json::Value;

use crate::harness::{Gateway, Kind, Setup, Site, canaries};
use crate::kinds::on_each_store;
use crate::operator::{Operator, said};

/// Why its secret was revoked.
const LEAKED: &str = "seen in a public repository";

/// A gateway with a few changes in its log.
struct Place {
    site: Arc<Site>,
    gateway: Gateway,
    operator: Operator,
}

impl Place {
    async fn new(kind: Kind) -> Self {
        let site = Site::new(kind);
        let gateway = Gateway::start(&site).await;
        let operator = Operator::at(&gateway);
        let mut setup = Setup::new(&gateway).await;
        let name = format!("{}/secrets/second", setup.stripe.name);
        let request = v1::CreateSecretRequest {
            parent: setup.stripe.name.clone(),
            secret_id: "second".to_owned(),
            ..v1::CreateSecretRequest::default()
        };
        let secret = setup.admin.create_secret(request).await.expect("added").into_inner();
        canaries::plant_secret(&secret.value);
        let revoke = v1::RevokeSecretRequest { name, reason: LEAKED.to_owned(), wait: false };
        setup.admin.revoke_secret(revoke).await.expect("revoked");
        Self { site, gateway, operator }
    }

    /// `portero audit export` into a file of the site; what it says.
    fn export(&self, file: &str) -> String {
        let (endpoint, token) = (self.gateway.grpc_url(), self.site.path("operator.token"));
        let connect = ["--endpoint", &endpoint, "--token-file", &token];
        let output = self.site.run(&[&["audit", "export", "--file", file][..], &connect].concat());
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }

    fn entries(&self, words: &str) -> Vec<Value> {
        let output = self.operator.run(words);
        assert!(output.status.success(), "{words}: {}", said(&output));
        let lines = String::from_utf8(output.stdout).expect("text");
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// What the owner of the database does to the log, whose triggers are no obstacle to it.
    fn tamper(&self, statements: &str) {
        self.site.query(&format!(
            "BEGIN; ALTER TABLE audit_log DISABLE TRIGGER ALL; {statements};
             ALTER TABLE audit_log ENABLE ALWAYS TRIGGER audit_log_append_only; COMMIT"
        ));
    }

    /// That the log does not hold, and why.
    fn problem(&self, words: &str) -> String {
        let output = self.operator.run(words);
        assert_eq!(output.status.code(), Some(1), "{words}: {}", said(&output));
        told(&output)
    }
}

fn told(output: &Output) -> String {
    let line: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(line["holds"], false);
    let (seq, problem) = (&line["first_bad_seq"], line["problem"].as_str().expect("a text"));
    assert!(said(output).contains("the log does not hold"), "{problem}");
    format!("{seq}: {problem}")
}

on_each_store!(the_log_of_a_gateway_is_listed_exported_and_verified);

async fn the_log_of_a_gateway_is_listed_exported_and_verified(kind: Kind) {
    let place = Place::new(kind).await;
    let verdict = place.operator.json("audit verify");
    assert_eq!((&verdict["holds"], &verdict["last_seq"]), (&Value::Bool(true), &Value::from(6)));

    let newest = place.entries("audit list --tenant acme --action RevokeSecret");
    assert_eq!(newest.len(), 1);
    assert_eq!(newest[0]["resource"], "tenants/acme/sources/stripe/secrets/second");
    assert_eq!(newest[0]["reason"], LEAKED);
    assert!(newest[0]["before"].as_str().expect("a view").contains("\"revoked_at\":null"));
    let all: Vec<_> = place.entries("audit list").iter().map(|entry| entry["seq"].clone()).collect();
    assert_eq!(all, (1..=6).rev().map(Value::from).collect::<Vec<_>>());

    let file = place.site.path("audit.jsonl");
    let hash = verdict["last_hash"].as_str().expect("a hash");
    let exported = place.export(&file);
    assert!(exported.contains("entries 1 to 6") && exported.contains(hash), "{exported}");
    let again =
        place.site.run(&["audit", "verify", "--file", &file, "--expect-seq", "6", "--expect-hash", hash]);
    assert!(again.status.success(), "an exported file needs neither a gateway nor a token: {}", said(&again));

    let text = std::fs::read_to_string(&file).expect("the export");
    let verify = |lines: &[String]| {
        let changed = place.site.path("changed.jsonl");
        std::fs::write(&changed, lines.concat()).expect("written");
        let output = place.site.run(&["audit", "verify", "--output", "json", "--file", &changed]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        told(&output)
    };
    let lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    let removed = [&lines[..2], &lines[3..]].concat();
    assert_eq!(verify(&removed), "3: entries 3 to 3 are missing");
    let mut altered = lines;
    altered[1] = altered[1].replace("CreateSource", "UpdateSource");
    assert!(verify(&altered).starts_with("2: entry 2 was altered"), "{}", verify(&altered));
    altered[1] = altered[1].replace("UpdateSource", "CreateSource");
    altered[5] = altered[5].replace(LEAKED, "routine");
    assert!(verify(&altered).starts_with("6: entry 6 was altered"), "{}", verify(&altered));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_the_databases_owner_alters_or_removes_are_found() {
    let place = Place::new(Kind::Postgres).await;
    place.site.query("CREATE TABLE audit_saved AS TABLE audit_log");
    let restore = || place.tamper("DELETE FROM audit_log; INSERT INTO audit_log SELECT * FROM audit_saved");
    let verdict = place.operator.json("audit verify");
    let hash = verdict["last_hash"].as_str().expect("a hash");
    for (statements, found) in [
        ("UPDATE audit_log SET subject = 'somebody-else' WHERE seq = 3", "3: entry 3 was altered"),
        ("UPDATE audit_log SET changed_at = changed_at + 1 WHERE seq = 1", "1: entry 1 was altered"),
        ("UPDATE audit_log SET view_after = NULL WHERE seq = 2", "2: entry 2 was altered"),
        ("UPDATE audit_log SET tenant_no = tenant_no + 1 WHERE seq = 6", "6: entry 6 was altered"),
        ("UPDATE audit_log SET reason = 'routine' WHERE seq = 6", "6: entry 6 was altered"),
        ("UPDATE audit_log SET reason = NULL WHERE seq = 6", "6: entry 6 was altered"),
        ("UPDATE audit_log SET reason = 'routine' WHERE seq = 5", "5: entry 5 was altered"),
        ("DELETE FROM audit_log WHERE seq = 1", "1: entries 1 to 1 are missing"),
        ("DELETE FROM audit_log WHERE seq IN (4, 5)", "4: entries 4 to 5 are missing"),
        (
            "DELETE FROM audit_log WHERE seq = 4; UPDATE audit_log SET seq = seq - 1 WHERE seq > 4",
            "4: entry 4 was altered",
        ),
    ] {
        place.tamper(statements);
        let problem = place.problem("audit verify");
        assert!(problem.starts_with(found), "{statements}: {problem}");
        restore();
        place.operator.json("audit verify");
    }

    // A shorter chain holds by itself: what was noted down elsewhere tells.
    place.tamper("DELETE FROM audit_log WHERE seq > 4");
    assert_eq!(place.operator.json("audit verify")["last_seq"], 4);
    let noted = format!("audit verify --expect-seq 6 --expect-hash {hash}");
    assert!(place.problem(&noted).starts_with("5: the log ends with entry 4"), "{}", place.problem(&noted));

    // The log goes on from there, and what was noted down is still missed.
    for tenant in ["late", "later"] {
        place.operator.json(&format!("tenant create {tenant}"));
    }
    assert!(place.problem(&noted).starts_with("6: entry 6 is not the one"), "{}", place.problem(&noted));
}
