//! Who may call what, over the wire.

use std::time::Duration;

use portero_auth::{Grant, Issuer, NewToken};
use portero_client::v1::{self, subscriber_service_client::SubscriberServiceClient};
use portero_client::{ErrorKind, SubscribeOptions};
use portero_types::Timestamp;
use tonic::Code;

use crate::harness::{
    Client, Consumer, Gateway, Heard, Kind, Setup, Site, Source, now, stripe_event, subscription,
};

const PATIENCE: Duration = Duration::from_secs(30);

async fn get_tenant(client: &Client, tenant: &str) -> Result<v1::Tenant, Code> {
    let request = v1::GetTenantRequest { name: format!("tenants/{tenant}") };
    client.admin().get_tenant(request).await.map(tonic::Response::into_inner).map_err(|status| status.code())
}

async fn subscribe(client: &Client, subscription: &str) -> ErrorKind {
    let run = client
        .subscribe(subscription, SubscribeOptions::default())
        .run(|_| async { portero_client::Outcome::Ack });
    let ended = tokio::time::timeout(PATIENCE, run).await.expect("a refused subscription ends at once");
    ended.expect_err("it is refused").kind()
}

/// A token of the site's issuer that ended an hour ago.
fn expired_token(site: &Site) -> String {
    let issuer = Issuer::load(site.path("issuer.pem").as_ref(), "portero-local", "portero").expect("the key");
    let new = NewToken {
        subject: "late".to_owned(),
        grant: Some(Grant::platform_admin()),
        lifetime: Duration::from_secs(60),
    };
    let an_hour_ago = Timestamp::from_secs(now().as_secs() - 3_600);
    issuer.mint(&new, an_hour_ago, 1).expect("a token").token.expose_secret().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_wants_a_token_that_allows_it() {
    let site = Site::new(Kind::Sqlite);
    let gateway = Gateway::start(&site).await;
    let mut setup = Setup::new(&gateway).await;
    setup.admin.create_subscription(subscription("other", |_| {})).await.expect("a subscription");
    let request =
        v1::CreateTenantRequest { tenant_id: "rival".to_owned(), tenant: Some(v1::Tenant::default()) };
    setup.admin.create_tenant(request).await.expect("a tenant");

    let stranger = Site::new(Kind::Sqlite);
    let unauthenticated = [
        ("no token", String::new()),
        ("garbage", "not.a.token".to_owned()),
        ("an expired token", expired_token(&site)),
        ("a token of a stranger's key", stranger.admin_token()),
        ("a token with a changed claim", tampered(&site.admin_token())),
    ];
    for (what, token) in unauthenticated {
        let client = gateway.client(&token).await;
        assert_eq!(get_tenant(&client, "acme").await, Err(Code::Unauthenticated), "{what}");
        assert_eq!(subscribe(&client, "billing").await, ErrorKind::Unauthenticated, "{what}");
    }

    let consumer = gateway.client(&site.consumer_token("other")).await;
    assert_eq!(subscribe(&consumer, "billing").await, ErrorKind::PermissionDenied);
    assert_eq!(
        get_tenant(&consumer, "acme").await,
        Err(Code::PermissionDenied),
        "a consumer manages nothing"
    );
    assert_eq!(settle(&gateway, &site.consumer_token("other")).await, Code::PermissionDenied);

    let admin = gateway.client(&site.admin_token()).await;
    assert_eq!(subscribe(&admin, "billing").await, ErrorKind::PermissionDenied, "an admin reads no payload");

    let acme = gateway.client(&site.token(&["--role", "tenant-admin", "--tenant", "acme"])).await;
    assert!(get_tenant(&acme, "acme").await.is_ok());
    assert_eq!(get_tenant(&acme, "rival").await, Err(Code::PermissionDenied));
    assert_eq!(get_tenant(&acme, "missing").await, Err(Code::PermissionDenied), "as if it were there");
    let all = acme.admin().list_tenants(v1::ListTenantsRequest::default()).await;
    assert_eq!(all.expect_err("refused").code(), Code::PermissionDenied);
    let everybodys = acme.admin().create_subscription(subscription("all", |_| {})).await;
    assert_eq!(everybodys.expect_err("refused").code(), Code::PermissionDenied);
    let own = subscription("own", |own| own.tenant = "tenants/acme".to_owned());
    acme.admin().create_subscription(own).await.expect("a tenant's admin makes subscriptions to it");
}

/// Settles by a unary call; gives its code.
async fn settle(gateway: &Gateway, token: &str) -> Code {
    let mut client = SubscriberServiceClient::new(Heard::new(gateway.grpc_url(), token));
    let items = vec![v1::Settlement {
        token: bytes::Bytes::from_static(b"nothing"),
        outcome: v1::Outcome::Ack.into(),
        ..v1::Settlement::default()
    }];
    let message = v1::SettleRequest { subscription: "subscriptions/billing".to_owned(), items };
    client.settle(message).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// The token with its last character but one changed in the claims.
fn tampered(token: &str) -> String {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    let changed = if parts[1].ends_with('A') { 'B' } else { 'A' };
    parts[1].pop();
    parts[1].push(changed);
    parts.join(".")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_is_believed_by_its_public_keys_alone() {
    let site = Site::new(Kind::Sqlite);
    let jwks = site.succeed(&["token", "jwks", "--key", &site.path("issuer.pem")]);
    std::fs::write(site.path("jwks.json"), jwks).expect("written");
    let config = format!(
        "[[auth.issuers]]\nissuer = \"portero-local\"\naudience = \"portero\"\njwks_file = \"{}\"\nalgorithms = [\"EdDSA\"]\ngrants_in_token = true\n",
        site.path("jwks.json")
    );
    let mut gateway = Gateway::new(&site).without("AUTH__LOCAL_ISSUER_KEY_FILE").config_file(&config);
    gateway.launch().await;
    let mut setup = Setup::new(&gateway).await;
    Source::preset(&mut setup.admin, &gateway, "acme", "github").await;
    let consumer = Consumer::start(&gateway).await;
    assert_eq!(setup.provider(&gateway).send(&stripe_event("evt_1", "entity", 0)).await.status, 200);
    consumer.has_acked(1, PATIENCE).await;

    let stranger = Site::new(Kind::Sqlite);
    let client = gateway.client(&stranger.admin_token()).await;
    assert_eq!(get_tenant(&client, "acme").await, Err(Code::Unauthenticated));
}
