//! Tenants that change, and how much tenants and sources may send.

use portero_auth::Grant;
use portero_proto::v1;
use tonic::{Code, Status};

use super::{Service, admin_of, bad_field, code, preset};

const NONE: v1::Limits = v1::Limits { events_per_second: None, burst: None, bytes_per_second: None };

async fn update(
    service: &Service,
    grant: &Grant,
    tenant: v1::Tenant,
    paths: &[&str],
) -> Result<v1::Tenant, Status> {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    let message = v1::UpdateTenantRequest {
        tenant: Some(v1::Tenant { name: "tenants/acme".to_owned(), ..tenant }),
        update_mask: Some(prost_types::FieldMask { paths }),
    };
    Ok(service.admin.do_update_tenant(service.by(grant, message)).await?.into_inner())
}

#[tokio::test]
async fn the_platform_says_how_much_a_tenant_may_send_and_the_tenant_does_not() {
    let service = Service::start().await;
    let limits = v1::Limits { events_per_second: Some(50), ..NONE };
    let wanted =
        v1::Tenant { limits: Some(limits), display_name: "ignored".to_owned(), ..v1::Tenant::default() };
    let refused = update(&service, &admin_of("acme"), wanted.clone(), &["limits"]).await;
    assert_eq!(code(refused), Code::PermissionDenied);
    let platform = Grant::platform_admin();
    let updated = update(&service, &platform, wanted, &["limits"]).await.expect("updated");
    assert_eq!((updated.limits, updated.display_name.as_str()), (Some(limits), ""));
    let in_effect =
        service.directory.snapshot().tenant(&"acme".parse().expect("valid")).map(|tenant| tenant.limits);
    assert_eq!(in_effect.and_then(|limits| limits.events_per_second), Some(50), "here at once");
    let updated = update(&service, &platform, v1::Tenant::default(), &["limits"]).await.expect("updated");
    assert_eq!(updated.limits, None, "as the settings say");
}

#[tokio::test]
async fn what_is_wrong_with_a_tenants_change_is_named() {
    let service = Service::start().await;
    let platform = Grant::platform_admin();
    for paths in [&[][..], &["name"], &["limits", "create_time"]] {
        let refused = update(&service, &platform, v1::Tenant::default(), paths).await;
        assert_eq!(bad_field(refused), "update_mask");
    }
    let wrong = v1::Tenant { limits: Some(v1::Limits { burst: Some(0), ..NONE }), ..v1::Tenant::default() };
    let refused = update(&service, &platform, wrong, &["limits"]).await;
    assert_eq!(bad_field(refused), "tenant.limits.burst");
    let long = v1::Tenant { display_name: "x".repeat(201), ..v1::Tenant::default() };
    let refused = update(&service, &platform, long, &["display_name"]).await;
    assert_eq!(bad_field(refused), "tenant.display_name");
}

#[tokio::test]
async fn a_source_has_its_limits_from_the_beginning_and_changes_them() {
    let service = Service::start().await;
    let limits = v1::Limits { events_per_second: Some(5), burst: Some(9), bytes_per_second: Some(0) };
    let created = service
        .create("pay", v1::Source { limits: Some(limits), ..preset("stripe") })
        .await
        .expect("created");
    assert_eq!(created.limits, Some(limits));
    let other = v1::Limits { burst: Some(3), ..NONE };
    let change = v1::Source { limits: Some(other), ..v1::Source::default() };
    let changed = service.update("pay", change, &["limits"]).await.expect("changed");
    assert_eq!(changed, v1::Source { limits: Some(other), ..created });
    assert_eq!(service.loaded("pay").limits.burst, Some(3));
    let wrong = v1::Limits { events_per_second: Some(u32::MAX), ..NONE };
    let change = v1::Source { limits: Some(wrong), ..v1::Source::default() };
    let refused = service.update("pay", change, &["limits"]).await;
    assert_eq!(bad_field(refused), "source.limits.events_per_second");
}
