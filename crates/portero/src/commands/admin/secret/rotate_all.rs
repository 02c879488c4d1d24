//! `portero secret rotate-all`: many sources, one after the other, safe to interrupt.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portero_client::v1;
use portero_client::v1::source::Verification;
use portero_recipe::{Recipe, generate_secret};
use portero_types::Redacted;
use serde::Serialize;

use super::values_file::ValuesFile;
use super::{list, name};
use crate::cli::{ConnectArgs, Output};
use crate::commands::connection::AdminApi;
use crate::commands::exit::{Failure, Kind};
use crate::commands::present;
use crate::{entropy, print};

/// Sources on a page: each may carry a recipe of 64 KiB, and a page must stay below 4 MiB.
const PAGE: i32 = 50;

/// What is to be rotated.
pub(super) struct Wanted {
    pub(super) tenant: String,
    pub(super) source_prefix: String,
    pub(super) preset: Option<String>,
    pub(super) secret_id: String,
    pub(super) values_out: PathBuf,
    pub(super) overlap: Option<Duration>,
    pub(super) reason: String,
    pub(super) dry_run: bool,
}

/// What became of one source.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    #[default]
    Rotated,
    Already,
    WouldRotate,
    Skipped,
    Failed,
}

impl Outcome {
    const fn words(self) -> &'static str {
        match self {
            Self::Rotated => "rotated",
            Self::Already => "was rotated before",
            Self::WouldRotate => "would be rotated",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

#[derive(Serialize)]
struct Told<'a> {
    source: &'a str,
    secret: &'a str,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Runs it.
pub(super) async fn run(wanted: Wanted, connect: &ConnectArgs, output: Output) -> anyhow::Result<()> {
    let api = AdminApi::open(connect).await?;
    let sources = sources(&api, &wanted).await?;
    if sources.is_empty() {
        print::note("no source is meant: there is nothing to rotate");
        return Ok(());
    }
    let mut values = match wanted.dry_run {
        true => None,
        false => Some(ValuesFile::open(&wanted.values_out, &wanted.secret_id)?),
    };
    let (mut failed, mut rotated) = (0_u32, 0_u32);
    for (n, source) in sources.iter().enumerate() {
        let (outcome, reason) = one(&api, &wanted, source, values.as_mut()).await?;
        failed += u32::from(matches!(outcome, Outcome::Failed));
        rotated += u32::from(matches!(outcome, Outcome::Rotated));
        let why = reason.as_deref().map(|reason| format!(": {}", present::clean(reason))).unwrap_or_default();
        print::note(&format!("[{}/{}] {} {}{why}", n + 1, sources.len(), source.name, outcome.words()));
        if output == Output::Json {
            print::json(&Told { source: &source.name, secret: &wanted.secret_id, outcome, reason })?;
        }
    }
    if output == Output::Text {
        print::line(&format!("{rotated} rotated, {failed} failed, of {}", sources.len()))?;
    }
    if failed > 0 {
        return Err(Failure::failed(format!(
            "{failed} sources were not rotated; the reasons are above, and running this again tries them again"
        ))
        .into());
    }
    Ok(())
}

/// The sources that are meant, in the order of their names.
async fn sources(api: &AdminApi, wanted: &Wanted) -> anyhow::Result<Vec<v1::Source>> {
    let parent = name::tenant(&wanted.tenant);
    let mut sources = Vec::new();
    let fetch = async |mut calls: portero_client::Admin, page_token| {
        let parent = parent.clone();
        calls.list_sources(v1::ListSourcesRequest { parent, page_size: PAGE, page_token }).await
    };
    list::each(api, fetch, |source: v1::Source| {
        let is_meant = name::id(&source.name, 1).starts_with(&wanted.source_prefix)
            && wanted.preset.as_ref().is_none_or(
                |preset| matches!(&source.verification, Some(Verification::Preset(have)) if have == preset),
            );
        if is_meant {
            sources.push(source);
        }
        Ok(())
    })
    .await?;
    Ok(sources)
}

/// Rotates one. What concerns it alone is its outcome; when nobody answers, everything ends.
async fn one(
    api: &AdminApi,
    wanted: &Wanted,
    source: &v1::Source,
    values: Option<&mut ValuesFile>,
) -> Result<(Outcome, Option<String>), Failure> {
    let skipped = |why: &str| Ok((Outcome::Skipped, Some(why.to_owned())));
    let Some(recipe) = recipe(source) else {
        return skipped("this program cannot use its recipe");
    };
    if !recipe.needs_secret() {
        return skipped("its recipe needs no secret");
    }
    if recipe.writes_secret() {
        return skipped("its provider brings the secret in a handshake");
    }
    let made = generate_secret(&recipe, entropy::random()).filter(|_| !recipe.only_public_keys());
    let Some(made) = made.map(Redacted::new) else {
        return skipped("its provider makes the secret: `portero secret rotate --value-file` takes it");
    };
    let Some(values) = values else { return Ok((Outcome::WouldRotate, None)) };
    if values.get(&source.name).is_none() {
        match exists(api, source, &wanted.secret_id).await {
            // A value in the file that verifies nowhere would only mislead.
            Ok(true) => {
                let why = "it has a secret of this id, whose value is not in the file: name the file of the earlier run, \
                           or another --secret-id";
                return Ok((Outcome::Failed, Some(why.to_owned())));
            }
            Ok(false) => values.add(&source.name, made)?,
            Err(failure) => return not_done(failure, source),
        }
    }
    let value = values.get(&source.name).map(|value| value.expose_secret().clone()).unwrap_or_default();
    let request = v1::RotateSecretRequest {
        parent: source.name.clone(),
        secret_id: wanted.secret_id.clone(),
        value,
        not_before: None,
        overlap: wanted.overlap.map(present::duration),
        wait: false,
        reason: wanted.reason.clone(),
    };
    match api.ask(api.calls().rotate_secret(request)).await {
        // The value of one that was there is not repeated.
        Ok(answer) => {
            let is_new = answer.secret.is_some_and(|secret| !secret.value.is_empty());
            Ok((if is_new { Outcome::Rotated } else { Outcome::Already }, None))
        }
        Err(failure) => not_done(failure, source),
    }
}

/// When nobody answers, everything ends.
fn not_done(failure: Failure, source: &v1::Source) -> Result<(Outcome, Option<String>), Failure> {
    match failure.kind {
        Kind::Unavailable | Kind::NoPermission => Err(failure.about(&source.name)),
        Kind::Usage | Kind::NotFound | Kind::Failed => Ok((Outcome::Failed, Some(failure.to_string()))),
    }
}

/// Whether a source has a secret of this id.
async fn exists(api: &AdminApi, source: &v1::Source, id: &str) -> Result<bool, Failure> {
    let name = format!("{}/secrets/{id}", source.name);
    match api.ask(api.calls().get_secret(v1::GetSecretRequest { name })).await {
        Ok(_) => Ok(true),
        Err(failure) if matches!(failure.kind, Kind::NotFound) => Ok(false),
        Err(failure) => Err(failure),
    }
}

fn recipe(source: &v1::Source) -> Option<Arc<Recipe>> {
    match source.verification.as_ref()? {
        Verification::Preset(preset) => Recipe::preset(preset),
        Verification::RecipeJson(json) => Recipe::from_json(json).ok().map(Arc::new),
    }
}
