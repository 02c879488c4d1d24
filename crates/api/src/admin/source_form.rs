//! What a source may say, and what its owner should know about it.

use std::sync::Arc;
use std::time::Duration;

use portero_proto::v1;
use portero_proto::v1::source::Verification;
use portero_recipe::{RECIPE_BYTES_MAX, Recipe, Strength};
use portero_store::{PUBLIC_URL_BYTES_MAX, PUBLIC_URLS_MAX};
use portero_types::Timestamp;
use tonic::Status;
use tonic::codegen::http::Uri;

use super::{limits_form, source_settings};
use crate::error::invalid;
use crate::time;

/// How long a new source takes its secret from a handshake, unless its creator says otherwise.
pub(super) const SECRET_WINDOW: Duration = Duration::from_hours(1);
const SECRET_WINDOW_MAX: Duration = Duration::from_hours(7 * 24);

/// The recipe that a caller chose, checked.
pub(super) struct Chosen {
    /// The preset's name; empty with a custom recipe.
    pub(super) preset: String,
    /// The custom recipe; empty with a preset.
    pub(super) json: String,
    /// Either of them, ready for use.
    pub(super) recipe: Arc<Recipe>,
}

impl Chosen {
    pub(super) fn from_proto(wanted: Option<Verification>) -> Result<Self, Status> {
        match wanted {
            Some(Verification::Preset(preset)) => match Recipe::preset(&preset) {
                Some(recipe) => Ok(Self { preset, json: String::new(), recipe }),
                None => {
                    let known: Vec<&str> = Recipe::presets().map(|preset| preset.name).collect();
                    Err(invalid("source.preset", format!("must be one of: {}", known.join(", "))))
                }
            },
            Some(Verification::RecipeJson(json)) => {
                if json.len() > RECIPE_BYTES_MAX || json.contains('\0') {
                    return Err(invalid("source.recipe_json", "must be at most 64 KiB, without NUL"));
                }
                let recipe = Recipe::from_json(&json)
                    .map_err(|error| invalid("source.recipe_json", format!("cannot be used: {error}")))?;
                Ok(Self { preset: String::new(), json, recipe: Arc::new(recipe) })
            }
            None => {
                Err(invalid("source.verification", "must be given: a preset's name, or a recipe in JSON"))
            }
        }
    }
}

/// Public URLs, each of its form and named once.
pub(super) fn check_urls(urls: &[String]) -> Result<(), Status> {
    if urls.len() > PUBLIC_URLS_MAX {
        return Err(invalid("source.public_urls", format!("must be at most {PUBLIC_URLS_MAX}")));
    }
    for (n, url) in urls.iter().enumerate() {
        let field = format!("source.public_urls[{n}]");
        if !is_public_url(url) {
            let rule = "must be an http or https URL of at most 2000 bytes, without user and fragment";
            return Err(invalid(&field, rule));
        }
        if urls[..n].contains(url) {
            return Err(invalid(&field, "is named twice"));
        }
    }
    Ok(())
}

fn is_public_url(text: &str) -> bool {
    let has_form = text.len() <= PUBLIC_URL_BYTES_MAX
        && (text.starts_with("https://") || text.starts_with("http://"))
        && !text.contains('#');
    has_form
        && text.parse::<Uri>().is_ok_and(|uri| {
            let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
            let port = authority.rsplit_once(']').map_or(authority, |(_, after)| after).rsplit_once(':');
            !authority.contains('@')
                && uri.host().is_some_and(|host| !host.is_empty())
                && port.is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
        })
}

/// Until when a handshake may bring the secret.
pub(super) fn wait(
    recipe: &Recipe,
    window: &prost_types::Duration,
    now: Timestamp,
) -> Result<Option<Timestamp>, Status> {
    let window = time::duration(window, "source.secret_window", SECRET_WINDOW_MAX)?;
    if window.is_zero() {
        return Ok(None);
    }
    if !recipe.writes_secret() {
        return Err(invalid(
            "source.secret_window",
            "must be absent or 0: no handshake of this recipe brings a secret",
        ));
    }
    Ok(Some(now.plus(window)))
}

/// A source as it is shown. `recipe` is missing when this version cannot use it.
pub(super) fn to_proto(source: &portero_store::Source, recipe: Option<&Recipe>) -> v1::Source {
    let verification = if source.preset.is_empty() {
        Verification::RecipeJson(source.recipe.clone())
    } else {
        Verification::Preset(source.preset.clone())
    };
    let (settings, secret_settings) = source_settings::shown(source, recipe);
    v1::Source {
        name: format!("tenants/{}/sources/{}", source.tenant, source.id),
        verification: Some(verification),
        provider: source.provider.to_string(),
        public_urls: source.public_urls.clone(),
        ingest_path: format!("/in/{}", source.ingest_key),
        create_time: Some(time::to_proto(source.created_at)),
        settings: settings.into_iter().collect(),
        secret_settings,
        limits: limits_form::to_proto(&source.limits),
        secret_window: None,
        secret_expected_until: source.secret_expected_until.map(time::to_proto),
        warnings: recipe.map_or_else(
            || vec!["its recipe cannot be used by this version: every request is answered 503".to_owned()],
            |recipe| warnings(source, recipe),
        ),
    }
}

fn warnings(source: &portero_store::Source, recipe: &Recipe) -> Vec<String> {
    let mut warnings = Vec::new();
    for (name, about) in source_settings::missing(source, recipe) {
        warnings.push(format!("every request is refused until the setting {name} is given: {about}"));
    }
    if recipe.signs_url() && source.public_urls.is_empty() {
        warnings.push(
            "the provider signs the URL it calls: requests are refused until public_urls names it as configured there"
                .to_owned(),
        );
    }
    let strength = recipe.strength();
    if strength < Strength::Body {
        let advice = match strength {
            Strength::None => "anybody who knows the URL can have events accepted",
            Strength::Token => "whoever saw one request can have others accepted",
            Strength::Fields | Strength::Body => "what is not covered can be changed on the way",
        };
        warnings.push(format!("{}: {advice}", strength.meaning()));
    }
    if recipe.is_replayable() {
        warnings.push(
            "the provider signs neither a time nor the event's id: whoever saw a request can send it again as a new event"
                .to_owned(),
        );
    }
    if recipe.info().unproven {
        warnings.push(
            "the recipe was never tried on a request signed by the provider itself: try it first".to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_urls_are_urls_that_a_provider_can_call() {
        for good in [
            "https://hooks.example.com/in/0123",
            "http://10.0.0.1:8080/",
            "https://[2001:db8::1]:8443/in?tag=a",
            "https://example.com",
        ] {
            assert!(is_public_url(good), "{good}");
        }
        let long = format!("https://example.com/{}", "a".repeat(2_000));
        for bad in [
            "",
            "example.com/in",
            "ftp://example.com/",
            "https://",
            "https:///in",
            "https://user@example.com/",
            "https://user:pw@example.com/",
            "https://example.com/#part",
            "https://example.com/a b",
            "https://example.com/\0",
            "https://example.com:0/",
            "https://example.com:70000/",
            "https://exämple.com/",
            &long,
        ] {
            assert!(!is_public_url(bad), "{bad}");
        }
    }

    #[test]
    fn a_wrong_url_is_named_by_its_place() {
        let urls = ["https://a.example/", "b"].map(str::to_owned);
        let status = check_urls(&urls).expect_err("refused");
        assert!(status.message().starts_with("source.public_urls[1] must be"), "{status}");
        let twice = ["https://a.example/", "https://a.example/"].map(str::to_owned);
        assert!(check_urls(&twice).is_err());
        assert!(check_urls(&vec!["https://a.example/".to_owned(); 5]).is_err());
    }
}
