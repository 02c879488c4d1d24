//! Encryption at rest: what is damaged or destroyed in the database, and keys that change while events flow.

mod damage;
mod keys;
mod unprotected;

use std::process::Output;
use std::time::Duration;

use portero_client::v1;

use crate::harness::{Gateway, Setup, output};

/// How long anything that must come to pass may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command with a gateway's settings.
fn run(gateway: &Gateway, arguments: &[&str]) -> Output {
    output(gateway.command().args(arguments))
}

/// Runs a command that must succeed; its standard output.
#[track_caller]
fn succeed(gateway: &Gateway, arguments: &[&str]) -> String {
    let output = run(gateway, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", complaint(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that must fail; what it complains of.
#[track_caller]
fn fail(gateway: &Gateway, arguments: &[&str]) -> String {
    let output = run(gateway, arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    complaint(&output)
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What `portero keyring status` says of a key: its state and how many data keys it holds.
fn status_of(gateway: &Gateway, key: &str) -> (String, u64) {
    let lines = succeed(gateway, &["keyring", "status", "--output", "json"]);
    let keys = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let found = keys.into_iter().find(|found| found["key"] == key).expect("the key is listed");
    (found["state"].as_str().expect("a state").to_owned(), found["data_keys"].as_u64().expect("a number"))
}

/// Makes a tenant.
async fn tenant(setup: &mut Setup, id: &str) {
    let request = v1::CreateTenantRequest { tenant_id: id.to_owned(), tenant: None };
    setup.admin.create_tenant(request).await.expect("a tenant");
}

/// The entities that wait at `billing`.
async fn parked(setup: &mut Setup) -> Vec<v1::ParkedEntity> {
    let request =
        v1::ListParkedEntitiesRequest { parent: "subscriptions/billing".to_owned(), ..Default::default() };
    setup.admin.list_parked_entities(request).await.expect("a list").into_inner().parked_entities
}
