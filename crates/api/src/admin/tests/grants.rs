//! Grants: who may give which, and what they do at once.

use portero_auth::{Grant, Role};
use portero_proto::v1;
use tonic::{Code, Status};

use super::{Service, admin_of, bad_field, code, subscriptions, tenant};

const ISSUER: &str = "portero";

fn to(subject: &str, role: v1::Role) -> v1::Grant {
    v1::Grant {
        issuer: ISSUER.to_owned(),
        subject: subject.to_owned(),
        role: role.into(),
        ..v1::Grant::default()
    }
}

fn within(grant: v1::Grant, tenant: &str) -> v1::Grant {
    v1::Grant { tenant: format!("tenants/{tenant}"), ..grant }
}

fn of(grant: v1::Grant, subscriptions: &[&str]) -> v1::Grant {
    let subscriptions = subscriptions.iter().map(|id| format!("subscriptions/{id}")).collect();
    v1::Grant { subscriptions, ..grant }
}

async fn create(service: &Service, by: &Grant, id: &str, grant: v1::Grant) -> Result<v1::Grant, Status> {
    let message = v1::CreateGrantRequest { grant_id: id.to_owned(), grant: Some(grant) };
    Ok(service.admin.do_create_grant(service.by(by, message)).await?.into_inner())
}

async fn get(service: &Service, by: &Grant, id: &str) -> Result<v1::Grant, Status> {
    let message = v1::GetGrantRequest { name: format!("grants/{id}") };
    Ok(service.admin.do_get_grant(service.by(by, message)).await?.into_inner())
}

async fn delete(service: &Service, by: &Grant, id: &str) -> Result<(), Status> {
    let message = v1::DeleteGrantRequest { name: format!("grants/{id}"), reason: String::new() };
    service.admin.do_delete_grant(service.by(by, message)).await.map(drop)
}

/// The ids that a list shows, with pages of this size.
async fn list(service: &Service, by: &Grant, page_size: i32) -> Result<Vec<Vec<String>>, Status> {
    let (mut pages, mut page_token) = (Vec::new(), String::new());
    loop {
        let message = v1::ListGrantsRequest { page_size, page_token };
        let page = service.admin.do_list_grants(service.by(by, message)).await?.into_inner();
        pages.push(page.grants.into_iter().map(|grant| grant.name.replace("grants/", "")).collect());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(pages);
        }
    }
}

/// Whether a caller that only its token's subject is known of may look at acme.
async fn sees_acme(service: &Service, subject: &str) -> Result<(), Status> {
    let message = v1::GetTenantRequest { name: "tenants/acme".to_owned() };
    service.admin.do_get_tenant(service.known_as(subject, message)).await.map(drop)
}

/// Code, message and details: all of an answer that could tell two cases apart.
fn told(status: &Status) -> (Code, String, Vec<u8>) {
    (status.code(), status.message().to_owned(), status.details().to_vec())
}

#[tokio::test]
async fn a_grant_is_in_effect_as_soon_as_it_is_made_and_no_longer_than_it_is_there() {
    let (service, platform) = (Service::start().await, Grant::platform_admin());
    let refused = sees_acme(&service, "alice").await.expect_err("nothing is granted");
    assert_eq!(refused.code(), Code::PermissionDenied);
    for word in ["\"alice\"", "\"portero\"", "portero grant create"] {
        assert!(refused.message().contains(word), "{word} is missing: {refused}");
    }
    let made = create(&service, &platform, "alice", within(to("alice", v1::Role::Viewer), "acme")).await;
    let made = made.expect("made");
    assert_eq!(get(&service, &platform, "alice").await.expect("there"), made);
    assert_eq!((made.role(), made.warnings.len()), (v1::Role::Viewer, 0));
    sees_acme(&service, "alice").await.expect("granted");
    assert_eq!(code(sees_acme(&service, "bob").await), Code::PermissionDenied);
    delete(&service, &platform, "alice").await.expect("deleted");
    assert_eq!(told(&sees_acme(&service, "alice").await.expect_err("taken back")), told(&refused));
    assert_eq!(code(get(&service, &platform, "alice").await), Code::NotFound);
    assert_eq!(code(delete(&service, &platform, "alice").await), Code::NotFound);
}

#[tokio::test]
async fn a_grant_to_a_prefix_is_for_all_whose_names_begin_so() {
    let (service, platform) = (Service::start().await, Grant::platform_admin());
    create(&service, &platform, "team", to("team-a:*", v1::Role::Operator)).await.expect("made");
    sees_acme(&service, "team-a:bob").await.expect("granted");
    assert_eq!(code(sees_acme(&service, "team-ab").await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_tenants_admin_gives_no_more_than_its_tenant() {
    let (service, acme) = (Service::start().await, admin_of("acme"));
    subscriptions::create(&service, v1::Subscription { tenant: "tenants/acme".into(), ..Default::default() })
        .await
        .expect("billing");
    for (n, grant) in [
        within(to("a", v1::Role::TenantAdmin), "acme"),
        within(to("a", v1::Role::Security), "acme"),
        within(to("a", v1::Role::Operator), "acme"),
        within(to("a", v1::Role::Viewer), "acme"),
        of(within(to("a", v1::Role::Consumer), "acme"), &["billing"]),
    ]
    .into_iter()
    .enumerate()
    {
        create(&service, &acme, &format!("own-{n}"), grant).await.expect("its own tenant");
    }
    for grant in [
        to("a", v1::Role::PlatformAdmin),
        to("a", v1::Role::Security),
        to("a", v1::Role::Operator),
        to("a", v1::Role::Viewer),
        of(to("a", v1::Role::Consumer), &["billing"]),
        within(to("a", v1::Role::TenantAdmin), "globex"),
        within(to("a", v1::Role::Viewer), "globex"),
        within(to("a", v1::Role::Viewer), "missing"),
        of(within(to("a", v1::Role::Consumer), "globex"), &["billing"]),
    ] {
        let refused = create(&service, &acme, "more", grant.clone()).await;
        assert_eq!(code(refused), Code::PermissionDenied, "{grant:?}");
    }
    for role in [Role::Security, Role::Operator, Role::Viewer] {
        let by = Grant::of(role, None);
        let refused = create(&service, &by, "more", within(to("a", v1::Role::Viewer), "acme")).await;
        assert_eq!(code(refused), Code::PermissionDenied, "{role} grants nothing");
    }
}

#[tokio::test]
async fn others_subscriptions_and_grants_look_as_if_they_were_not_there() {
    let (service, acme, platform) = (Service::start().await, admin_of("acme"), Grant::platform_admin());
    let wanted = of(within(to("a", v1::Role::Consumer), "acme"), &["billing"]);
    let missing = create(&service, &acme, "g", wanted.clone()).await.expect_err("no such subscription");
    assert_eq!(missing.code(), Code::NotFound);
    for tenant in ["tenants/globex", ""] {
        let message = v1::CreateSubscriptionRequest {
            subscription_id: "billing".to_owned(),
            subscription: Some(v1::Subscription { tenant: tenant.to_owned(), ..Default::default() }),
        };
        service.admin.do_create_subscription(service.by(&platform, message)).await.expect("made");
        let others = create(&service, &acme, "g", wanted.clone()).await.expect_err("not acme's");
        assert_eq!(told(&others), told(&missing));
        let message =
            v1::DeleteSubscriptionRequest { name: "subscriptions/billing".to_owned(), ..Default::default() };
        service.admin.do_delete_subscription(service.by(&platform, message)).await.expect("deleted");
    }
    create(&service, &platform, "g", within(to("a", v1::Role::Viewer), "globex")).await.expect("made");
    create(&service, &platform, "all", to("a", v1::Role::Viewer)).await.expect("made");
    for id in ["g", "all"] {
        let others = get(&service, &acme, id).await.expect_err("not acme's");
        assert_eq!(told(&others), told(&get(&service, &acme, "missing").await.expect_err("missing")));
        assert_eq!(others.code(), Code::PermissionDenied);
        let others = delete(&service, &acme, id).await.expect_err("not acme's");
        assert_eq!(told(&others), told(&delete(&service, &acme, "missing").await.expect_err("missing")));
    }
}

#[tokio::test]
async fn a_list_shows_what_its_caller_may_see_and_its_pages_tell_nothing_of_the_rest() {
    let (service, platform) = (Service::start().await, Grant::platform_admin());
    for id in ["a", "c", "e"] {
        create(&service, &platform, id, within(to(id, v1::Role::Viewer), "acme")).await.expect("made");
    }
    for id in ["b", "d", "f"] {
        create(&service, &platform, id, within(to(id, v1::Role::Viewer), "globex")).await.expect("made");
    }
    create(&service, &platform, "g", to("g", v1::Role::Viewer)).await.expect("made");
    let all = list(&service, &platform, 4).await.expect("listed");
    assert_eq!(all, [vec!["a", "b", "c", "d"], vec!["e", "f", "g"]]);
    let of_acme = [vec!["a", "c"], vec!["e"]];
    assert_eq!(list(&service, &admin_of("acme"), 2).await.expect("listed"), of_acme);
    let security = Grant::of(Role::Security, Some(tenant("acme")));
    assert_eq!(list(&service, &security, 3).await.expect("listed"), [["a", "c", "e"]]);
    assert_eq!(code(list(&service, &Grant::of(Role::Viewer, None), 2).await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_grant_that_makes_no_sense_names_the_field() {
    let (service, platform) = (Service::start().await, Grant::platform_admin());
    let good = to("alice", v1::Role::Viewer);
    let long = of(to("a", v1::Role::Consumer), &["billing"; 101]);
    let rows = [
        (v1::Grant { issuer: String::new(), ..good.clone() }, "grant.issuer"),
        (v1::Grant { issuer: "a\nb".to_owned(), ..good.clone() }, "grant.issuer"),
        (v1::Grant { subject: "*".to_owned(), ..good.clone() }, "grant.subject"),
        (v1::Grant { subject: "a*b".to_owned(), ..good.clone() }, "grant.subject"),
        (v1::Grant { role: 0, ..good.clone() }, "grant.role"),
        (v1::Grant { role: 99, ..good.clone() }, "grant.role"),
        (v1::Grant { tenant: "acme".to_owned(), ..good.clone() }, "grant.tenant"),
        (v1::Grant { subscriptions: vec!["billing".to_owned()], ..good.clone() }, "grant.subscriptions"),
        (of(good.clone(), &["billing"]), "grant.role"),
        (within(to("a", v1::Role::PlatformAdmin), "acme"), "grant.role"),
        (to("a", v1::Role::TenantAdmin), "grant.role"),
        (to("a", v1::Role::Consumer), "grant.role"),
        (long, "grant.subscriptions"),
    ];
    for (grant, field) in rows {
        assert_eq!(bad_field(create(&service, &platform, "g", grant.clone()).await), field, "{grant:?}");
    }
    assert_eq!(bad_field(create(&service, &platform, "Not A Slug", good.clone()).await), "grant_id");
    let unknown = create(&service, &platform, "g", within(good.clone(), "missing")).await;
    assert_eq!(unknown.expect_err("no such tenant").message(), "tenants/missing does not exist");
    let unknown = create(&service, &platform, "g", of(to("a", v1::Role::Consumer), &["missing"])).await;
    assert_eq!(unknown.expect_err("no such subscription").message(), "subscriptions/missing does not exist");
    create(&service, &platform, "g", good.clone()).await.expect("good");
    assert_eq!(code(create(&service, &platform, "g", good.clone()).await), Code::AlreadyExists);
    let stranger = v1::Grant { issuer: "https://nobody.test".to_owned(), ..good };
    let warned = create(&service, &platform, "warned", stranger).await.expect("made all the same");
    assert!(warned.warnings[0].contains("no issuer of this name is trusted"), "{warned:?}");
}

#[tokio::test]
async fn a_subscription_of_the_same_name_gives_nobody_an_old_grant_back() {
    let (service, platform) = (Service::start().await, Grant::platform_admin());
    let of_acme = || v1::Subscription { tenant: "tenants/acme".to_owned(), ..Default::default() };
    subscriptions::create(&service, of_acme()).await.expect("made");
    let grant = of(within(to("a", v1::Role::Consumer), "acme"), &["billing"]);
    create(&service, &platform, "g", grant).await.expect("made");
    let message =
        v1::DeleteSubscriptionRequest { name: "subscriptions/billing".to_owned(), ..Default::default() };
    service.admin.do_delete_subscription(service.acme(message)).await.expect("deleted");
    subscriptions::create(&service, of_acme()).await.expect("made again");
    assert_eq!(code(get(&service, &platform, "g").await), Code::NotFound);
    let snapshot = service.directory.snapshot();
    assert_eq!(snapshot.grants_of(ISSUER, "a").count(), 0);
}
