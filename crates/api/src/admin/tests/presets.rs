//! Presets, for every role.

use portero_auth::Grant;
use portero_proto::v1;
use portero_recipe::Recipe;
use tonic::Code;

use super::{Service, admin_of, bad_field, code, consumer};

async fn page(service: &Service, grant: &Grant, size: i32, token: &str) -> v1::ListPresetsResponse {
    let message = v1::ListPresetsRequest { page_size: size, page_token: token.to_owned() };
    service.admin.do_list_presets(service.by(grant, message)).await.expect("a page").into_inner()
}

#[tokio::test]
async fn every_role_lists_all_presets_page_by_page() {
    let service = Service::start().await;
    let all: Vec<String> = Recipe::presets().map(|preset| format!("presets/{}", preset.name)).collect();
    for grant in [Grant::platform_admin(), admin_of("globex"), consumer()] {
        let (mut seen, mut token) = (Vec::new(), String::new());
        loop {
            let page = page(&service, &grant, 10, &token).await;
            assert!(page.presets.len() == 10 || page.next_page_token.is_empty());
            seen.extend(page.presets.into_iter().map(|preset| preset.name));
            token = page.next_page_token;
            if token.is_empty() {
                break;
            }
        }
        assert!(seen.is_sorted());
        assert_eq!(seen.len(), all.len());
        assert!(all.iter().all(|name| seen.contains(name)));
    }
}

#[tokio::test]
async fn a_preset_says_what_a_source_of_it_needs() {
    let service = Service::start().await;
    let get = async |name: &str| {
        let message = v1::GetPresetRequest { name: name.to_owned() };
        service.admin.do_get_preset(service.by(&consumer(), message)).await.map(tonic::Response::into_inner)
    };
    let paypal = get("presets/paypal").await.expect("there");
    assert_eq!((paypal.title.as_str(), paypal.category.as_str()), ("PayPal", "payments"));
    assert_eq!((paypal.settings[0].name.as_str(), paypal.settings[0].required), ("webhook_id", true));
    assert!(!paypal.needs_secret && !paypal.writes_secret);
    assert_eq!(paypal.strength(), v1::Strength::Fields);
    assert!(paypal.redelivery.is_some() && !paypal.setup.is_empty());
    Recipe::from_json(&paypal.recipe_json).expect("a model for recipes of one's own");

    let stripe = get("presets/stripe").await.expect("there");
    assert_eq!(stripe.strength(), v1::Strength::Body);
    assert!(stripe.needs_secret && !stripe.signs_url);
    assert!(stripe.ordering_key.iter().any(|template| template.contains("json:")));
    assert!(get("presets/asana").await.expect("there").writes_secret);
    assert!(get("presets/square").await.expect("there").signs_url);

    let listed = page(&service, &consumer(), 1_000, "").await.presets;
    assert!(listed.iter().all(|preset| preset.recipe_json.is_empty()), "a page stays small");
    assert_eq!(code(get("presets/nobody").await), Code::NotFound);
    assert_eq!(bad_field(get("stripe").await), "name");
}

#[tokio::test]
async fn strangers_see_no_presets() {
    let service = Service::start().await;
    let outcome = service.admin.do_list_presets(tonic::Request::new(v1::ListPresetsRequest::default())).await;
    assert_eq!(code(outcome), Code::Unauthenticated);
}
