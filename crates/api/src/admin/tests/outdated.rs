//! Tokens that name what was deleted since: they are nothing to what has the name now.

use super::*;

const LIFETIME: Duration = Duration::from_secs(86_400);

/// A message by somebody whose token was issued at the service's present moment.
fn now_by<T>(service: &Service, grant: &Grant) -> impl Fn(T) -> Request<T> + use<T> {
    let new = NewToken { subject: "tester".to_owned(), grant: Some(grant.clone()), lifetime: LIFETIME };
    let minted = service.issuer.mint(&new, service.clock.now(), 1).expect("a token");
    let bearer = format!("Bearer {}", minted.token.expose_secret());
    move |message| {
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", bearer.parse().expect("ASCII"));
        request
    }
}

fn get(tenant: &str) -> v1::GetTenantRequest {
    v1::GetTenantRequest { name: format!("tenants/{tenant}") }
}

async fn create_tenant(service: &Service, tenant: &str) {
    let message = v1::CreateTenantRequest { tenant_id: tenant.to_owned(), tenant: None };
    let request = now_by(service, &Grant::platform_admin())(message);
    service.admin.do_create_tenant(request).await.expect("created");
}

/// Erases a tenant a few seconds later.
async fn erase_later(service: &Service, tenant: &str) {
    service.clock.advance(Duration::from_secs(5));
    let message = v1::EraseTenantRequest {
        name: format!("tenants/{tenant}"),
        confirm: tenant.to_owned(),
        ..Default::default()
    };
    let request = now_by(service, &Grant::platform_admin())(message);
    service.admin.do_erase_tenant(request).await.expect("erased");
}

/// Code, reason and words of a refusal.
fn told(status: &Status) -> (Code, String, String) {
    let reason = status.get_error_details().error_info().map(|info| info.reason.clone());
    (status.code(), reason.unwrap_or_default(), status.message().to_owned())
}

#[tokio::test]
async fn a_token_for_an_erased_tenant_is_nothing_to_the_next_one_of_its_name() {
    let service = Service::start().await;
    let former = now_by(&service, &admin_of("acme"));
    let get_acme = async |by: &dyn Fn(v1::GetTenantRequest) -> Request<v1::GetTenantRequest>| {
        service.admin.do_get_tenant(by(get("acme"))).await
    };
    get_acme(&former).await.expect("its own tenant");
    erase_later(&service, "acme").await;
    let gone = told(&get_acme(&former).await.expect_err("nobody is there"));
    assert_eq!((gone.0, gone.1.as_str()), (Code::PermissionDenied, "GRANT_OUTDATED"));
    for word in ["\"tester\"", "iat", "get a new token"] {
        assert!(gone.2.contains(word), "{word} is missing: {}", gone.2);
    }
    create_tenant(&service, "acme").await;
    let others = told(&get_acme(&former).await.expect_err("somebody else"));
    assert_eq!(others, gone, "the answer does not tell whether the name is taken again");
    service.clock.advance(Duration::from_secs(1));
    let latter = now_by(&service, &admin_of("acme"));
    get_acme(&latter).await.expect("a token of its own");

    let elsewhere = service.admin.do_get_tenant(now_by(&service, &admin_of("globex"))(get("acme"))).await;
    assert_eq!(told(&elsewhere.expect_err("not its own")).1, "NOT_ALLOWED");
}

#[tokio::test]
async fn a_token_may_be_older_than_the_first_tenant_of_its_name() {
    let service = Service::start().await;
    let by = now_by(&service, &admin_of("initech"));
    service.clock.advance(Duration::from_secs(5));
    create_tenant(&service, "initech").await;
    service.admin.do_get_tenant(by(get("initech"))).await.expect("nobody had the name before");
}

#[tokio::test]
async fn what_a_token_names_beside_an_outdated_name_and_what_is_stored_goes_on() {
    let service = Service::start().await;
    let of_all = now_by(&service, &Grant::platform_admin());
    let of_globex = now_by(&service, &admin_of("globex"));
    erase_later(&service, "acme").await;
    create_tenant(&service, "acme").await;
    service.admin.do_get_tenant(of_all(get("acme"))).await.expect("it names nobody");
    service.admin.do_get_tenant(of_globex(get("globex"))).await.expect("nobody gave that name up");

    let outdated = Grant::of(portero_auth::Role::Viewer, Some(tenant("globex")));
    let viewer = now_by(&service, &outdated);
    erase_later(&service, "globex").await;
    create_tenant(&service, "globex").await;
    assert_eq!(code(service.admin.do_get_tenant(viewer(get("globex"))).await), Code::PermissionDenied);
    let grant = v1::Grant {
        issuer: "portero".to_owned(),
        subject: "tester".to_owned(),
        role: v1::Role::Viewer.into(),
        tenant: "tenants/globex".to_owned(),
        ..v1::Grant::default()
    };
    let message = v1::CreateGrantRequest { grant_id: "tester".to_owned(), grant: Some(grant) };
    service.admin.do_create_grant(now_by(&service, &Grant::platform_admin())(message)).await.expect("made");
    service.admin.do_get_tenant(viewer(get("globex"))).await.expect("its stored grant is of now");
}
