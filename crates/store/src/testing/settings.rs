//! Secret settings of sources.

use std::collections::BTreeMap;

use portero_types::{TenantNo, Timestamp};

use super::fixture::{Fixture, NOW, new_source, new_tenant, source_id, tenant_id, tester};
use super::{Database, assert_fails};
use crate::{
    AuditFilter, ConfigChanges, ErrorKind, NewSource, ResealedSettings, SEALED_SETTING_BYTES_MAX, Sealed,
    SealedSetting, SealedSettings, SealedSettingsChange, Source, SourceUpdate,
};

/// A setting that was given so many seconds after the cases' now.
fn given(text: &str, secs: i64) -> SealedSetting {
    let given_at = Timestamp::from_secs(NOW.as_secs() + secs);
    SealedSetting { given_at, sealed: Sealed(text.as_bytes().to_vec()) }
}

fn sealed(text: &str) -> SealedSetting {
    given(text, 0)
}

fn settings(pairs: &[(&str, &str)]) -> SealedSettings {
    SealedSettings(pairs.iter().map(|(name, text)| ((*name).to_owned(), sealed(text))).collect())
}

fn change(pairs: &[(&str, Option<&str>)]) -> SealedSettingsChange {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), text.map(sealed))).collect()
}

fn update(id: &str) -> SourceUpdate {
    SourceUpdate::new(tenant_id("acme"), source_id(id))
}

/// A source with two secret settings beside another one.
async fn chat(fixture: &Fixture) -> Source {
    let sealed_settings = settings(&[("token", "sealed-1"), ("word", "sealed-2")]);
    let new = NewSource { sealed_settings, ..new_source("acme", "chat") };
    fixture.store.create_source(new, &tester()).await.expect("created")
}

pub async fn secret_settings_are_kept_and_changed_one_by_one(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let mut expected = chat(&fixture).await;
    assert_eq!(expected.sealed_settings, settings(&[("token", "sealed-1"), ("word", "sealed-2")]));
    let since = store.revision().await.expect("revision");

    let other = BTreeMap::from([("account".to_owned(), "a1".to_owned())]);
    let plain = SourceUpdate { settings: Some(other.clone()), ..update("chat") };
    expected.settings = other;
    assert_eq!(store.update_source(plain, &tester()).await.expect("updated"), expected, "they stay");

    let sealed_settings = change(&[("token", None), ("word", Some("sealed-3")), ("none", None)]);
    let several = SourceUpdate { sealed_settings, ..update("chat") };
    expected.sealed_settings = settings(&[("word", "sealed-3")]);
    assert_eq!(store.update_source(several, &tester()).await.expect("updated"), expected);

    let read = store.source(&tenant_id("acme"), &source_id("chat")).await.expect("read");
    assert_eq!(read.as_ref(), Some(&expected));
    let listed = store.sources(&tenant_id("acme"), None, 9).await.expect("a page").items;
    assert_eq!(listed[0], expected);
    assert!(store.snapshot().await.expect("a snapshot").sources.contains(&expected));
    match store.changes(since).await.expect("changes") {
        ConfigChanges::Delta(delta) => assert_eq!(delta.sources, [expected]),
        ConfigChanges::Full(_) => panic!("only the change is told"),
    }
}

pub async fn secret_settings_beyond_their_bounds_are_refused(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let long = "x".repeat(SEALED_SETTING_BYTES_MAX + 1);
    let names: Vec<String> = (0..16).map(|n| format!("{n:064}")).collect();
    // The source has another setting, so sixteen are one too many.
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "a")).collect();
    for bad in [
        &[("", "a")][..],
        &[("a\0", "a")],
        &[("a", "")],
        &[("a", long.as_str())],
        &[("webhook_id", "a")],
        &many,
    ] {
        let new = NewSource { sealed_settings: settings(bad), ..new_source("acme", "other") };
        assert_fails(store.create_source(new, &tester()).await, ErrorKind::Refused);
        let sealed_settings = bad.iter().map(|(name, text)| (*name, Some(*text))).collect::<Vec<_>>();
        let bent = SourceUpdate { sealed_settings: change(&sealed_settings), ..update("stripe-eu") };
        assert_fails(store.update_source(bent, &tester()).await, ErrorKind::Refused);
    }
    let full: Vec<(&str, Option<&str>)> = many.iter().map(|(name, _)| (*name, Some(&long[1..]))).collect();
    let full = SourceUpdate {
        sealed_settings: change(&full),
        settings: Some(BTreeMap::new()),
        ..update("stripe-eu")
    };
    store.update_source(full, &tester()).await.expect("what is within them is kept");
    let plain =
        SourceUpdate { settings: Some([(names[0].clone(), "a".to_owned())].into()), ..update("stripe-eu") };
    assert_fails(store.update_source(plain, &tester()).await, ErrorKind::Refused);
}

pub async fn that_a_secret_setting_was_given_anew_is_in_the_audit_log_and_its_value_is_not(
    database: &dyn Database,
) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let chat = chat(&fixture).await;
    let give = async |name: &str, setting: SealedSetting| {
        let sealed_settings = [(name.to_owned(), Some(setting))].into();
        let update = SourceUpdate { sealed_settings, ..update("chat") };
        store.update_source(update, &tester()).await.expect("updated")
    };
    let before = give("token", given("sealed-9", 60)).await;
    // A new data key in between is no change of the setting.
    let mut to = before.sealed_settings.clone();
    to.0.values_mut().for_each(|setting| setting.sealed.0.push(b'+'));
    let again = ResealedSettings { source: chat.no, from: before.sealed_settings, to };
    assert_eq!(store.reseal_settings(vec![again]).await.expect("resealed"), 1);
    give("word", given("sealed-8", 120)).await;
    let filter = AuditFilter { action: Some("UpdateSource".to_owned()), ..AuditFilter::default() };
    let entries = store.audit_entries(filter, 9).await.expect("a page").items;
    let word_of = |view: &Option<String>| {
        let view: serde_json::Value = serde_json::from_str(view.as_deref().expect("a view")).expect("JSON");
        view["secret_settings_given_at"]["word"].as_i64().expect("a time")
    };
    assert_eq!(entries.len(), 2);
    assert_eq!(word_of(&entries[0].before), word_of(&entries[0].after), "only the token was given anew");
    assert_eq!(entries[0].after, entries[1].before);
    assert_eq!(word_of(&entries[1].after), word_of(&entries[1].before) + 120_000_000);
    assert!(!format!("{entries:?}").contains("sealed-"), "{entries:?}");
}

pub async fn secret_settings_are_sealed_again_where_they_are_as_they_were(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let chat = chat(&fixture).await;
    let before = store.revision().await.expect("revision");
    let of = store.sealed_settings_of(fixture.tenant.no).await.expect("read");
    assert_eq!(of, [(chat.no, chat.id.clone(), chat.sealed_settings.clone())], "those that have some");
    assert_eq!(store.sealed_settings_of(TenantNo(i64::MAX)).await.expect("read"), []);

    let again = ResealedSettings {
        source: chat.no,
        from: chat.sealed_settings.clone(),
        to: settings(&[("token", "again-1"), ("word", "again-2")]),
    };
    let stale = ResealedSettings { source: fixture.source.no, ..again.clone() };
    assert_eq!(store.reseal_settings(vec![again.clone(), stale]).await.expect("resealed"), 1);
    let read = store.source(&tenant_id("acme"), &source_id("chat")).await.expect("read").expect("there");
    assert_eq!(read, Source { sealed_settings: again.to.clone(), ..chat });
    assert_eq!(store.reseal_settings(vec![again]).await.expect("resealed"), 0, "they are others by now");
    assert_eq!(store.revision().await.expect("revision"), before, "they hold what they held");
}

pub async fn secret_settings_go_with_their_source(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    chat(&fixture).await;
    store.delete_source(&tenant_id("acme"), &source_id("chat"), &tester()).await.expect("deleted");
    assert_eq!(store.sealed_settings_of(fixture.tenant.no).await.expect("read"), []);
    let again = store.create_source(new_source("acme", "chat"), &tester()).await.expect("created again");
    assert_eq!(again.sealed_settings, SealedSettings::default());

    let globex = store.create_tenant(new_tenant("globex"), &tester()).await.expect("created");
    let new =
        NewSource { sealed_settings: settings(&[("word", "sealed-1")]), ..new_source("globex", "chat") };
    store.create_source(new, &tester()).await.expect("created");
    store.erase_tenant(&tenant_id("globex"), &tester()).await.expect("erased");
    assert_eq!(store.sealed_settings_of(globex.no).await.expect("read"), []);
}
