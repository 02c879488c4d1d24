//! Refused requests, without what they held.

use portero_auth::Grant;
use portero_proto::v1;
use tonic::{Code, Status};

use super::{Service, admin_of, bad_field, code, consumer, name, preset};

async fn list(
    service: &Service,
    grant: &Grant,
    size: i32,
    token: &str,
) -> Result<v1::ListRejectionsResponse, Status> {
    let message =
        v1::ListRejectionsRequest { parent: name("pay"), page_size: size, page_token: token.to_owned() };
    Ok(service.admin.do_list_rejections(service.by(grant, message)).await?.into_inner())
}

async fn get(service: &Service, grant: &Grant, name: String) -> Result<v1::Rejection, Status> {
    let request = service.by(grant, v1::GetRejectionRequest { name });
    Ok(service.admin.do_get_rejection(request).await?.into_inner())
}

#[tokio::test]
async fn rejections_are_listed_newest_first_and_read_by_name() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    let mut ids = Vec::new();
    for secs in 0..5 {
        ids.push(service.refuse("pay", secs, None).await.to_string());
    }
    ids.reverse();
    let first = list(&service, &admin_of("acme"), 3, "").await.expect("a page");
    let second = list(&service, &admin_of("acme"), 3, &first.next_page_token).await.expect("a page");
    assert!(second.next_page_token.is_empty());
    let listed: Vec<v1::Rejection> = [first.rejections, second.rejections].concat();
    assert_eq!(listed.iter().map(|one| one.request_id.clone()).collect::<Vec<_>>(), ids);
    for one in listed {
        assert_eq!(one.name, format!("{}/rejections/{}", name("pay"), one.request_id));
        assert_eq!(
            (one.reason.as_str(), one.body_bytes, one.explainable),
            ("SIGNATURE_MISMATCH", 300_000, false)
        );
        assert_eq!(one.body_sha256, "ab".repeat(32));
        assert_eq!(get(&service, &Grant::platform_admin(), one.name.clone()).await.expect("there"), one);
    }
    assert_eq!(bad_field(list(&service, &admin_of("acme"), 3, "req_1").await), "page_token");
}

#[tokio::test]
async fn what_is_foreign_is_as_absent_as_what_never_was() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    service.create("other", preset("stripe")).await.expect("created");
    let id = service.refuse("pay", 1, None).await;
    let unknown = format!("{}/rejections/req_{}", name("pay"), "0".repeat(32));
    let known = format!("{}/rejections/{id}", name("pay"));
    for grant in [admin_of("globex"), consumer()] {
        assert_eq!(code(list(&service, &grant, 0, "").await), Code::PermissionDenied);
        for name in [&known, &unknown] {
            assert_eq!(code(get(&service, &grant, name.clone()).await), Code::PermissionDenied);
        }
    }
    // The id of another source's or tenant's request tells nothing, whoever may see the source itself.
    let elsewhere = ["tenants/acme/sources/other", "tenants/globex/sources/pay", "tenants/acme/sources/none"];
    for parent in elsewhere {
        let outcome = get(&service, &Grant::platform_admin(), format!("{parent}/rejections/{id}")).await;
        assert_eq!(code(outcome), Code::NotFound, "{parent}");
    }
    assert_eq!(code(get(&service, &admin_of("acme"), unknown).await), Code::NotFound);
    let odd = format!("{}/rejections/one", name("pay"));
    assert_eq!(bad_field(get(&service, &admin_of("acme"), odd).await), "name");
}
