//! Pages of what is large.

use portero_auth::Grant;
use portero_proto::v1;
use prost::Message as _;

use super::{Service, admin_of};

/// The largest message that the server sends.
const ANSWER_BYTES_MAX: usize = (1 << 20) + (1 << 18);

#[tokio::test]
async fn one_tenants_large_subscriptions_keep_nobody_from_listing() {
    let service = Service::start().await;
    let event_types: Vec<_> = (0..100).map(|n| format!("{n:03}{}", "x".repeat(250))).collect();
    for n in 0..60 {
        let subscription = v1::Subscription {
            tenant: "tenants/acme".to_owned(),
            event_types: event_types.clone(),
            ..v1::Subscription::default()
        };
        let message = v1::CreateSubscriptionRequest {
            subscription_id: format!("large-{n:02}"),
            subscription: Some(subscription),
        };
        service.admin.do_create_subscription(service.acme(message)).await.expect("created");
    }
    for grant in [Grant::platform_admin(), admin_of("acme")] {
        let (mut names, mut page_token) = (Vec::new(), String::new());
        loop {
            let message = v1::ListSubscriptionsRequest { page_size: 1_000, page_token };
            let answer = service.admin.do_list_subscriptions(service.by(&grant, message)).await;
            let answer = answer.expect("listed").into_inner();
            assert!(answer.encoded_len() <= ANSWER_BYTES_MAX, "{} bytes", answer.encoded_len());
            names.extend(answer.subscriptions.into_iter().map(|subscription| subscription.name));
            page_token = answer.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let expected: Vec<_> = (0..60).map(|n| format!("subscriptions/large-{n:02}")).collect();
        assert_eq!(names, expected, "each once");
    }
}
