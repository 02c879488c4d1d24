//! `portero verify`: what the gateway would say to a request, step by step and without a gateway.

mod secrets;

use std::sync::Arc;

use portero_recipe::{Recipe, Request, Verdict, explain};
use portero_types::Clock as _;

use super::exit::Failure;
use super::explanation::View;
use super::request_file::RequestFile;
use super::{input, recipe_file, settings};
use crate::cli::VerifyArgs;
use crate::clock::SystemClock;
use crate::print;

/// Most URLs that are tried, as many as a source may have.
const URLS_MAX: usize = 4;
/// Largest file of what a recipe fetches, bytes.
const FETCHED_BYTES_MAX: usize = 256 * 1024;

/// Explains a request. Succeeds when it is accepted or answered as a handshake.
pub(crate) async fn run(args: VerifyArgs) -> anyhow::Result<()> {
    let (view, doubts) = judge(&args)?;
    doubts.iter().for_each(|doubt| print::note(&format!("note: {doubt}")));
    view.show(args.output.output)
}

/// The explanation, and what is odd about what was given.
fn judge(args: &VerifyArgs) -> Result<(View, Vec<String>), Failure> {
    let recipe = recipe(args)?;
    let settings = settings::read(&args.settings)?;
    recipe.check_settings(&settings).map_err(|error| Failure::usage(error.to_string()))?;
    let RequestFile { method, query, headers, body, url, mut doubts } = RequestFile::read(&args.request)?;
    let now = args.at.unwrap_or_else(|| SystemClock::default().now());
    let secrets = secrets::read(&recipe, &args.secret_files)?;
    let fetched = args.fetched.as_deref();
    let fetched =
        fetched.map(|path| input::bytes(path, FETCHED_BYTES_MAX, "what was fetched")).transpose()?;
    let mut public_urls = args.urls.clone();
    if let Some(bad) = public_urls.iter().find(|url| !is_public_url(url)) {
        return Err(Failure::usage(format!("--url {bad:?} is not an http or https URL")));
    }
    if public_urls.len() > URLS_MAX {
        return Err(Failure::usage(format!("--url can be given {URLS_MAX} times")));
    }
    if public_urls.is_empty()
        && recipe.signs_url()
        && let Some(url) = url
    {
        doubts.push(format!(
            "{url} is used as public URL, from the request's file; the gateway uses the source's"
        ));
        public_urls.push(url);
    }
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let request = Request {
        method: &method,
        query: &query,
        headers: &headers,
        body: &body,
        public_urls: &public_urls,
        settings: &settings,
        fetched: fetched.as_deref(),
    };
    let explanation = explain(&recipe, &request, &secrets, now);
    if explanation.unfetched.is_some() {
        doubts.push("what the gateway would fetch can be given by --fetched FILE".to_owned());
    }
    if let Verdict::Handshake { stores_secret: true, .. } = explanation.verdict {
        doubts.push(
            "whether the source waits for a secret is not known here; where it does not, the gateway answers \
             HANDSHAKE_NOT_EXPECTED"
                .to_owned(),
        );
    }
    Ok((View::new(&explanation), doubts))
}

fn is_public_url(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

fn recipe(args: &VerifyArgs) -> Result<Arc<Recipe>, Failure> {
    match (&args.recipe, &args.preset) {
        (Some(file), _) => recipe_file::read(file).map(|(_, recipe)| Arc::new(recipe)),
        (None, Some(name)) => super::provider::preset(name).map(|preset| Arc::clone(&preset.recipe)),
        (None, None) => Err(Failure::usage("give --preset or --recipe-file")),
    }
}

#[cfg(test)]
mod tests;
