//! The audit log as callers see it.

use std::time::Duration;

use portero_auth::{Grant, Role};
use portero_proto::v1;
use tonic::{Code, Request, Status};

use super::{Service, admin_of, bad_field, code, consumer, name, preset, tenant};

async fn list(
    service: &Service,
    grant: &Grant,
    message: v1::ListAuditEntriesRequest,
) -> Result<v1::ListAuditEntriesResponse, Status> {
    let request = service.by(grant, message);
    Ok(service.admin.do_list_audit_entries(request).await?.into_inner())
}

fn of(parent: &str) -> v1::ListAuditEntriesRequest {
    v1::ListAuditEntriesRequest { parent: parent.to_owned(), ..v1::ListAuditEntriesRequest::default() }
}

fn actions(answer: &v1::ListAuditEntriesResponse) -> Vec<(&str, &str)> {
    answer.audit_entries.iter().map(|entry| (entry.action.as_str(), entry.resource.as_str())).collect()
}

#[tokio::test]
async fn a_change_names_its_caller_and_its_request() {
    let service = Service::start().await;
    let message = v1::CreateSourceRequest {
        parent: "tenants/acme".to_owned(),
        source_id: "pay".to_owned(),
        source: Some(preset("stripe")),
    };
    let mut request: Request<_> = service.acme(message);
    request.metadata_mut().insert("x-request-id", "deploy-42".parse().expect("ASCII"));
    service.admin.do_create_source(request).await.expect("created");
    service.add_secret("pay", "first", super::SECRET).await;
    let answer = list(&service, &admin_of("acme"), of("tenants/acme")).await.expect("allowed");
    let secret = format!("{}/secrets/first", name("pay"));
    assert_eq!(
        actions(&answer),
        [
            ("CreateTenant", "tenants/acme"),
            ("CreateSource", name("pay").as_str()),
            ("CreateSecret", secret.as_str())
        ]
    );
    let (created, added) = (&answer.audit_entries[1], &answer.audit_entries[2]);
    assert_eq!((created.subject.as_str(), created.issuer.as_str()), ("tester", "portero"));
    assert_eq!((created.request_id.as_str(), created.tenant.as_str()), ("deploy-42", "tenants/acme"));
    assert!(added.request_id.starts_with("req_"), "{added:?}");
    assert!(!format!("{answer:?}").contains(super::SECRET));
    assert_eq!((answer.head_seq, answer.head_hash.as_str()), (0, ""), "the rest is the platform's");
}

#[tokio::test]
async fn what_is_deleted_keeps_the_reason_for_it() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    service.add_secret("pay", "first", super::SECRET).await;
    let why = |what: &str| format!("{what} is not needed");
    let (admin, platform) = (&service.admin, Grant::platform_admin());
    let name_of = |what: &str| name("pay") + what;
    let revoke = v1::RevokeSecretRequest { name: name_of("/secrets/first"), ..Default::default() };
    admin.do_revoke_secret(service.acme(revoke)).await.expect("revoked");
    let secret = v1::DeleteSecretRequest { name: name_of("/secrets/first"), reason: why("the secret") };
    admin.do_delete_secret(service.acme(secret)).await.expect("deleted");
    let source = v1::DeleteSourceRequest { name: name_of(""), reason: why("the source") };
    admin.do_delete_source(service.acme(source)).await.expect("deleted");
    let tenant = v1::DeleteTenantRequest { name: "tenants/acme".to_owned(), reason: why("the tenant") };
    admin.do_delete_tenant(service.by(&platform, tenant)).await.expect("deleted");
    let erased = v1::EraseTenantRequest {
        name: "tenants/acme".to_owned(),
        confirm: "acme".to_owned(),
        reason: why("what it left"),
    };
    admin.do_erase_tenant(service.by(&platform, erased)).await.expect("erased");
    let request = service.by(&platform, v1::ListAuditEntriesRequest::default());
    let listed = admin.do_list_audit_entries(request).await.expect("listed").into_inner();
    let reasons: Vec<_> = listed.audit_entries.iter().filter_map(|entry| entry.reason.as_deref()).collect();
    let given = ["the secret", "the source", "the tenant", "what it left"].map(why);
    assert_eq!(reasons, given);
}

#[tokio::test]
async fn a_reason_is_kept_and_one_of_several_lines_is_refused() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    service.add_secret("pay", "first", super::SECRET).await;
    let secret = format!("{}/secrets/first", name("pay"));
    let revoke = async |reason: &str| {
        let (name, reason) = (secret.clone(), reason.to_owned());
        let request = service.acme(v1::RevokeSecretRequest { name, wait: false, reason });
        service.admin.do_revoke_secret(request).await
    };
    for odd in ["a\nb", "a\0b", &"x".repeat(513)] {
        assert_eq!(bad_field(revoke(odd).await), "reason");
    }
    let rotate = v1::RotateSecretRequest {
        parent: name("pay"),
        secret_id: "second".to_owned(),
        reason: "yearly".to_owned(),
        ..v1::RotateSecretRequest::default()
    };
    service.admin.do_rotate_secret(service.acme(rotate)).await.expect("rotated");
    let retire = v1::RetireSecretRequest { name: secret.clone(), end: None, reason: "early".to_owned() };
    service.admin.do_retire_secret(service.acme(retire)).await.expect("retired");
    revoke(" seen in a public repository ").await.expect("revoked");
    let answer = list(&service, &admin_of("acme"), of("tenants/acme")).await.expect("allowed");
    let told: Vec<_> = (answer.audit_entries[3..].iter())
        .map(|entry| (entry.action.as_str(), entry.reason.as_deref().unwrap_or_default()))
        .collect();
    let wanted = [
        ("RetireSecret", "yearly"),
        ("CreateSecret", "yearly"),
        ("RetireSecret", "early"),
        ("RevokeSecret", "seen in a public repository"),
    ];
    assert_eq!(told, wanted);
    assert!(answer.audit_entries[..3].iter().all(|entry| entry.reason.is_none()));
}

#[tokio::test]
async fn who_sees_one_tenant_sees_its_entries_only() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    for role in [Role::TenantAdmin, Role::Security] {
        let grant = Grant::of(role, Some(tenant("globex")));
        let own = list(&service, &grant, of("tenants/globex")).await.expect("allowed");
        assert_eq!(actions(&own), [("CreateTenant", "tenants/globex")], "{role:?}");
        for parent in ["", "tenants/acme", "tenants/nobody"] {
            assert_eq!(code(list(&service, &grant, of(parent)).await), Code::PermissionDenied, "{parent}");
        }
    }
    for grant in [consumer(), Grant::of(Role::Viewer, None), Grant::of(Role::Operator, None)] {
        assert_eq!(code(list(&service, &grant, of("")).await), Code::PermissionDenied);
    }
    let all = list(&service, &Grant::of(Role::Security, None), of("")).await.expect("allowed");
    assert_eq!(all.audit_entries.len(), 3);
    let last = all.audit_entries.last().expect("there");
    assert_eq!((all.head_seq, &all.head_hash), (last.seq, &last.hash));
}

#[tokio::test]
async fn a_tenants_people_see_nothing_of_an_earlier_one_of_its_name() {
    let service = Service::start().await;
    let platform = Grant::platform_admin();
    let gone = v1::DeleteTenantRequest { name: "tenants/globex".to_owned(), ..Default::default() };
    service.admin.do_delete_tenant(service.by(&platform, gone)).await.expect("deleted");
    // Tokens of that moment are nothing to the next tenant of the name.
    service.clock.advance(Duration::from_secs(1));
    let grant = admin_of("globex");
    assert_eq!(code(list(&service, &grant, of("tenants/globex")).await), Code::NotFound);
    let again = v1::CreateTenantRequest { tenant_id: "globex".to_owned(), tenant: None };
    service.admin.do_create_tenant(service.by(&platform, again)).await.expect("created");
    let own = list(&service, &grant, of("tenants/globex")).await.expect("allowed");
    assert_eq!(actions(&own), [("CreateTenant", "tenants/globex")]);
    let both = list(&service, &platform, of("tenants/globex")).await.expect("allowed");
    assert_eq!(both.audit_entries.len(), 3);
}

#[tokio::test]
async fn entries_come_page_by_page_in_both_orders_and_by_what_is_asked_for() {
    let service = Service::start().await;
    for id in ["a", "b", "c"] {
        service.create(id, preset("stripe")).await.expect("created");
    }
    let platform = Grant::platform_admin();
    for newest_first in [false, true] {
        let mut found = Vec::new();
        let mut page_token = String::new();
        loop {
            let asked = v1::ListAuditEntriesRequest { page_size: 2, page_token, newest_first, ..of("") };
            let page = list(&service, &platform, asked).await.expect("allowed");
            assert!(page.audit_entries.len() <= 2);
            found.extend(page.audit_entries.into_iter().map(|entry| entry.seq));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let wanted: Vec<u64> = if newest_first { (1..=5).rev().collect() } else { (1..=5).collect() };
        assert_eq!(found, wanted);
    }
    let asked = v1::ListAuditEntriesRequest { action: "CreateSource".to_owned(), ..of("") };
    assert_eq!(list(&service, &platform, asked).await.expect("allowed").audit_entries.len(), 3);
    let asked = v1::ListAuditEntriesRequest { subject: "nobody".to_owned(), ..of("") };
    assert_eq!(list(&service, &platform, asked).await.expect("allowed").audit_entries, []);
    let asked = v1::ListAuditEntriesRequest { page_token: "odd".to_owned(), ..of("") };
    assert_eq!(bad_field(list(&service, &platform, asked).await), "page_token");
    assert_eq!(bad_field(list(&service, &platform, of("acme")).await), "parent");
}
