//! `portero source`.

mod record;
mod update;

use std::path::Path;

use portero_client::v1;
use portero_client::v1::source::Verification;

use self::record::Source;
use super::{limits, list, name};
use crate::cli::{GivenToSource, Output, SourceCommand};
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::present;
use crate::commands::recipe_file;
use crate::commands::settings;
use crate::print;

/// Sources on a page: each may carry a recipe of 64 KiB, and a page must stay below 4 MiB.
const PAGE: i32 = 50;

/// Runs one of its commands.
pub(crate) async fn run(command: SourceCommand) -> anyhow::Result<()> {
    match command {
        SourceCommand::Create { tenant, source, preset, recipe_file, provider, given, limits, common } => {
            let verification = verification(preset, recipe_file.as_deref())?;
            let api = AdminApi::open(&common.connect).await?;
            let GivenToSource { public_urls, settings, secret_window } = given;
            let wanted = v1::Source {
                verification,
                provider,
                public_urls,
                settings: settings::read(&settings)?.into_iter().collect(),
                secret_window: secret_window.map(present::duration),
                limits: limits::wanted(&limits),
                ..v1::Source::default()
            };
            let request = v1::CreateSourceRequest {
                parent: name::tenant(&tenant),
                source_id: source.clone(),
                source: Some(wanted),
            };
            let name = name::source(&tenant, &source);
            let created =
                api.ask(api.calls().create_source(request)).await.map_err(|error| error.about(&name))?;
            let created = show(common.output.output, created)?;
            if common.output.output == Output::Text && created.waits_for_a_hand() {
                print::note(&format!(
                    "It refuses every request until it has a secret: portero secret create {tenant} {source}"
                ));
            }
            Ok(())
        }
        SourceCommand::Update {
            tenant,
            source,
            preset,
            recipe_file,
            given,
            unset,
            no_public_urls,
            limits,
            default_limits,
            common,
        } => {
            let verification = verification(preset, recipe_file.as_deref())?;
            let limits = update::LimitsChange::of(limits, default_limits);
            let change = update::Change { verification, given, unset, no_public_urls, limits };
            let api = AdminApi::open(&common.connect).await?;
            let updated = change.apply(&api, &name::source(&tenant, &source)).await?;
            show(common.output.output, updated).map(drop)
        }
        SourceCommand::Get { tenant, source, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::GetSourceRequest { name: name::source(&tenant, &source) };
            let found = api.ask(api.calls().get_source(request)).await?;
            show(common.output.output, found).map(drop)
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
        SourceCommand::Delete { tenant, source, reason, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::source(&tenant, &source);
            let request = v1::DeleteSourceRequest { name: name.clone(), reason: reason.reason };
            api.ask(api.calls().delete_source(request)).await?;
            present::deleted(common.output.output, &name)
        }
    }
}

/// Shows a source; its warnings go to standard error.
fn show(output: Output, source: v1::Source) -> anyhow::Result<Source> {
    let source = Source::from(source);
    present::one(output, &source)?;
    source
        .warnings()
        .iter()
        .for_each(|warning| print::note(&format!("warning: {}", present::clean(warning))));
    Ok(source)
}

/// The recipe that the arguments name.
fn verification(preset: Option<String>, file: Option<&Path>) -> Result<Option<Verification>, Failure> {
    match file {
        // Checked here too, where the file's name is known.
        Some(file) => recipe_file::read(file).map(|(text, _)| Some(Verification::RecipeJson(text))),
        None => Ok(preset.map(Verification::Preset)),
    }
}
