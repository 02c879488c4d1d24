//! Names that change hands: what a token says of the former holder is nothing to the next one, at every gateway.

use std::time::Duration;

use portero_client::v1;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::harness::issuer::{IssuerKey, claims, key_set};
use crate::harness::{Admin, Gateway, Heard, Kind, Setup, Site, eventually};

const PATIENCE: Duration = Duration::from_secs(60);
const ISSUER: &str = "https://id.example.test";

/// What acme is to this token.
async fn get_acme(gateway: &Gateway, token: &str) -> Result<(), Status> {
    let request = v1::GetTenantRequest { name: "tenants/acme".to_owned() };
    Admin::new(Heard::new(gateway.grpc_url(), token)).get_tenant(request).await.map(drop)
}

fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

/// Claims that make their holder acme's admin.
fn admin_of_acme(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = claims(ISSUER, "portero", "ops@example.test");
    claims["portero"] = json!({ "role": "tenant-admin", "tenant": "acme" });
    change(&mut claims);
    claims
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_for_an_erased_tenant_are_nothing_to_the_next_one_of_its_name_at_every_gateway() {
    let site = Site::new(Kind::Postgres);
    let key = IssuerKey::ed25519("k1");
    std::fs::write(site.path("jwks.json"), key_set(&[&key])).expect("written");
    let config = format!(
        "[[auth.issuers]]\nissuer = \"{ISSUER}\"\naudience = \"portero\"\njwks_file = \"{}\"\nalgorithms = [\"EdDSA\"]\n\
         grants_in_token = true\n",
        site.path("jwks.json")
    );
    let mut one = Gateway::new(&site).config_file(&config);
    one.launch().await;
    let mut other = Gateway::new(&site).config_file(&config);
    other.launch().await;
    let mut setup = Setup::new(&one).await;
    other.is_up_to_date().await;
    let without_iat = |it: &mut Value| drop(it.as_object_mut().expect("claims").remove("iat"));
    let (local, dated, undated) = (
        site.token(&["--role", "tenant-admin", "--tenant", "acme"]),
        key.sign(&admin_of_acme(|_| {})),
        key.sign(&admin_of_acme(without_iat)),
    );
    for token in [&local, &dated, &undated] {
        get_acme(&other, token).await.expect("its own tenant");
    }

    let erase = v1::EraseTenantRequest {
        name: "tenants/acme".to_owned(),
        confirm: "acme".to_owned(),
        ..Default::default()
    };
    setup.admin.erase_tenant(erase).await.expect("erased");
    let create = v1::CreateTenantRequest { tenant_id: "acme".to_owned(), tenant: None };
    setup.admin.create_tenant(create).await.expect("created for somebody else");
    other.is_up_to_date().await;
    for gateway in [&one, &other] {
        for token in [&local, &dated, &undated] {
            let refused = get_acme(gateway, token).await.expect_err("it is another tenant");
            assert_eq!(
                (refused.code(), reason(&refused).as_str()),
                (Code::PermissionDenied, "GRANT_OUTDATED")
            );
        }
    }
    get_acme(&other, &site.admin_token()).await.expect("who names nobody is not concerned");
    eventually("a token of its own counts", PATIENCE, async || {
        // Within the second of the deletion a token counts as older.
        get_acme(&other, &key.sign(&admin_of_acme(|_| {}))).await.ok()
    })
    .await;
}
