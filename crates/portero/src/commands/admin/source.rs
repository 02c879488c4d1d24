//! `portero source`.

use portero_client::v1;
use portero_client::v1::source::Verification;
use portero_recipe::{RECIPE_BYTES_MAX, Recipe};
use serde::Serialize;

use super::{list, name};
use crate::cli::{Output, SourceCommand};
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::input;
use crate::commands::present::{self, Record};
use crate::print;

/// Sources on a page: each may carry a recipe of 64 KiB, and a page must stay below 4 MiB.
const PAGE: i32 = 50;

/// Runs one of its commands.
pub(crate) async fn run(command: SourceCommand) -> anyhow::Result<()> {
    match command {
        SourceCommand::Create { tenant, source, preset, recipe_file, provider, public_url, common } => {
            let verification = match recipe_file {
                Some(file) => Some(Verification::RecipeJson(recipe(&file)?)),
                None => preset.map(Verification::Preset),
            };
            let api = AdminApi::open(&common.connect).await?;
            let wanted = v1::Source { verification, provider, public_url, ..v1::Source::default() };
            let request = v1::CreateSourceRequest {
                parent: name::tenant(&tenant),
                source_id: source.clone(),
                source: Some(wanted),
            };
            let name = name::source(&tenant, &source);
            let created =
                api.ask(api.calls().create_source(request)).await.map_err(|error| error.about(&name))?;
            present::one(common.output.output, &Source::from(created))?;
            if common.output.output == Output::Text {
                print::note(&format!(
                    "It refuses every request until it has a secret: portero secret create {tenant} {source}"
                ));
            }
            Ok(())
        }
        SourceCommand::Get { tenant, source, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::GetSourceRequest { name: name::source(&tenant, &source) };
            let found = api.ask(api.calls().get_source(request)).await?;
            present::one(common.output.output, &Source::from(found))
        }
        SourceCommand::List { tenant, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let parent = name::tenant(&tenant);
            list::show::<_, Source>(&api, common.output.output, async |mut calls, page_token| {
                let parent = parent.clone();
                calls.list_sources(v1::ListSourcesRequest { parent, page_size: PAGE, page_token }).await
            })
            .await
        }
        SourceCommand::Delete { tenant, source, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::source(&tenant, &source);
            api.ask(api.calls().delete_source(v1::DeleteSourceRequest { name: name.clone() })).await?;
            present::deleted(common.output.output, &name)
        }
    }
}

/// A recipe from a file, checked here too, where the file's name is known.
fn recipe(file: &std::path::Path) -> Result<String, Failure> {
    let text = input::text(file, RECIPE_BYTES_MAX, "the recipe")?;
    match Recipe::from_json(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::usage(format!("{} is not a recipe: {error}", file.display()))),
    }
}

/// A source as it is shown.
#[derive(Debug, Serialize)]
struct Source {
    name: String,
    tenant: String,
    source: String,
    provider: String,
    preset: Option<String>,
    recipe_json: Option<String>,
    public_url: Option<String>,
    ingest_path: String,
    create_time: Option<String>,
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
            public_url: Some(source.public_url).filter(|url| !url.is_empty()),
            ingest_path: source.ingest_path,
            create_time: present::time(source.create_time.as_ref()),
        }
    }
}

impl Source {
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
        vec![
            ("tenant", self.tenant.clone()),
            ("source", self.source.clone()),
            ("recipe", self.recipe()),
            ("provider", self.provider.clone()),
            ("path", self.ingest_path.clone()),
            ("public URL", self.public_url.clone().unwrap_or_default()),
            ("created", self.create_time.clone().unwrap_or_default()),
        ]
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
            public_url: String::new(),
            ingest_path: "/in/0123".to_owned(),
            create_time: None,
        });
        let json = serde_json::to_value(&source).expect("serialises");
        let wanted = serde_json::json!({
            "name": "tenants/acme/sources/pay", "tenant": "acme", "source": "pay", "provider": "stripe",
            "preset": "stripe", "recipe_json": null, "public_url": null, "ingest_path": "/in/0123",
            "create_time": null,
        });
        assert_eq!(json, wanted);
        assert_eq!(source.row().len(), Source::COLUMNS.len());
    }

    #[test]
    fn a_recipe_that_is_none_is_refused_with_its_file_and_field() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), r#"{"colour": 1}"#).expect("written");
        let error = recipe(file.path()).expect_err("no recipe").to_string();
        assert!(error.contains(&file.path().display().to_string()) && error.contains("colour"), "{error}");
    }
}
