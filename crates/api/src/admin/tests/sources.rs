//! Sources: what they warn of, what changes, and what is refused.

use std::collections::{BTreeMap, HashMap};

use portero_auth::Grant;
use portero_proto::v1;
use portero_proto::v1::source::Verification;
use tonic::Code;

use super::{NOW, SECRET, Service, admin_of, bad_field, code, consumer, name, preset};
use crate::time;

const URL: &str = "https://hooks.example.com/in/0123";

fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn in_an_hour() -> Option<prost_types::Timestamp> {
    Some(time::to_proto(NOW.plus(std::time::Duration::from_hours(1))))
}

#[tokio::test]
async fn a_missing_setting_is_a_warning_until_it_is_given() {
    let service = Service::start().await;
    let created = service.create("pay", preset("paypal")).await.expect("created without its setting");
    assert!(created.warnings[0].contains("until the setting webhook_id is given"), "{:?}", created.warnings);

    let change = v1::Source { settings: settings(&[("webhook_id", "1JE42910")]), ..v1::Source::default() };
    let changed = service.update("pay", change, &["settings"]).await.expect("changed");
    assert_eq!(changed.settings, settings(&[("webhook_id", "1JE42910")]));
    assert!(!changed.warnings.iter().any(|warning| warning.contains("webhook_id")), "{:?}", changed.warnings);
    let expected = BTreeMap::from([("webhook_id".to_owned(), "1JE42910".to_owned())]);
    assert_eq!(service.loaded("pay").settings.as_map(), &expected, "in effect here at once");
}

#[tokio::test]
async fn weak_and_unproven_recipes_and_missing_urls_are_warned_of() {
    let service = Service::start().await;
    let warned =
        |source: &v1::Source, words: &str| source.warnings.iter().any(|warning| warning.contains(words));
    let strong = service.create("strong", preset("stripe")).await.expect("created");
    assert_eq!(strong.warnings, Vec::<String>::new());

    let weak = service.create("weak", preset("gitlab")).await.expect("created");
    assert!(warned(&weak, "a token does not cover the body"), "{:?}", weak.warnings);

    let unproven = r#"{"version": 1, "unproven": true, "schemes": [{"signature": {"header": "X-Sig"},
        "algorithm": "hmac-sha256", "encoding": "hex", "keys": ["text"], "message": "{body}", "id": ["{json:id}"]}]}"#;
    let own = v1::Source {
        verification: Some(Verification::RecipeJson(unproven.to_owned())),
        ..v1::Source::default()
    };
    let own = service.create("own", own).await.expect("created");
    assert!(warned(&own, "never tried"), "{:?}", own.warnings);
    assert_eq!(own.provider, "own");
    assert_eq!(service.get("own").await, own, "read back alike");

    let signed = service.create("signed", preset("square")).await.expect("created");
    assert!(warned(&signed, "public_urls"), "{:?}", signed.warnings);
    let change = v1::Source { public_urls: vec![URL.to_owned()], ..v1::Source::default() };
    let changed = service.update("signed", change, &["public_urls"]).await.expect("changed");
    assert!(!warned(&changed, "public_urls"), "{:?}", changed.warnings);
    assert_eq!(service.loaded("signed").public_urls, [URL]);

    let message =
        v1::ListSourcesRequest { parent: "tenants/acme".to_owned(), page_size: 0, page_token: String::new() };
    let listed = service.admin.do_list_sources(service.acme(message)).await.expect("listed").into_inner();
    assert_eq!(listed.sources, [own, changed, strong, weak]);
}

#[tokio::test]
async fn an_update_changes_only_what_its_mask_names() {
    let service = Service::start().await;
    let whole = v1::Source {
        public_urls: vec![URL.to_owned()],
        settings: settings(&[("webhook_id", "1JE42910")]),
        ..preset("paypal")
    };
    let before = service.create("pay", whole).await.expect("created");
    let other = v1::Source {
        provider: "other".to_owned(),
        ingest_path: "/in/other".to_owned(),
        public_urls: vec!["https://new.example.com/".to_owned()],
        settings: settings(&[("webhook_id", "OTHER")]),
        ..preset("stripe")
    };
    let changed = service.update("pay", other.clone(), &["public_urls"]).await.expect("changed");
    assert_eq!(changed, v1::Source { public_urls: other.public_urls.clone(), ..before.clone() });

    let changed = service.update("pay", other.clone(), &["settings", "public_urls"]).await.expect("changed");
    let expected = v1::Source {
        public_urls: other.public_urls.clone(),
        settings: other.settings.clone(),
        ..before.clone()
    };
    assert_eq!(changed, expected);
    assert_eq!(service.get("pay").await, expected);

    // Stripe's recipe does not know PayPal's setting: both must change.
    let outcome = service.update("pay", other.clone(), &["preset"]).await;
    assert_eq!(bad_field(outcome), "source.settings[\"webhook_id\"]");
    let cleared = v1::Source { settings: HashMap::new(), ..other };
    let changed = service.update("pay", cleared, &["preset", "settings"]).await.expect("changed");
    assert_eq!(changed.verification, Some(Verification::Preset("stripe".to_owned())));
    assert_eq!(
        (changed.provider, changed.ingest_path),
        (before.provider, before.ingest_path),
        "fixed at creation"
    );
}

#[tokio::test]
async fn a_field_that_cannot_be_used_is_named() {
    let service = Service::start().await;
    service.create("pay", preset("paypal")).await.expect("created");
    let urls = |urls: &[&str]| v1::Source {
        public_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        ..preset("paypal")
    };
    let set = |pairs: &[(&str, &str)]| v1::Source { settings: settings(pairs), ..preset("paypal") };
    let json = |json: &str| v1::Source {
        verification: Some(Verification::RecipeJson(json.to_owned())),
        ..v1::Source::default()
    };
    let cases = [
        (urls(&[URL, "ftp://example.com/"]), "source.public_urls[1]", "public_urls"),
        (urls(&["https://u@example.com/"]), "source.public_urls[0]", "public_urls"),
        (urls(&["https://example.com/#a"]), "source.public_urls[0]", "public_urls"),
        (urls(&[URL, URL]), "source.public_urls[1]", "public_urls"),
        (
            urls(&["https://a/", "https://b/", "https://c/", "https://d/", "https://e/"]),
            "source.public_urls",
            "public_urls",
        ),
        (set(&[("colour", "red")]), "source.settings[\"colour\"]", "settings"),
        (set(&[("webhook_id", "")]), "source.settings[\"webhook_id\"]", "settings"),
        (set(&[("webhook_id", "a b")]), "source.settings[\"webhook_id\"]", "settings"),
        (
            v1::Source { secret_window: seconds(60), ..preset("paypal") },
            "source.secret_window",
            "secret_window",
        ),
        (preset("nobody"), "source.preset", "preset"),
        (json("{"), "source.recipe_json", "recipe_json"),
        (json(&" ".repeat(65_537)), "source.recipe_json", "recipe_json"),
        (v1::Source::default(), "source.verification", "preset"),
    ];
    for (source, field, path) in cases {
        assert_eq!(bad_field(service.create("new", source.clone()).await), field);
        assert_eq!(bad_field(service.update("pay", source, &[path]).await), field);
    }
    for paths in [&[][..], &["provider"], &["public_urls", "*"], &["settings.webhook_id"]] {
        assert_eq!(bad_field(service.update("pay", preset("paypal"), paths).await), "update_mask");
    }
    let reason = service.create("new", json("{\"version\": 1, \"colour\": 1}")).await.expect_err("refused");
    assert!(reason.message().contains("colour"), "{reason}");
}

#[tokio::test]
async fn a_recipe_whose_handshake_brings_the_secret_waits_for_it() {
    let service = Service::start().await;
    let waiting = service.create("asana", preset("asana")).await.expect("created");
    assert_eq!(waiting.secret_expected_until, in_an_hour());
    assert_eq!(
        service.loaded("asana").secret_expected_until,
        Some(NOW.plus(std::time::Duration::from_hours(1)))
    );
    let never = v1::Source { secret_window: seconds(0), ..preset("asana") };
    assert_eq!(service.create("never", never).await.expect("created").secret_expected_until, None);
    let plain = service.create("plain", preset("stripe")).await.expect("created");
    assert_eq!(plain.secret_expected_until, None);

    let window = |secs| v1::Source { secret_window: seconds(secs), ..v1::Source::default() };
    let opened = service.update("never", window(3_600), &["secret_window"]).await.expect("opened");
    assert_eq!(opened.secret_expected_until, in_an_hour());
    let kept = service.update("never", v1::Source::default(), &["public_urls"]).await.expect("changed");
    assert_eq!(kept.secret_expected_until, in_an_hour(), "what is not named stays");
    let closed = service.update("never", window(0), &["secret_window"]).await.expect("closed");
    assert_eq!(closed.secret_expected_until, None);
    for secs in [-1, 7 * 86_400 + 1] {
        assert_eq!(
            bad_field(service.update("never", window(secs), &["secret_window"]).await),
            "source.secret_window"
        );
    }
    let moved = service.update("asana", preset("stripe"), &["preset"]).await.expect("changed");
    assert_eq!(moved.secret_expected_until, None, "the new recipe takes no secret by handshake");
}

#[tokio::test]
async fn a_recipe_that_the_secrets_do_not_fit_is_refused() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    service.add_secret("pay", "first", SECRET).await;
    let refused = service.update("pay", preset("discord"), &["preset"]).await.expect_err("another form");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("the secret first"), "{refused}");
    assert!(service.loaded("pay").verification.is_ok(), "the source works on");
    service.update("pay", preset("github"), &["preset"]).await.expect("the same form");
}

#[tokio::test]
async fn only_the_tenants_admins_change_a_source() {
    let service = Service::start().await;
    service.create("pay", preset("stripe")).await.expect("created");
    let message = |name: String| v1::UpdateSourceRequest {
        source: Some(v1::Source { name, public_urls: vec![URL.to_owned()], ..v1::Source::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["public_urls".to_owned()] }),
    };
    for grant in [admin_of("globex"), consumer()] {
        for source in [name("pay"), name("none")] {
            let outcome = service.admin.do_update_source(service.by(&grant, message(source))).await;
            assert_eq!(code(outcome), Code::PermissionDenied, "the same for what is there and what is not");
        }
    }
    let outcome = service.admin.do_update_source(tonic::Request::new(message(name("pay")))).await;
    assert_eq!(code(outcome), Code::Unauthenticated);
    let outcome = service.admin.do_update_source(service.acme(message(name("none")))).await;
    assert_eq!(code(outcome), Code::NotFound);
    assert_eq!(service.get("pay").await.public_urls, Vec::<String>::new());
    let request = service.by(&Grant::platform_admin(), message(name("pay")));
    service.admin.do_update_source(request).await.expect("changed");
    assert_eq!(service.get("pay").await.public_urls, [URL]);
}
