//! The signed request: a sample or a file, with a fresh id.

use portero_recipe::{Recipe, Sample, SignOptions};
use portero_types::Timestamp;
use url::Url;

use super::target::Target;
use crate::cli::SendArgs;
use crate::commands::exit::Failure;
use crate::commands::input;
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

/// Signs a request as of `now`.
pub(super) fn sign(args: &SendArgs, target: &Target, now: Timestamp) -> Result<Request, Failure> {
    let id = args.id.clone().unwrap_or_else(|| fresh_id(&target.preset));
    let Sample { event_type, headers, body: sample, .. } =
        sample(&target.preset, &id, args.entity.as_deref());
    let body = match &args.body {
        Some(path) => input::bytes(path, BODY_BYTES_MAX, "the body")?,
        None => sample,
    };
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let options = SignOptions {
        id: Some(&id),
        event_type: args.event_type.as_deref().unwrap_or(&event_type),
        now,
        url: Some(target.url.as_str()),
        headers: &headers,
        scheme: None,
    };
    let signed = portero_recipe::sign(&target.recipe, target.secret.expose_secret(), &body, options)
        .map_err(|error| Failure::usage(format!("this cannot be signed: {error}")))?;
    Ok(Request { url: target.url.clone(), headers: signed.headers, body: signed.body.into() })
}

/// The preset's sample; a recipe of one's own gets the custom one's.
fn sample(preset: &str, id: &str, entity: Option<&str>) -> Sample {
    let known = if Recipe::preset(preset).is_some() { preset } else { "custom" };
    portero_recipe::sample(known, id, entity).expect("each preset has a sample")
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
    use std::time::Duration;

    use clap::Parser as _;
    use portero_recipe::{Reason, Secret, extract, generate_secret, verify};
    use portero_types::{Redacted, SecretNo};

    use super::*;
    use crate::cli::{Cli, Command};

    const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

    fn target(preset: &str) -> Target {
        let recipe = Recipe::preset(preset).expect("a preset");
        let secret = generate_secret(&recipe, std::array::from_fn(|n| u8::try_from(n).expect("small")));
        let url = Url::parse("http://127.0.0.1:8080/in/1").expect("a URL");
        Target { url, secret: Redacted::new(secret), recipe, preset: preset.to_owned() }
    }

    fn args(line: &str) -> SendArgs {
        let Command::Send(args) = Cli::try_parse_from(line.split_whitespace()).expect("understood").command
        else {
            panic!("send")
        };
        args
    }

    fn events(target: &Target, request: &Request, now: Timestamp) -> Result<Vec<String>, Reason> {
        let headers: Vec<(&str, &[u8])> =
            request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let received = portero_recipe::Request {
            method: "POST",
            query: "",
            headers: &headers,
            body: &request.body,
            public_url: Some(target.url.as_str()),
        };
        let secret = target.secret.expose_secret();
        let secret = Secret::new(&target.recipe, SecretNo(1), secret, Timestamp::EPOCH, None).expect("valid");
        let verified =
            verify(&target.recipe, &received, &[secret], now).map_err(|rejection| rejection.reason())?;
        let events = extract(&target.recipe, &received, &verified).map_err(|rejection| rejection.reason())?;
        Ok(events.into_iter().map(|event| event.event_id).collect())
    }

    #[test]
    fn every_presets_sample_verifies_and_keeps_its_id() {
        for preset in Recipe::presets() {
            let target = target(preset.name);
            let request = sign(&args(&format!("portero send {} --id 8A3B", preset.name)), &target, NOW)
                .expect("signed");
            let ids =
                events(&target, &request, NOW).unwrap_or_else(|reason| panic!("{}: {reason:?}", preset.name));
            assert!(ids.len() == 1 && ids[0].starts_with("8A3B"), "{}: {ids:?}", preset.name);
        }
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
