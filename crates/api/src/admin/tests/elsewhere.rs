//! What another gateway has made, and this one has not heard of yet. The directory of these tests follows nothing by itself.

use std::time::{Duration, Instant};

use portero_proto::v1;
use portero_store::testing::fixture::{new_subscription, tester};
use portero_store::{ConfigStore as _, NewGrant, Revision};
use portero_types::GrantId;
use tonic::{Code, Request};

use super::{NOW, Service, code, tenant};

async fn grant(service: &Service, subject: &str, role: &str) {
    let new = NewGrant {
        id: GrantId::new(subject).expect("valid"),
        issuer: "portero".to_owned(),
        subject: subject.to_owned(),
        role: role.to_owned(),
        tenant: Some(tenant("acme")),
        subscriptions: Vec::new(),
        created_at: NOW,
    };
    service.store.create_grant(new, &tester()).await.expect("granted");
}

fn acme() -> v1::GetTenantRequest {
    v1::GetTenantRequest { name: "tenants/acme".to_owned() }
}

fn applied(service: &Service) -> Revision {
    service.directory.snapshot().revision()
}

#[tokio::test]
async fn a_grant_of_another_gateway_counts_at_the_first_call() {
    let service = Service::start().await;
    for subject in ["alice", "bob", "carol"] {
        grant(&service, subject, "viewer").await;
        let seen = service.admin.do_get_tenant(service.known_as(subject, acme())).await;
        assert_eq!(seen.expect("granted").into_inner().name, "tenants/acme");
    }
}

#[tokio::test]
async fn a_grant_for_a_subscription_that_both_were_made_elsewhere_counts_at_the_first_call() {
    let service = Service::start().await;
    let mut orders = new_subscription("orders");
    orders.tenant = Some(tenant("acme"));
    service.store.create_subscription(orders, &tester()).await.expect("created");
    grant(&service, "alice", "operator").await;
    let get = v1::GetSubscriptionRequest { name: "subscriptions/orders".to_owned() };
    let seen = service.admin.do_get_subscription(service.known_as("alice", get)).await;
    assert_eq!(seen.expect("granted").into_inner().tenant, "tenants/acme");
    let get = v1::GetGrantRequest { name: "grants/alice".to_owned() };
    let seen = service.admin.do_get_grant(service.known_as("alice", get)).await;
    assert_eq!(code(seen), Code::PermissionDenied, "an operator sees no grants");
    grant(&service, "bob", "security").await;
    let get = v1::GetGrantRequest { name: "grants/alice".to_owned() };
    service.admin.do_get_grant(service.known_as("bob", get)).await.expect("granted");
}

#[tokio::test]
async fn who_may_call_or_cannot_say_who_it_is_makes_nobody_look() {
    let service = Service::start().await;
    let before = applied(&service);
    grant(&service, "alice", "viewer").await;
    service.admin.do_get_tenant(service.acme(acme())).await.expect("allowed by its token");
    assert_eq!(code(service.admin.do_get_tenant(Request::new(acme())).await), Code::Unauthenticated);
    let mut forged = service.known_as("alice", acme());
    let token = forged.metadata().get("authorization").expect("there").to_str().expect("ASCII").to_owned();
    let spoiled = token.replace('.', ".A").parse().expect("ASCII");
    forged.metadata_mut().insert("authorization", spoiled);
    assert_eq!(code(service.admin.do_get_tenant(forged).await), Code::Unauthenticated);
    assert_eq!(applied(&service), before);
    assert_eq!(
        code(service.admin.do_get_tenant(service.known_as("bob", acme())).await),
        Code::PermissionDenied
    );
    assert!(applied(&service) > before, "who is refused does");
}

/// Who is refused again and again waits, and the database is not asked each time.
#[tokio::test]
async fn a_caller_that_is_refused_in_a_loop_is_slowed_down() {
    let service = Service::start().await;
    let began = Instant::now();
    for _ in 0..4 {
        let refused = service.admin.do_get_tenant(service.known_as("bob", acme())).await;
        assert_eq!(code(refused), Code::PermissionDenied);
    }
    assert!(began.elapsed() > Duration::from_millis(700), "{:?}", began.elapsed());
}
