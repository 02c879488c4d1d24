//! The signed request: a sample or a file, with a fresh id.

use portero_recipe::{Recipe, Sample, SignError, SignOptions};
use portero_types::Timestamp;
use url::Url;

use super::target::Target;
use crate::cli::SendArgs;
use crate::commands::exit::Failure;
use crate::commands::{input, settings};
use crate::entropy;

/// Largest body, bytes: more than gateways take, so that their refusal can be seen.
const BODY_BYTES_MAX: usize = 64 << 20;

/// A request ready to be posted as often as wanted.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Where it goes. Its path is confidential.
    pub(super) url: Url,
    /// Headers, lower-case names.
    pub(super) headers: Vec<(String, String)>,
    /// The body as signed.
    pub(super) body: bytes::Bytes,
}

/// Whether a holder of the source's secret can sign at all.
pub(super) fn signable(recipe: &Recipe) -> Result<(), Failure> {
    match portero_recipe::sign(recipe, "", b"{}", SignOptions::default()) {
        Err(error @ SignError::CannotSign) => Err(unsigned(recipe, &error)),
        _ => Ok(()),
    }
}

/// Signs a request as of `now`.
pub(super) fn sign(args: &SendArgs, target: &Target, now: Timestamp) -> Result<Request, Failure> {
    signable(&target.recipe)?;
    let id = args.id.clone().unwrap_or_else(|| fresh_id(&target.preset));
    let Sample { event_type, headers, query, body: sample, .. } =
        sample(target, &id, args.entity.as_deref(), now)?;
    let body = match &args.body {
        Some(path) => input::bytes(path, BODY_BYTES_MAX, "the body")?,
        None => sample,
    };
    let settings = settings::read(&args.settings)?;
    target.recipe.check_settings(&settings).map_err(|error| Failure::usage(error.to_string()))?;
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let query = [target.url.query().unwrap_or_default(), &query].map(str::to_owned);
    let query = query.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("&");
    let mut url = target.url.clone();
    url.set_query(None);
    let options = SignOptions {
        id: Some(&id),
        event_type: args.event_type.as_deref().unwrap_or(&event_type),
        now,
        url: Some(args.public_url.as_deref().unwrap_or(url.as_str())),
        query: &query,
        settings: &settings,
        headers: &headers,
        scheme: None,
    };
    let signed = portero_recipe::sign(&target.recipe, target.secret.expose_secret(), &body, options)
        .map_err(|error| unsigned(&target.recipe, &error))?;
    url.set_query(Some(signed.query.as_str()).filter(|query| !query.is_empty()));
    Ok(Request { url, headers: signed.headers, body: signed.body.into() })
}

/// Why it cannot be signed, and what to do.
fn unsigned(recipe: &Recipe, error: &SignError) -> Failure {
    let missing: Vec<&str> = recipe.settings().keys().map(String::as_str).collect();
    let hint = if *error == SignError::CannotSign {
        format!("; save a request that {} has sent, and see `portero verify`", recipe.info().title)
    } else if matches!(error, SignError::Missing(_)) && !missing.is_empty() {
        format!("; settings are given by --setting or --setting-file: {}", missing.join(", "))
    } else {
        String::new()
    };
    Failure::usage(format!("this cannot be signed: {error}{hint}"))
}

/// The recipe's sample; a recipe without one gets that of its preset, or else the custom one's.
fn sample(target: &Target, id: &str, entity: Option<&str>, now: Timestamp) -> Result<Sample, Failure> {
    let own = portero_recipe::sample(&target.recipe, id, entity, now);
    let others = [target.preset.as_str(), "custom"].into_iter().filter_map(Recipe::preset);
    own.or_else(|| others.into_iter().find_map(|recipe| portero_recipe::sample(&recipe, id, entity, now)))
        .ok_or_else(|| Failure::usage("the recipe has no sample: give --body"))
}

/// An event id in the provider's form.
fn fresh_id(preset: &str) -> String {
    let random = entropy::random_u128();
    let hex = format!("{random:032x}");
    match preset {
        "stripe" => format!("evt_{}", &hex[..24]),
        "github" | "shopify" => {
            uuid::Builder::from_random_bytes(random.to_ne_bytes()).into_uuid().to_string()
        }
        "standard-webhooks" => format!("msg_{hex}"),
        "slack" => format!("Ev{}", hex[..10].to_ascii_uppercase()),
        "adyen" => hex[..16].to_ascii_uppercase(),
        _ => format!("evt_{hex}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use clap::Parser as _;
    use portero_recipe::{Preset, Reason, Secret, extract, generate_secret, verify};
    use portero_types::{Redacted, SecretNo};

    use super::*;
    use crate::cli::{Cli, Command};

    const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

    /// Each preset with a generated secret; `None` where only the provider can make one.
    fn generated(preset: &str) -> Option<Target> {
        let recipe = Recipe::preset(preset).expect("a preset");
        let secret = generate_secret(&recipe, std::array::from_fn(|n| u8::try_from(n).expect("small")))?;
        let url = Url::parse("http://127.0.0.1:8080/in/1").expect("a URL");
        Some(Target { url, secret: Redacted::new(secret), recipe, preset: preset.to_owned() })
    }

    fn target(preset: &str) -> Target {
        generated(preset).expect("a shared secret")
    }

    fn args(line: &str) -> SendArgs {
        let Command::Send(args) = Cli::try_parse_from(line.split_whitespace()).expect("understood").command
        else {
            panic!("send")
        };
        args
    }

    fn events(target: &Target, request: &Request, now: Timestamp) -> Result<Vec<String>, Reason> {
        let settings = BTreeMap::new();
        events_with(target, &settings, request, now)
    }

    fn events_with(
        target: &Target,
        settings: &BTreeMap<String, String>,
        request: &Request,
        now: Timestamp,
    ) -> Result<Vec<String>, Reason> {
        let headers: Vec<(&str, &[u8])> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let public_urls = [target.url.to_string()];
        let received = portero_recipe::Request {
            public_urls: &public_urls,
            settings,
            ..portero_recipe::Request::new(
                "POST",
                request.url.query().unwrap_or_default(),
                &headers,
                &request.body,
            )
        };
        let secret = target.secret.expose_secret();
        let secret = Secret::new(&target.recipe, SecretNo(1), secret, Timestamp::EPOCH, None).expect("valid");
        let verified =
            verify(&target.recipe, &received, &[secret], now).map_err(|rejection| rejection.reason())?;
        let events = extract(&target.recipe, &received, &verified).map_err(|rejection| rejection.reason())?;
        Ok(events.into_iter().map(|event| event.event_id).collect())
    }

    /// Arguments for a preset, with every setting that it requires.
    fn full_args(target: &Target, line: &str) -> (SendArgs, BTreeMap<String, String>) {
        let mut args = args(&format!("portero send {} {line}", target.preset));
        for name in target.recipe.missing_settings(&BTreeMap::new()) {
            args.settings.plain.push((name.to_owned(), "abc".to_owned()));
        }
        let settings = args.settings.plain.iter().cloned().collect();
        (args, settings)
    }

    fn is_beyond_a_shared_secret(error: &Failure) -> bool {
        ["private key", "only the provider"].iter().any(|words| error.to_string().contains(words))
    }

    #[test]
    fn every_preset_with_a_shared_secret_has_a_sample_that_verifies_and_keeps_its_id() {
        let mut sent = 0;
        // What is generated for these is the public key, which cannot sign.
        let is_shared = |preset: &&Preset| !preset.json.contains(r#""algorithm": "ed25519""#);
        for preset in Recipe::presets().filter(is_shared) {
            let Some(target) = generated(preset.name) else { continue };
            let (args, settings) = full_args(&target, "--id 8A3B");
            let request = match sign(&args, &target, NOW) {
                Ok(request) => request,
                Err(error) if is_beyond_a_shared_secret(&error) => continue,
                Err(error) => panic!("{}: {error}", preset.name),
            };
            let ids = events_with(&target, &settings, &request, NOW)
                .unwrap_or_else(|reason| panic!("{}: {reason:?}", preset.name));
            let is_kept = |id: &String| id.contains("8A3B") || id.starts_with("sha256:");
            assert!(!ids.is_empty() && ids.iter().all(is_kept), "{}: {ids:?}", preset.name);
            sent += 1;
        }
        assert!(sent >= 45, "{sent}");
    }

    #[test]
    fn what_only_the_provider_can_sign_is_told() {
        for preset in ["paypal", "aws-sns", "plaid"] {
            let recipe = Recipe::preset(preset).expect("a preset");
            let url = Url::parse("http://127.0.0.1:8080/in/1").expect("a URL");
            let secret = Redacted::new("0123456789abcdef:0123456789abcdef".to_owned());
            let target = Target { url, secret, recipe, preset: preset.to_owned() };
            let (args, _) = full_args(&target, "");
            let error = sign(&args, &target, NOW).expect_err(preset).to_string();
            assert!(error.contains("only the provider can sign"), "{preset}: {error}");
        }
    }

    #[test]
    fn a_setting_that_the_recipe_does_not_have_is_refused() {
        let error = sign(&args("portero send stripe --setting a=b"), &target("stripe"), NOW);
        assert!(error.expect_err("unknown").to_string().contains("settings.a"));
    }

    #[test]
    fn ids_are_fresh() {
        for preset in Recipe::presets() {
            assert_ne!(fresh_id(preset.name), fresh_id(preset.name), "{}", preset.name);
        }
    }

    #[test]
    fn an_old_signature_is_outside_of_the_window() {
        let target = target("stripe");
        let request =
            sign(&args("portero send stripe"), &target, NOW.minus(Duration::from_secs(600))).expect("signed");
        assert_eq!(events(&target, &request, NOW), Err(Reason::TimestampTooOld));
    }

    #[test]
    fn a_file_is_sent_byte_by_byte() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let body = b"{\"id\": \"evt_9\",  \"type\":\"x\"}\r\n";
        std::fs::write(file.path(), body).expect("written");
        let target = target("stripe");
        let args = args(&format!("portero send stripe --body {}", file.path().display()));
        let request = sign(&args, &target, NOW).expect("signed");
        assert_eq!(request.body.as_ref(), body);
        assert_eq!(events(&target, &request, NOW), Ok(vec!["evt_9".to_owned()]));
    }
}
