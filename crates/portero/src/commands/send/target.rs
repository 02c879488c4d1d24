//! Where to send to, and with which recipe and secret: from the arguments, or from what `portero dev` left.

use std::sync::Arc;

use portero_recipe::Recipe;
use portero_types::Redacted;
use url::Url;

use super::request;
use crate::cli::SendArgs;
use crate::commands::exit::Failure;
use crate::commands::{input, provider, recipe_file};
use crate::dev_file::{DevFile, DevSource};

/// A source as its provider sees it.
#[derive(Debug)]
pub(super) struct Target {
    /// Where requests go. Its path is confidential.
    pub(super) url: Url,
    /// What they are signed with.
    pub(super) secret: Redacted<String>,
    /// How they are signed.
    pub(super) recipe: Arc<Recipe>,
    /// Which sample fits.
    pub(super) preset: String,
}

/// Puts the arguments and `dev.json` together. `dev.json` is read only when the arguments leave something open.
pub(super) fn resolve(args: &SendArgs) -> anyhow::Result<Target> {
    let named = named(args)?;
    if let Some((recipe, _)) = &named {
        request::signable(recipe)?;
    }
    let needs_secret = named.as_ref().is_none_or(|(recipe, _)| recipe.needs_secret());
    let is_open = args.url.is_none() || (needs_secret && args.secret_file.is_none());
    let dev = if is_open { Some(dev_source(args)?) } else { None };
    let dev_source = dev.as_ref().map(|(_, source)| source);
    let (recipe, preset) = recipe(args, named, dev_source)?;
    let url = match (&args.url, &dev) {
        (Some(url), _) => url.clone(),
        (None, Some((edge_url, source))) => {
            format!("{}{}", edge_url.trim_end_matches('/'), source.ingest_path)
        }
        (None, None) => String::new(),
    };
    let secret = match (&args.secret_file, dev_source) {
        (Some(file), _) => input::secret(file, "the secret")?,
        (None, Some(source)) => Redacted::new(source.secret.clone()),
        (None, None) => Redacted::new(String::new()),
    };
    Ok(Target { url: parse(&url)?, secret, recipe, preset })
}

/// The recipe that the arguments name themselves, and the name of the preset whose sample fits it.
fn named(args: &SendArgs) -> Result<Option<(Arc<Recipe>, String)>, Failure> {
    let Some(file) = &args.recipe_file else {
        return Ok(Recipe::preset(&args.preset).map(|recipe| (recipe, args.preset.clone())));
    };
    let (_, recipe) = recipe_file::read(file)?;
    Ok(Some((Arc::new(recipe), args.preset.clone())))
}

fn dev_source(args: &SendArgs) -> anyhow::Result<(String, DevSource)> {
    let place = args.data.display();
    let file = DevFile::read(&args.data)?;
    if let Some(source) = file.as_ref().and_then(|file| file.source(&args.preset).cloned()) {
        return Ok((file.map(|file| file.edge_url).unwrap_or_default(), source));
    }
    if args.recipe_file.is_none() {
        // A name that nobody knows is the likelier mistake.
        provider::preset(&args.preset)?;
    }
    let lacking = match (&args.url, &args.secret_file) {
        (Some(_), None) => "--secret-file, with what the requests are signed with",
        (None, Some(_)) => "--url, the source's URL",
        _ => "--url and --secret-file",
    };
    let why = match file {
        None => format!(
            "nothing is known of a gateway: {place}/dev.json is missing. Start `portero dev`, or give {lacking}"
        ),
        Some(file) => {
            let known: Vec<&str> = file.sources.iter().map(|source| source.source.as_str()).collect();
            format!(
                "`portero dev` has no source for {:?}; it has {}. For another gateway give {lacking}",
                args.preset,
                known.join(", ")
            )
        }
    };
    Err(Failure::usage(why).into())
}

/// The recipe, and the name of the preset whose sample fits it.
fn recipe(
    args: &SendArgs,
    named: Option<(Arc<Recipe>, String)>,
    dev: Option<&DevSource>,
) -> Result<(Arc<Recipe>, String), Failure> {
    match (named, dev) {
        (Some(named), _) if args.recipe_file.is_some() => Ok(named),
        (_, Some(DevSource { recipe: Some(text), preset, .. })) => {
            let recipe = Recipe::from_json(text).map_err(|error| {
                Failure::usage(format!("dev.json holds a recipe that cannot be used: {error}"))
            })?;
            Ok((Arc::new(recipe), preset.clone()))
        }
        (_, Some(source)) => provider::preset(&source.preset)
            .map(|preset| (Arc::clone(&preset.recipe), preset.name.to_owned())),
        (Some(named), None) => Ok(named),
        (None, None) => {
            provider::preset(&args.preset).map(|preset| (Arc::clone(&preset.recipe), preset.name.to_owned()))
        }
    }
}

fn parse(url: &str) -> Result<Url, Failure> {
    Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()).ok_or_else(
        || Failure::usage("--url must be an http or https URL, such as https://hooks.example.com/in/…"),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &str, data: &Path) -> SendArgs {
        let data = data.display().to_string();
        let words = ["portero", "send"].into_iter().chain(line.split_whitespace()).chain(["--data", &data]);
        let Command::Send(args) = Cli::try_parse_from(words).expect("understood").command else {
            panic!("send")
        };
        args
    }

    fn dev_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("folder");
        let source = |id: &str, preset: &str| DevSource {
            source: id.to_owned(),
            preset: preset.to_owned(),
            ingest_path: format!("/in/{id}"),
            secret: format!("whsec_of_{id}_hush"),
            recipe: None,
        };
        let file = DevFile {
            edge_url: "http://127.0.0.1:8080".to_owned(),
            grpc_url: String::new(),
            tenant: "demo".to_owned(),
            subscription: "demo".to_owned(),
            sources: vec![source("stripe", "stripe"), source("code", "github")],
        };
        file.write(folder.path()).expect("written");
        folder
    }

    fn refusal(line: &str, data: &Path) -> String {
        resolve(&args(line, data)).expect_err("refused").to_string()
    }

    #[test]
    fn dev_knows_url_and_secret_by_source_and_by_preset() {
        let folder = dev_folder();
        for (name, preset, path) in [
            ("stripe", "stripe", "/in/stripe"),
            ("code", "github", "/in/code"),
            ("github", "github", "/in/code"),
        ] {
            let target = resolve(&args(name, folder.path())).expect("known");
            assert_eq!((target.preset.as_str(), target.url.path()), (preset, path));
        }
    }

    #[test]
    fn with_url_and_secret_no_dev_folder_is_needed() {
        let secret = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(secret.path(), "0123456789abcdef\n").expect("written");
        let line =
            format!("github --url https://hooks.example.com/in/1 --secret-file {}", secret.path().display());
        let target = resolve(&args(&line, Path::new("/nonexistent"))).expect("complete");
        assert_eq!(target.secret.expose_secret(), "0123456789abcdef");
        assert!(!format!("{target:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn no_secret_is_asked_for_where_none_is_needed_or_none_would_do() {
        let nowhere = Path::new("/nonexistent");
        let url = "--url https://hooks.example.com/in/1";
        let target = resolve(&args(&format!("docker-hub {url}"), nowhere)).expect("complete");
        assert!(target.secret.expose_secret().is_empty());
        for preset in ["paypal", "aws-sns", "plaid"] {
            let refused = refusal(&format!("{preset} {url}"), nowhere);
            assert!(refused.contains("only the provider can sign"), "{refused}");
        }
        let lacking = refusal(&format!("stripe {url}"), nowhere);
        assert!(lacking.contains("--secret-file") && !lacking.contains("--url"), "{lacking}");
    }

    #[test]
    fn a_name_that_nobody_knows_is_told_with_names_that_are_like_it() {
        let folder = dev_folder();
        for data in [folder.path(), Path::new("/nonexistent")] {
            assert!(refusal("strip", data).contains("is it stripe?"));
            assert!(refusal("nosuch", data).contains("portero provider list"));
        }
        assert!(
            refusal("nosuch --url https://a.example/1 --secret-file /x", folder.path()).contains("no preset")
        );
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let folder = dev_folder();
        assert!(refusal("stripe", Path::new("/nonexistent")).contains("portero dev"));
        assert!(refusal("shopify", folder.path()).contains("stripe, code"));
        assert!(refusal("stripe --url ftp://x/y", folder.path()).contains("--url"));
        let missing = refusal("stripe --secret-file /nonexistent/secret", folder.path());
        assert!(missing.contains("/nonexistent/secret"), "{missing}");
    }
}
