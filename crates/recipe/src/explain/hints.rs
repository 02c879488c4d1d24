//! Why nothing matched: what would have. Tried only to explain a refusal, never to accept a request.

use portero_types::{Redacted, SecretNo, Timestamp};
use zeroize::Zeroizing;

use super::{body_variants, is_good, steps::Steps};
use crate::algorithm::Algorithm;
use crate::encoding::Encoding;
use crate::schema::KeyForm;
use crate::scheme::Check;
use crate::template::Source;
use crate::{Recipe, Request, Secret, verify};

/// Most secrets that are tried in other forms.
const SECRETS_MAX: usize = 4;

/// Tries other bodies, URLs, algorithms and readings of the secrets, one at a time.
pub(super) fn give(
    recipe: &Recipe,
    scheme: usize,
    request: &Request<'_>,
    secrets: &[Secret],
    now: Timestamp,
    steps: &mut Steps,
) {
    let active: Vec<&Secret> = secrets
        .iter()
        .filter(|secret| secret.is_active(now) && !secret.keys(scheme).is_empty())
        .take(SECRETS_MAX)
        .collect();
    let holds = |recipe: &Recipe, request: &Request<'_>| is_good(&verify(recipe, request, secrets, now));
    let mut hints: Vec<(Option<SecretNo>, String)> = Vec::new();
    for variant in body_variants::of(request.body) {
        // The simplest change comes first, and those after it contain it.
        if holds(recipe, &Request { body: &variant.body, ..*request }) {
            hints.push((None, variant.meaning.to_owned()));
            break;
        }
    }
    for url in urls(recipe, request) {
        if holds(recipe, &Request { public_urls: std::slice::from_ref(&url), ..*request }) {
            hints.push((None, format!("with the public URL {url} it would match")));
        }
    }
    for (algorithm, name) in MACS {
        if let Some(other) = with_algorithm(recipe, scheme, algorithm)
            && holds(&other, request)
        {
            hints.push((None, format!("with {name} instead of the recipe's algorithm it would match")));
        }
    }
    if hints.is_empty() && signs_url(recipe, scheme) && !request.public_urls.is_empty() {
        hints.push((None, OTHER_URL.to_owned()));
    }
    for secret in active {
        let no = secret.no();
        hints.extend(api_key(secret, scheme).map(|hint| (Some(no), hint)));
        for guess in guesses(secret, scheme) {
            if let Some(other) = with_key_form(recipe, scheme, guess.form)
                && let Ok(secret) = Secret::new(&other, no, &guess.text, Timestamp::EPOCH, None)
                && is_good(&verify(&other, request, &[secret], now))
            {
                hints.push((Some(no), guess.meaning.to_owned()));
            }
        }
    }
    hints.dedup();
    for (secret, hint) in hints {
        steps.hint(secret, hint);
    }
}

const OTHER_URL: &str = "the provider signs its own URL of the source: a public URL that differs from what is entered there, in \
                         host, path or query, would explain this too";

/// Whether a scheme signs the public URL.
fn signs_url(recipe: &Recipe, scheme: usize) -> bool {
    recipe.schemes.get(scheme).is_some_and(|scheme| match &scheme.check {
        Check::Nothing => false,
        Check::Proof(proof) => proof.message.as_ref().is_some_and(|message| message.uses(&Source::Url)),
        Check::Code(verifier, _) => verifier.signs_url(),
    })
}

/// How API keys begin that are taken for signing secrets.
const API_KEYS: [&str; 9] =
    ["sk_live_", "sk_test_", "rk_live_", "rk_test_", "pk_live_", "pk_test_", "xoxb-", "xoxp-", "xapp-"];

/// What to say of a secret that is a key to the provider's API.
fn api_key(secret: &Secret, scheme: usize) -> Option<String> {
    let texts = secret.keys(scheme).iter().filter_map(|key| std::str::from_utf8(key.shared()?).ok());
    let begins = |text: &str| API_KEYS.iter().find(|prefix| text.starts_with(**prefix));
    let prefix = texts.into_iter().find_map(begins)?;
    Some(format!(
        "it begins with '{prefix}' as keys to the provider's API do: the signing secret is another one"
    ))
}

/// The public URLs with what people get wrong about them.
fn urls(recipe: &Recipe, request: &Request<'_>) -> Vec<String> {
    if !recipe.signs_url() {
        return Vec::new();
    }
    let mut urls = Vec::new();
    for url in request.public_urls {
        let slash = url.strip_suffix('/').map_or_else(|| format!("{url}/"), str::to_owned);
        let scheme = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => Some(format!("https://{rest}")),
            (_, Some(rest)) => Some(format!("http://{rest}")),
            (None, None) => None,
        };
        urls.push(slash);
        urls.extend(scheme);
    }
    urls
}

const MACS: [(Algorithm, &str); 3] = [
    (Algorithm::HmacSha1, "HMAC-SHA-1"),
    (Algorithm::HmacSha256, "HMAC-SHA-256"),
    (Algorithm::HmacSha512, "HMAC-SHA-512"),
];

/// The recipe with another MAC in one scheme; `None` where that changes nothing.
fn with_algorithm(recipe: &Recipe, scheme: usize, algorithm: Algorithm) -> Option<Recipe> {
    let mut recipe = recipe.clone();
    let Check::Proof(proof) = &mut recipe.schemes.get_mut(scheme)?.check else { return None };
    let [(_, have)] = proof.reader.algorithms.as_mut_slice() else { return None };
    if !have.is_mac() || *have == algorithm {
        return None;
    }
    *have = algorithm;
    Some(recipe)
}

/// The recipe with another form of secrets in one scheme.
fn with_key_form(recipe: &Recipe, scheme: usize, form: KeyForm) -> Option<Recipe> {
    let mut recipe = recipe.clone();
    let Check::Proof(proof) = &mut recipe.schemes.get_mut(scheme)?.check else { return None };
    if !proof.reader.algorithms.iter().any(|(_, algorithm)| !algorithm.is_public()) {
        return None;
    }
    proof.keys = vec![form];
    Some(recipe)
}

/// What a secret's text may have been meant as.
struct Guess {
    text: Zeroizing<String>,
    form: KeyForm,
    meaning: &'static str,
}

/// Other readings of a secret, from its key material: the text itself is not kept.
fn guesses(secret: &Secret, scheme: usize) -> Vec<Guess> {
    let mut guesses = Vec::new();
    let mut push = |text: String, form, meaning| {
        guesses.push(Guess { text: Zeroizing::new(text), form, meaning });
    };
    for material in secret.keys(scheme).iter().filter_map(|key| key.shared()) {
        push(hex::encode(material), KeyForm::Text, AS_TEXT);
        push(hex::encode_upper(material), KeyForm::Text, AS_TEXT);
        let base64 = Redacted::new(Encoding::Base64.encode(material));
        let base64 = base64.expose_secret();
        push(base64.clone(), KeyForm::Text, AS_TEXT);
        push(base64.trim_end_matches('=').to_owned(), KeyForm::Text, AS_TEXT);
        push(format!("whsec_{base64}"), KeyForm::Text, AS_TEXT);
        let Ok(text) = std::str::from_utf8(material) else { continue };
        push(text.to_owned(), KeyForm::Hex, "decoded from hexadecimal, this secret would match");
        push(text.to_owned(), KeyForm::Base64, "decoded from base64, this secret would match");
        push(text.to_owned(), KeyForm::Whsec, "decoded from base64 after 'whsec_', this secret would match");
        let unquoted = text.trim_matches(['"', '\'']);
        if unquoted != text {
            push(
                unquoted.to_owned(),
                KeyForm::Text,
                "without the quotation marks around it, this secret would match",
            );
        }
        if let Some((_, value)) = text.split_once('=') {
            push(
                value.trim_matches(['"', '\'']).to_owned(),
                KeyForm::Text,
                "without what stands up to its '=', this secret would match",
            );
        }
        if let Some(rest) = text.strip_prefix("whsec_") {
            push(rest.to_owned(), KeyForm::Text, "without 'whsec_' and as text, this secret would match");
        }
    }
    guesses
}

const AS_TEXT: &str = "taken as text and not decoded, this secret would match";
