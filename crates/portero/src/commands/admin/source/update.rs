//! What an update changes: only what the command line names.

use portero_client::v1;
use portero_client::v1::source::Verification;

use crate::cli::{GivenLimits, GivenSettings, GivenToSource};
use crate::commands::admin::limits;
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::{present, settings};

/// A change to a source.
pub(super) struct Change {
    /// Another recipe.
    pub(super) verification: Option<Verification>,
    /// New URLs, settings to add or replace, the window for a handshake.
    pub(super) given: GivenToSource,
    /// Settings to take away.
    pub(super) unset: Vec<String>,
    /// Whether all URLs go.
    pub(super) no_public_urls: bool,
    /// What becomes of its own limits.
    pub(super) limits: LimitsChange,
}

/// A change to a source's own limits.
pub(super) enum LimitsChange {
    /// They stay.
    None,
    /// Those that are named are set, the others stay.
    Set(GivenLimits),
    /// They go.
    Reset,
}

impl LimitsChange {
    /// What the arguments say.
    pub(super) const fn of(given: GivenLimits, reset: bool) -> Self {
        match (reset, given.is_given()) {
            (true, _) => Self::Reset,
            (false, true) => Self::Set(given),
            (false, false) => Self::None,
        }
    }
}

impl Change {
    /// Applies it. Settings and limits are read first, since an update replaces all of them.
    pub(super) async fn apply(self, api: &AdminApi, name: &str) -> anyhow::Result<v1::Source> {
        if self.paths().is_empty() {
            return Err(Failure::usage("nothing is to be changed: see `portero source update --help`").into());
        }
        let known = if self.changes_settings() || matches!(self.limits, LimitsChange::Set(_)) {
            api.ask(api.calls().get_source(v1::GetSourceRequest { name: name.to_owned() })).await?
        } else {
            v1::Source::default()
        };
        let request = self.request(name, known)?;
        Ok(api.ask(api.calls().update_source(request)).await.map_err(|error| error.about(name))?)
    }

    fn changes_settings(&self) -> bool {
        let GivenSettings { plain, files } = &self.given.settings;
        !plain.is_empty() || !files.is_empty() || !self.unset.is_empty()
    }

    /// The fields that change.
    fn paths(&self) -> Vec<String> {
        let recipe = self.verification.as_ref().map(|verification| match verification {
            Verification::Preset(_) => "preset",
            Verification::RecipeJson(_) => "recipe_json",
        });
        let urls = (self.no_public_urls || !self.given.public_urls.is_empty()).then_some("public_urls");
        let settings = self.changes_settings().then_some("settings");
        let window = self.given.secret_window.map(|_| "secret_window");
        let limits = (!matches!(self.limits, LimitsChange::None)).then_some("limits");
        [recipe, urls, settings, window, limits].into_iter().flatten().map(str::to_owned).collect()
    }

    fn request(self, name: &str, known: v1::Source) -> Result<v1::UpdateSourceRequest, Failure> {
        let mut paths = self.paths();
        let (mut settings, mut secret_settings) = (known.settings, known.secret_settings);
        for name in &self.unset {
            if let Some(at) = secret_settings.iter().position(|known| known == name) {
                secret_settings.remove(at);
                paths.push("secret_settings".to_owned());
            } else if settings.remove(name).is_none() {
                return Err(Failure::usage(format!("the source has no setting {name:?}")));
            }
        }
        settings.extend(settings::read(&self.given.settings)?);
        let source = v1::Source {
            name: name.to_owned(),
            verification: self.verification,
            public_urls: self.given.public_urls,
            settings,
            secret_settings,
            secret_window: self.given.secret_window.map(present::duration),
            limits: match self.limits {
                LimitsChange::Set(given) => Some(limits::merged(&given, known.limits)),
                LimitsChange::None | LimitsChange::Reset => None,
            },
            ..v1::Source::default()
        };
        let update_mask = Some(prost_types::FieldMask { paths });
        Ok(v1::UpdateSourceRequest { source: Some(source), update_mask })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn nothing() -> Change {
        let settings = GivenSettings::default();
        let given = GivenToSource { public_urls: Vec::new(), settings, secret_window: None };
        Change {
            verification: None,
            given,
            unset: Vec::new(),
            no_public_urls: false,
            limits: LimitsChange::None,
        }
    }

    fn known() -> v1::Source {
        let settings = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into();
        let limits = Some(v1::Limits { burst: Some(7), ..v1::Limits::default() });
        v1::Source { settings, limits, ..v1::Source::default() }
    }

    #[test]
    fn limits_are_set_one_by_one_or_all_taken_away() {
        let given = GivenLimits { events_per_second: Some(3), ..GivenLimits::default() };
        let change = Change { limits: LimitsChange::of(given, false), ..nothing() };
        let request = change.request("tenants/a/sources/b", known()).expect("a request");
        assert_eq!(request.update_mask.expect("a mask").paths, ["limits"]);
        let wanted = v1::Limits { events_per_second: Some(3), burst: Some(7), bytes_per_second: None };
        assert_eq!(request.source.expect("a source").limits, Some(wanted));
        let change = Change { limits: LimitsChange::of(GivenLimits::default(), true), ..nothing() };
        let request = change.request("tenants/a/sources/b", known()).expect("a request");
        assert_eq!(request.source.expect("a source").limits, None);
    }

    #[test]
    fn only_what_is_named_changes() {
        assert_eq!(nothing().paths(), Vec::<String>::new());
        let mut change = nothing();
        change.given.secret_window = Some(Duration::ZERO);
        assert_eq!(change.paths(), ["secret_window"], "zero ends the waiting, and is not nothing");
        let change = Change { no_public_urls: true, ..nothing() };
        let request = change.request("tenants/a/sources/b", known()).expect("a request");
        assert_eq!(request.update_mask.expect("a mask").paths, ["public_urls"]);
    }

    #[test]
    fn settings_are_added_and_taken_away_one_by_one() {
        let mut change = Change { unset: vec!["a".to_owned()], ..nothing() };
        change.given.settings.plain =
            vec![("c".to_owned(), "3".to_owned()), ("b".to_owned(), "4".to_owned())];
        let request = change.request("tenants/a/sources/b", known()).expect("a request");
        let settings = request.source.expect("a source").settings;
        let wanted = [("b".to_owned(), "4".to_owned()), ("c".to_owned(), "3".to_owned())].into();
        assert_eq!(settings, wanted);
        let change = Change { unset: vec!["nobody".to_owned()], ..nothing() };
        assert!(change.request("tenants/a/sources/b", known()).is_err());
    }

    #[test]
    fn secret_settings_stay_until_they_are_taken_away_by_name() {
        let known = || v1::Source { secret_settings: vec!["word".to_owned(), "x".to_owned()], ..known() };
        let mut change = nothing();
        change.given.settings.plain = vec![("c".to_owned(), "3".to_owned())];
        let request = change.request("tenants/a/sources/b", known()).expect("a request");
        assert_eq!(request.update_mask.expect("a mask").paths, ["settings"]);
        let change = Change { unset: vec!["word".to_owned()], ..nothing() };
        let request = change.request("tenants/a/sources/b", known()).expect("a request");
        assert_eq!(request.update_mask.expect("a mask").paths, ["settings", "secret_settings"]);
        assert_eq!(request.source.expect("a source").secret_settings, ["x"]);
    }
}
