//! Subscriptions: what they are created with, what may change later, and what may not.

use portero_auth::Grant;
use portero_proto::v1;
use portero_proto::v1::DeadLetterPolicy;
use tonic::{Code, Status};

use super::{Service, admin_of, bad_field, code, consumer};

const NAME: &str = "subscriptions/billing";

fn of_acme() -> v1::Subscription {
    v1::Subscription { tenant: "tenants/acme".to_owned(), ..v1::Subscription::default() }
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Creates `billing` as acme's admin.
pub(super) async fn create(
    service: &Service,
    subscription: v1::Subscription,
) -> Result<v1::Subscription, Status> {
    let message = v1::CreateSubscriptionRequest {
        subscription_id: "billing".to_owned(),
        subscription: Some(subscription),
    };
    Ok(service.admin.do_create_subscription(service.acme(message)).await?.into_inner())
}

async fn update(
    service: &Service,
    grant: &Grant,
    change: v1::Subscription,
    paths: &[&str],
) -> Result<v1::Subscription, Status> {
    let message = v1::UpdateSubscriptionRequest {
        subscription: Some(v1::Subscription { name: NAME.to_owned(), ..change }),
        update_mask: Some(prost_types::FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }),
    };
    Ok(service.admin.do_update_subscription(service.by(grant, message)).await?.into_inner())
}

#[tokio::test]
async fn a_subscription_says_what_becomes_of_an_entity_with_a_dead_letter() {
    let service = Service::start().await;
    let created = create(&service, of_acme()).await.expect("created");
    assert_eq!(created.dead_letter_policy(), DeadLetterPolicy::Continue, "the default");
    assert_eq!(created.expired_count, 0);
    let message = v1::DeleteSubscriptionRequest { name: NAME.to_owned(), ..Default::default() };
    service.admin.do_delete_subscription(service.acme(message)).await.expect("deleted");
    let park = v1::Subscription { dead_letter_policy: DeadLetterPolicy::ParkEntity.into(), ..of_acme() };
    let created = create(&service, park).await.expect("created");
    assert_eq!(created.dead_letter_policy(), DeadLetterPolicy::ParkEntity);
    let message = v1::GetSubscriptionRequest { name: NAME.to_owned() };
    let found = service.admin.do_get_subscription(service.acme(message)).await.expect("there").into_inner();
    assert_eq!(found, created);
    let odd = v1::Subscription { dead_letter_policy: 9, ..of_acme() };
    assert_eq!(bad_field(create(&service, odd).await), "subscription.dead_letter_policy");
}

#[tokio::test]
async fn an_update_changes_what_its_mask_names_and_is_in_effect_at_once() {
    let service = Service::start().await;
    let mut expected = create(&service, of_acme()).await.expect("created");
    let change = v1::Subscription {
        attempts_max: 3,
        defer_deadline: seconds(60),
        dead_letter_policy: DeadLetterPolicy::ParkEntity.into(),
        event_types: vec!["invoice.*".to_owned()],
        ..v1::Subscription::default()
    };
    let acme = admin_of("acme");
    expected.attempts_max = 3;
    assert_eq!(update(&service, &acme, change.clone(), &["attempts_max"]).await.expect("changed"), expected);
    expected.defer_deadline = seconds(60);
    expected.dead_letter_policy = DeadLetterPolicy::ParkEntity.into();
    let paths = ["defer_deadline", "dead_letter_policy"];
    assert_eq!(update(&service, &acme, change, &paths).await.expect("changed"), expected);
    let snapshot = service.directory.snapshot();
    let loaded = snapshot.subscription(&"billing".parse().expect("valid")).expect("loaded");
    assert_eq!((loaded.attempts_max, loaded.defer_deadline_ms), (3, 60_000));

    // A value that is left out is the default again.
    let changed = update(&service, &acme, v1::Subscription::default(), &["attempts_max"]).await;
    assert_eq!(changed.expect("changed").attempts_max, 16);
}

/// F37: what a subscription carries cannot change under its progress.
#[tokio::test]
async fn what_a_subscription_carries_is_fixed() {
    let service = Service::start().await;
    let created = create(&service, of_acme()).await.expect("created");
    let change = v1::Subscription {
        event_types: vec!["a".to_owned()],
        attempts_max: 2,
        ..v1::Subscription::default()
    };
    for path in ["tenant", "sources", "event_types", "lanes", "start_at"] {
        let outcome = update(&service, &admin_of("acme"), change.clone(), &["attempts_max", path]).await;
        let refused = outcome.expect_err("refused");
        assert!(refused.message().contains("create another subscription"), "{path}: {refused}");
        assert_eq!(bad_field::<()>(Err(refused)), "update_mask");
    }
    let message = v1::GetSubscriptionRequest { name: NAME.to_owned() };
    let found = service.admin.do_get_subscription(service.acme(message)).await.expect("there").into_inner();
    assert_eq!(found, created, "nothing of a refused change is kept");
}

#[tokio::test]
async fn a_change_beyond_the_bounds_names_its_field() {
    let service = Service::start().await;
    create(&service, of_acme()).await.expect("created");
    let of = |attempts_max, secs, dead_letter_policy| v1::Subscription {
        attempts_max,
        defer_deadline: seconds(secs),
        dead_letter_policy,
        ..v1::Subscription::default()
    };
    let cases = [
        (of(1_001, 60, 0), "attempts_max", "subscription.attempts_max"),
        (of(0, 0, 0), "defer_deadline", "subscription.defer_deadline"),
        (of(0, 30 * 86_400 + 1, 0), "defer_deadline", "subscription.defer_deadline"),
        (of(0, 60, 9), "dead_letter_policy", "subscription.dead_letter_policy"),
        (of(0, 60, 0), "name", "update_mask"),
        (of(0, 60, 0), "*", "update_mask"),
    ];
    for (change, path, field) in cases {
        assert_eq!(bad_field(update(&service, &admin_of("acme"), change, &[path]).await), field);
    }
    let outcome = update(&service, &admin_of("acme"), of(1, 60, 0), &[]).await;
    assert_eq!(bad_field(outcome), "update_mask");
}

#[tokio::test]
async fn only_admins_of_its_tenant_and_of_the_platform_change_a_subscription() {
    let service = Service::start().await;
    let change = || v1::Subscription { attempts_max: 2, ..v1::Subscription::default() };
    for grant in [admin_of("acme"), admin_of("globex"), consumer()] {
        let outcome = update(&service, &grant, change(), &["attempts_max"]).await;
        assert_eq!(code(outcome), Code::PermissionDenied, "nobody learns that it is not there");
    }
    create(&service, of_acme()).await.expect("created");
    for grant in [admin_of("globex"), consumer()] {
        let outcome = update(&service, &grant, change(), &["attempts_max"]).await;
        assert_eq!(code(outcome), Code::PermissionDenied);
    }
    let platform = Grant::platform_admin();
    assert_eq!(
        update(&service, &platform, change(), &["attempts_max"]).await.expect("changed").attempts_max,
        2
    );
}
