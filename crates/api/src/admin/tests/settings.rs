//! Secret settings: given, kept, taken away, and never shown.

use std::collections::HashMap;

use portero_proto::v1;
use portero_proto::v1::source::Verification;
use portero_store::{ConfigStore as _, Sealed, SealedSetting, SourceUpdate};
use portero_types::SourceId;

use super::{Service, bad_field, preset, tenant};

const WORD: &str = "door-word-0123456789";

/// A recipe with a setting that is a secret, or is not.
fn recipe(secret: bool) -> Option<Verification> {
    Some(Verification::RecipeJson(format!(
        r#"{{"version": 1, "settings": {{"word": {{"about": "A word.", "secret": {secret}}}, "plain": {{"about": "A name."}}}},
            "schemes": [{{"signature": {{"header": "x-sig"}}, "algorithm": "hmac-sha256", "keys": ["text"],
            "message": "{{setting:word}}{{body}}", "id": ["{{json:id}}"]}}]}}"#
    )))
}

fn settings(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn own(pairs: &[(&str, &str)]) -> v1::Source {
    v1::Source { verification: recipe(true), settings: settings(pairs), ..v1::Source::default() }
}

fn named(names: &[&str]) -> v1::Source {
    let secret_settings = names.iter().map(|name| (*name).to_owned()).collect();
    v1::Source { secret_settings, ..v1::Source::default() }
}

/// The setting as this gateway gives it to the recipe.
fn opened(service: &Service, id: &str) -> Option<String> {
    service.loaded(id).settings.as_map().get("word").cloned()
}

#[tokio::test]
async fn a_secret_setting_is_in_effect_and_in_no_answer() {
    let service = Service::start().await;
    let created = service.create("own", own(&[("word", WORD), ("plain", "a")])).await.expect("created");
    assert_eq!(created.secret_settings, ["word"]);
    assert_eq!(created.settings, settings(&[("plain", "a")]));
    assert_eq!(opened(&service, "own").as_deref(), Some(WORD));
    let anew =
        service.update("own", own(&[("word", "another-word-9876")]), &["settings"]).await.expect("changed");
    assert_eq!(
        (anew.secret_settings.as_slice(), &anew.settings),
        (&["word".to_owned()][..], &HashMap::new())
    );
    assert_eq!(opened(&service, "own").as_deref(), Some("another-word-9876"));

    let message =
        v1::ListSourcesRequest { parent: "tenants/acme".to_owned(), ..v1::ListSourcesRequest::default() };
    let listed = service.admin.do_list_sources(service.acme(message)).await.expect("listed").into_inner();
    let message = v1::ListAuditEntriesRequest {
        parent: "tenants/acme".to_owned(),
        ..v1::ListAuditEntriesRequest::default()
    };
    let told = service.admin.do_list_audit_entries(service.acme(message)).await.expect("listed").into_inner();
    let row =
        service.store.source(&tenant("acme"), &SourceId::new("own").expect("valid")).await.expect("read");
    let everything =
        format!("{created:?} {anew:?} {listed:?} {told:?} {row:?} {:?}", service.get("own").await);
    for word in [WORD, "another-word-9876"] {
        assert!(!everything.contains(word), "{everything}");
    }
    assert!(
        told.audit_entries.iter().any(|entry| entry.after().contains("secret_settings_given_at")),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_secret_setting_stays_until_it_is_taken_away_by_name() {
    let service = Service::start().await;
    service.create("own", own(&[("word", WORD)])).await.expect("created");
    for (change, mask) in [
        (own(&[("plain", "b")]), "settings"),
        (own(&[]), "settings"),
        (named(&["word"]), "secret_settings"),
        (own(&[]), "recipe_json"),
        (v1::Source::default(), "public_urls"),
    ] {
        let changed = service.update("own", change, &[mask]).await.expect("changed");
        assert_eq!(changed.secret_settings, ["word"], "{mask}");
        assert_eq!(opened(&service, "own").as_deref(), Some(WORD), "{mask}");
    }
    let unknown = service.update("own", named(&["word", "other"]), &["secret_settings"]).await;
    assert_eq!(bad_field(unknown), "source.secret_settings[1]");
    let gone = service.update("own", named(&[]), &["secret_settings"]).await.expect("changed");
    assert_eq!(gone.secret_settings, Vec::<String>::new());
    assert_eq!(opened(&service, "own"), None);
    let promised = v1::Source { secret_settings: vec!["word".to_owned()], ..own(&[]) };
    assert_eq!(bad_field(service.create("new", promised).await), "source.secret_settings[0]");
}

#[tokio::test]
async fn no_recipe_gets_to_read_what_another_one_kept_as_a_secret() {
    let service = Service::start().await;
    service.create("own", own(&[("word", WORD)])).await.expect("created");
    let open = v1::Source { verification: recipe(false), ..v1::Source::default() };
    let refused = service.update("own", open.clone(), &["recipe_json"]).await;
    assert_eq!(bad_field(refused), "source.settings[\"word\"]");
    let unknown = service.update("own", preset("stripe"), &["preset"]).await;
    assert_eq!(bad_field(unknown), "source.settings[\"word\"]");
    let without = service.update("own", open, &["recipe_json", "secret_settings"]).await.expect("changed");
    assert_eq!((without.settings, without.secret_settings), (HashMap::new(), Vec::new()));

    // What was open under one recipe and is a secret under the next is sealed.
    let plain = v1::Source { settings: settings(&[("word", WORD)]), ..v1::Source::default() };
    service.update("own", plain, &["settings"]).await.expect("changed");
    let closed = service.update("own", own(&[]), &["recipe_json"]).await.expect("changed");
    assert_eq!((closed.settings, closed.secret_settings), (HashMap::new(), vec!["word".to_owned()]));
    let row =
        service.store.source(&tenant("acme"), &SourceId::new("own").expect("valid")).await.expect("read");
    assert!(row.expect("there").settings.is_empty(), "it is not kept beside its seal");
    assert_eq!(opened(&service, "own").as_deref(), Some(WORD));
}

#[tokio::test]
async fn a_secret_setting_that_cannot_be_used_is_named_and_not_repeated() {
    let service = Service::start().await;
    service.create("own", own(&[])).await.expect("created");
    for value in ["short-7", "door-word-0123456789 ", "door-word\n0123456789"] {
        for outcome in [
            service.create("new", own(&[("word", value)])).await,
            service.update("own", own(&[("word", value)]), &["settings"]).await,
        ] {
            let shown = format!("{outcome:?}");
            assert_eq!(bad_field(outcome), "source.settings[\"word\"]");
            assert!(!shown.contains("door-word") && !shown.contains("short-7"), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_required_secret_setting_is_warned_of_until_it_is_set() {
    let service = Service::start().await;
    let Some(Verification::RecipeJson(json)) = recipe(true) else { unreachable!("it is a recipe") };
    let json = json.replace("\"secret\": true", "\"secret\": true, \"required\": true");
    let own = v1::Source { verification: Some(Verification::RecipeJson(json)), ..v1::Source::default() };
    let warned =
        |source: &v1::Source| source.warnings.iter().any(|warning| warning.contains("the setting word"));
    assert!(warned(&service.create("own", own).await.expect("created")));
    let set = v1::Source { settings: settings(&[("word", WORD)]), ..v1::Source::default() };
    assert!(!warned(&service.update("own", set, &["settings"]).await.expect("changed")));
}

#[tokio::test]
async fn a_damaged_secret_setting_is_said_and_can_be_given_anew() {
    let service = Service::start().await;
    service.create("own", own(&[("word", WORD)])).await.expect("created");
    let damaged = Some(SealedSetting { given_at: super::NOW, sealed: Sealed(b"damaged".to_vec()) });
    let id = SourceId::new("own").expect("valid");
    let update = SourceUpdate {
        sealed_settings: [("word".to_owned(), damaged)].into(),
        ..SourceUpdate::new(tenant("acme"), id)
    };
    let actor = portero_store::Actor::system("test");
    let change = portero_store::Change::new(actor, "damage", super::NOW);
    service.store.update_source(update, &change).await.expect("updated");
    service.directory.refresh_now().await.expect("refreshed");
    let shown = service.get("own").await;
    assert_eq!(shown.secret_settings, ["word"]);
    let said =
        |source: &v1::Source| source.warnings.iter().any(|warning| warning.contains("cannot be opened"));
    assert!(said(&shown), "{:?}", shown.warnings);
    service.update("own", own(&[("word", WORD)]), &["settings"]).await.expect("given anew");
    assert!(!said(&service.get("own").await));
    assert_eq!(opened(&service, "own").as_deref(), Some(WORD));
}

#[tokio::test]
async fn a_preset_says_which_of_its_settings_are_secrets() {
    let service = Service::start().await;
    for (name, secret) in [("meta", true), ("paypal", false)] {
        let message = v1::GetPresetRequest { name: format!("presets/{name}") };
        let preset = service.admin.do_get_preset(service.acme(message)).await.expect("there").into_inner();
        assert_eq!(preset.settings[0].secret, secret, "{name}");
    }
}
