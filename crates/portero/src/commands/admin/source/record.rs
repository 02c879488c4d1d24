//! How a source is shown.

use std::collections::BTreeMap;

use portero_client::v1;
use portero_client::v1::source::Verification;
use portero_recipe::Recipe;
use serde::Serialize;

use crate::commands::admin::limits::Limits;
use crate::commands::admin::name;
use crate::commands::present::{self, Record};

/// A source as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Source {
    name: String,
    tenant: String,
    source: String,
    provider: String,
    preset: Option<String>,
    recipe_json: Option<String>,
    public_urls: Vec<String>,
    settings: BTreeMap<String, String>,
    /// The names of those that are set and never shown.
    secret_settings: Vec<String>,
    ingest_path: String,
    secret_expected_until: Option<String>,
    limits: Limits,
    create_time: Option<String>,
    warnings: Vec<String>,
}

impl From<v1::Source> for Source {
    fn from(source: v1::Source) -> Self {
        let (preset, recipe_json) = match source.verification {
            Some(Verification::Preset(preset)) => (Some(preset), None),
            Some(Verification::RecipeJson(recipe)) => (None, Some(recipe)),
            None => (None, None),
        };
        Self {
            tenant: name::id(&source.name, 0),
            source: name::id(&source.name, 1),
            name: source.name,
            provider: source.provider,
            preset,
            recipe_json,
            public_urls: source.public_urls,
            settings: source.settings.into_iter().collect(),
            secret_settings: source.secret_settings,
            ingest_path: source.ingest_path,
            secret_expected_until: present::time(source.secret_expected_until.as_ref()),
            limits: source.limits.into(),
            create_time: present::time(source.create_time.as_ref()),
            warnings: source.warnings,
        }
    }
}

impl Source {
    /// What its owner should know or mend.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether somebody must give it a secret, because no handshake will bring one.
    pub(super) fn waits_for_a_hand(&self) -> bool {
        let needs_secret = self
            .preset
            .as_ref()
            .and_then(|name| Recipe::preset(name))
            .is_none_or(|recipe| recipe.needs_secret());
        needs_secret && self.secret_expected_until.is_none()
    }

    fn recipe(&self) -> String {
        self.preset.clone().unwrap_or_else(|| "custom".to_owned())
    }
}

impl Record for Source {
    const COLUMNS: &'static [&'static str] = &["TENANT", "SOURCE", "RECIPE", "PROVIDER", "PATH", "CREATED"];

    fn row(&self) -> Vec<String> {
        vec![
            self.tenant.clone(),
            self.source.clone(),
            self.recipe(),
            self.provider.clone(),
            self.ingest_path.clone(),
            self.create_time.clone().unwrap_or_default(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![
            ("tenant", self.tenant.clone()),
            ("source", self.source.clone()),
            ("recipe", self.recipe()),
            ("provider", self.provider.clone()),
            ("path", self.ingest_path.clone()),
        ];
        details.extend(self.public_urls.iter().map(|url| ("public URL", url.clone())));
        details.extend(self.settings.iter().map(|(name, value)| ("setting", format!("{name}={value}"))));
        details.extend(self.secret_settings.iter().map(|name| ("setting", format!("{name} (secret)"))));
        details.extend(
            self.secret_expected_until.iter().map(|until| ("secret by handshake until", until.clone())),
        );
        details.extend(self.limits.details());
        details.push(("created", self.create_time.clone().unwrap_or_default()));
        details
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_stable() {
        let source = Source::from(v1::Source {
            name: "tenants/acme/sources/pay".to_owned(),
            verification: Some(Verification::Preset("stripe".to_owned())),
            provider: "stripe".to_owned(),
            ingest_path: "/in/0123".to_owned(),
            ..v1::Source::default()
        });
        let json = serde_json::to_value(&source).expect("serialises");
        let wanted = serde_json::json!({
            "name": "tenants/acme/sources/pay", "tenant": "acme", "source": "pay", "provider": "stripe",
            "preset": "stripe", "recipe_json": null, "public_urls": [], "settings": {}, "secret_settings": [], "ingest_path": "/in/0123",
            "secret_expected_until": null, "create_time": null, "warnings": [],
            "limits": { "events_per_second": null, "burst": null, "bytes_per_second": null },
        });
        assert_eq!(json, wanted);
        assert_eq!(source.row().len(), Source::COLUMNS.len());
    }

    #[test]
    fn urls_and_settings_have_a_line_each() {
        let source = Source::from(v1::Source {
            public_urls: vec!["https://a.example/1".to_owned(), "https://b.example/1".to_owned()],
            settings: [("topic".to_owned(), "t1".to_owned())].into(),
            secret_settings: vec!["word".to_owned()],
            ..v1::Source::default()
        });
        let details = source.details();
        assert_eq!(details.iter().filter(|(name, _)| *name == "public URL").count(), 2);
        assert!(details.contains(&("setting", "topic=t1".to_owned())));
        assert!(details.contains(&("setting", "word (secret)".to_owned())));
    }
}
