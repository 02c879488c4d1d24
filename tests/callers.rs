//! Who is believed and who is not: tokens of identity providers and clusters, stored grants, and what happens when they go.

use std::time::Duration;

use portero_client::v1;
use portero_client::{Outcome, SubscribeOptions};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::harness::issuer::{IssuerKey, KeyServer, claims, key_set, sign_with_secret, unsigned};
use crate::harness::{
    Admin, Client, Consumer, Gateway, Heard, Kind, Setup, Site, eventually, now, stripe_event, subscription,
};

const PATIENCE: Duration = Duration::from_secs(60);
const ISSUER: &str = "https://id.example.test";
const ADMIN: &str = "ops@example.test";

/// What a call that anybody with the right grant may make says to this token.
async fn answer(gateway: &Gateway, token: &str) -> Result<(), Status> {
    let request = v1::GetTenantRequest { name: "tenants/acme".to_owned() };
    Admin::new(Heard::new(gateway.grpc_url(), token)).get_tenant(request).await.map(drop)
}

/// The stable code of a refusal.
fn reason(status: &Status) -> String {
    status.get_error_details().error_info().map(|info| info.reason.clone()).unwrap_or_default()
}

/// Settings that trust an issuer, its administrator by configuration.
fn trusting(keys: &str) -> String {
    format!(
        "[[auth.issuers]]\nissuer = \"{ISSUER}\"\naudiences = [\"portero\", \"https://portero.example.test\"]\n{keys}\n\
         algorithms = [\"EdDSA\"]\nsubjects = [{{ subject = \"{ADMIN}\", role = \"platform-admin\" }}]\n"
    )
}

fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = claims(ISSUER, "portero", ADMIN);
    change(&mut claims);
    claims
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_no_good_is_refused_with_a_reason_of_its_own_and_costs_no_event() {
    let site = Site::new(Kind::Sqlite);
    let (key, other) = (IssuerKey::ed25519("k1"), IssuerKey::ed25519("k1"));
    std::fs::write(site.path("jwks.json"), key_set(&[&key])).expect("written");
    let mut gateway =
        Gateway::new(&site).config_file(&trusting(&format!("jwks_file = \"{}\"", site.path("jwks.json"))));
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let sent = setup.provider(&gateway).send(&stripe_event("evt_waiting", "entity", 0)).await;
    assert_eq!(sent.status, 200);

    let now = now().as_secs();
    let good = claims(ISSUER, "portero", ADMIN);
    let several = changed(|it| it["aud"] = json!(["other", "https://portero.example.test"]));
    for (what, claims) in [("one audience", &good), ("several audiences", &several)] {
        answer(&gateway, &key.sign(claims)).await.unwrap_or_else(|status| panic!("{what}: {status}"));
    }
    let public = key.public();
    let with_public_key = |bytes: &[u8]| sign_with_secret("k1", &good, bytes);
    let without = |name: &str| changed(|it| drop(it.as_object_mut().expect("claims").remove(name)));
    let header = |header: Value| key.sign_as(&header, &good);
    let bad = [
        ("no token", String::new(), "TOKEN_MISSING"),
        ("garbage", "not.a.token".to_owned(), "TOKEN_MALFORMED"),
        ("unsigned", unsigned(&good), "ALGORITHM_NONE"),
        (
            "the public key as a secret",
            with_public_key(public["x"].as_str().expect("a key").as_bytes()),
            "ALGORITHM_SYMMETRIC",
        ),
        ("the key set as a secret", with_public_key(key_set(&[&key]).as_bytes()), "ALGORITHM_SYMMETRIC"),
        ("another algorithm", IssuerKey::rsa("k1").sign(&good), "ALGORITHM_NOT_ALLOWED"),
        (
            "a critical header",
            header(json!({ "alg": "EdDSA", "kid": "k1", "crit": ["exp"] })),
            "TOKEN_MALFORMED",
        ),
        (
            "another issuer",
            key.sign(&claims("https://evil.example.test", "portero", ADMIN)),
            "ISSUER_UNKNOWN",
        ),
        ("no issuer", key.sign(&without("iss")), "ISSUER_UNKNOWN"),
        ("no key id", header(json!({ "alg": "EdDSA" })), "KEY_ID_MISSING"),
        ("an unknown key id", IssuerKey::ed25519("k2").sign(&good), "KEY_UNKNOWN"),
        ("another key of that id", other.sign(&good), "SIGNATURE_MISMATCH"),
        ("another audience", key.sign(&claims(ISSUER, "billing", ADMIN)), "AUDIENCE_WRONG"),
        ("no audience", key.sign(&without("aud")), "AUDIENCE_WRONG"),
        ("no expiry", key.sign(&without("exp")), "EXPIRY_MISSING"),
        ("an expired one", key.sign(&changed(|it| it["exp"] = json!(now - 60))), "EXPIRED"),
        ("one that begins later", key.sign(&changed(|it| it["nbf"] = json!(now + 600))), "NOT_YET_VALID"),
        ("one of the future", key.sign(&changed(|it| it["iat"] = json!(now + 600))), "NOT_YET_VALID"),
        ("no subject", key.sign(&without("sub")), "CLAIMS_MALFORMED"),
        ("an expiry in words", key.sign(&changed(|it| it["exp"] = json!("tomorrow"))), "CLAIMS_MALFORMED"),
    ];
    for (what, token, expected) in &bad {
        let refused = answer(&gateway, token).await.expect_err(what);
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::Unauthenticated, *expected),
            "{what}: {refused}"
        );
        let client = gateway.client(token).await;
        let run = client.subscribe("billing", SubscribeOptions::default()).run(|_| async { Outcome::Ack });
        let ended = tokio::time::timeout(PATIENCE, run).await.expect("a refused subscription ends at once");
        assert_eq!(ended.expect_err(what).kind(), portero_client::ErrorKind::Unauthenticated, "{what}");
    }
    // The SDK sends no such token.
    let endless = answer(&gateway, &"a".repeat(20 * 1024)).await.expect_err("an endless token");
    assert_eq!((endless.code(), reason(&endless).as_str()), (Code::Unauthenticated, "TOKEN_TOO_LARGE"));
    // Its own claim to a role is nothing to this issuer, whose claims nobody here controls.
    let mut boastful = claims(ISSUER, "portero", "mallory@example.test");
    boastful["portero"] = json!({ "role": "platform-admin" });
    let refused = answer(&gateway, &key.sign(&boastful)).await.expect_err("it has no grant");
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::PermissionDenied, "NO_GRANT"));
    assert!(refused.message().contains("mallory@example.test"), "it says who was refused: {refused}");

    let consumer = Consumer::start(&gateway).await;
    consumer.has_acked(1, PATIENCE).await;
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_rotate_while_the_gateway_runs_and_known_ones_outlive_their_server() {
    let site = Site::new(Kind::Sqlite);
    let server = KeyServer::plain().await;
    let [first, second, third] = ["k1", "k2", "k3"].map(IssuerKey::ed25519);
    server.publish(&[&first]);
    let mut gateway = Gateway::new(&site)
        .config_file(&trusting(&format!("jwks_url = \"{}\"", server.url)))
        .expect("issuer's keys cannot be read");
    gateway.launch().await;
    Setup::new(&gateway).await;
    let token = |key: &IssuerKey| key.sign(&claims(ISSUER, "portero", ADMIN));
    answer(&gateway, &token(&first)).await.expect("the first key is known");

    server.publish(&[&second]);
    eventually("the new key is found", PATIENCE, async || answer(&gateway, &token(&second)).await.ok()).await;
    let withdrawn = answer(&gateway, &token(&first)).await.expect_err("withdrawn");
    assert_eq!(reason(&withdrawn), "KEY_UNKNOWN");

    server.fail();
    let told = eventually("an unknown key may be a new one", PATIENCE, async || {
        let refused = answer(&gateway, &token(&third)).await.expect_err("nobody published it");
        (reason(&refused) != "KEY_UNKNOWN").then_some(refused)
    })
    .await;
    assert_eq!((told.code(), reason(&told).as_str()), (Code::Unavailable, "KEYS_UNAVAILABLE"), "{told}");
    answer(&gateway, &token(&second)).await.expect("a known key needs no server");

    server.publish(&[&second, &third]);
    eventually("the server is asked again", PATIENCE, async || answer(&gateway, &token(&third)).await.ok())
        .await;
}

/// The service accounts of a cluster: keys behind the cluster's own authority, for those who show a token themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_accounts_of_a_cluster_are_callers_by_configuration_and_by_grants() {
    let site = Site::new(Kind::Sqlite);
    let (server, key) = (KeyServer::tls().await, IssuerKey::rsa("cluster"));
    server.publish(&[&key]);
    server.answer_only("the-gateways-own-token");
    std::fs::write(site.path("ca.crt"), &server.authority).expect("written");
    std::fs::write(site.path("sa.token"), "the-gateways-own-token\n").expect("written");
    let cluster = "https://kubernetes.default.svc.cluster.local";
    let config = format!(
        "[[auth.issuers]]\nissuer = \"{cluster}\"\naudience = \"portero\"\njwks_url = \"{}\"\nca_file = \"{}\"\n\
         bearer_token_file = \"{}\"\nalgorithms = [\"RS256\"]\nsubjects = [{{ subject = \
         \"system:serviceaccount:shop:billing\", role = \"consumer\", subscriptions = [\"billing\"] }}]\n",
        server.url,
        site.path("ca.crt"),
        site.path("sa.token")
    );
    let mut gateway = Gateway::new(&site).config_file(&config);
    gateway.launch().await;
    let setup = Setup::new(&gateway).await;
    let token =
        |account: &str| key.sign(&claims(cluster, "portero", &format!("system:serviceaccount:{account}")));
    assert_eq!(setup.provider(&gateway).send(&stripe_event("evt_1", "entity", 0)).await.status, 200);
    // Its stream, too, can be waited for when the token hardly ends.
    let mut endless = claims(cluster, "portero", "system:serviceaccount:shop:billing");
    endless["exp"] = json!(253_402_300_799_i64);
    let client = gateway.client(&key.sign(&endless)).await;
    let consumer = Consumer::of(client, "billing", |_| async { Outcome::Ack });
    consumer.has_acked(1, PATIENCE).await;
    consumer.stop().await;

    let stranger = answer(&gateway, &token("shop:viewer")).await.expect_err("no grant");
    assert_eq!((stranger.code(), reason(&stranger).as_str()), (Code::PermissionDenied, "NO_GRANT"));
    let admin = site.admin_token();
    let endpoint = gateway.grpc_url();
    let grant = |arguments: &[&str]| {
        let connection = ["--endpoint", &endpoint, "--token", &admin];
        site.succeed(&[&["grant"], arguments, &connection].concat())
    };
    let made = grant(&[
        "create",
        "shop",
        "--issuer",
        cluster,
        "--subject",
        "system:serviceaccount:shop:*",
        "--role",
        "viewer",
        "--tenant",
        "acme",
        "--output",
        "json",
    ]);
    let made: Value = serde_json::from_str(&made).expect("JSON");
    assert_eq!(
        (&made["role"], &made["tenant"], &made["warnings"]),
        (&json!("viewer"), &json!("acme"), &json!([]))
    );
    answer(&gateway, &token("shop:viewer")).await.expect("the whole namespace may look");
    assert!(answer(&gateway, &token("shop-2:viewer")).await.is_err(), "another namespace may not");
    assert!(grant(&["list"]).contains("system:serviceaccount:shop:*"));
    grant(&["delete", "shop"]);
    let refused = answer(&gateway, &token("shop:viewer")).await.expect_err("taken back");
    assert_eq!(reason(&refused), "NO_GRANT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_is_taken_back_at_one_gateway_ends_the_streams_of_another() {
    let site = Site::new(Kind::Postgres);
    let (one, other) = (Gateway::start(&site).await, Gateway::start(&site).await);
    let mut setup = Setup::new(&one).await;
    setup.admin.create_subscription(subscription("side", |_| {})).await.expect("a subscription");
    let grant = |id: &str, subscription: &str| v1::CreateGrantRequest {
        grant_id: id.to_owned(),
        grant: Some(v1::Grant {
            issuer: "portero-local".to_owned(),
            subject: "billing-service".to_owned(),
            role: v1::Role::Consumer.into(),
            subscriptions: vec![format!("subscriptions/{subscription}")],
            ..v1::Grant::default()
        }),
    };
    setup.admin.create_grant(grant("billing", "billing")).await.expect("a grant");
    setup.admin.create_grant(grant("side", "side")).await.expect("a grant");
    // A token that says only who its holder is.
    let token = site.token(&["--subject", "billing-service"]);
    let client = other.client(&token).await;
    other.is_up_to_date().await;
    let run = |client: Client, subscription: &'static str| {
        tokio::spawn(async move {
            let subscribed = client.subscribe(subscription, SubscribeOptions::default());
            subscribed.run(|_| async { Outcome::Ack }).await
        })
    };
    let (lost, kept) = (run(client.clone(), "billing"), run(client, "side"));
    assert_eq!(setup.provider(&one).send(&stripe_event("evt_1", "entity", 0)).await.status, 200);
    // A stream is open when its event has come.
    let delivered = async || other.metric("portero_dispatcher_deliveries_total", &[]).await;
    eventually("both have their event", PATIENCE, async || (delivered().await >= 2.0).then_some(())).await;
    let taken_back = Instant::now();
    let request = v1::DeleteGrantRequest { name: "grants/billing".to_owned(), ..Default::default() };
    setup.admin.delete_grant(request).await.expect("deleted");
    let ended = tokio::time::timeout(PATIENCE, lost).await.expect("it ends").expect("no panic");
    let after = taken_back.elapsed();
    assert_eq!(ended.expect_err("refused").kind(), portero_client::ErrorKind::PermissionDenied);
    // A gateway that had not heard of it for that long would trust its configuration no more.
    assert!(after < Duration::from_secs(5), "it took {after:?}");
    assert!(!kept.is_finished(), "what another grant allows goes on");
    kept.abort();
}
