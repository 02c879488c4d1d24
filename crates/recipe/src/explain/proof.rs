//! The parts of a signed request: signature, time, URL, digest, message.

use portero_types::limits::JSON_DEPTH_MAX;

use super::steps::Steps;
use super::{Explained, signature, time};
use crate::algorithm::sha256;
use crate::context::Context;
use crate::json::Document;
use crate::schema::UrlForm;
use crate::scheme::Proof;
use crate::template::{Source, Template};
use crate::{Reason, Request};

/// Describes them in the order in which verification needs them.
pub(super) fn describe(explained: &Explained<'_>, proof: &Proof, steps: &mut Steps) {
    let in_list = signature::look(explained.scheme, proof, explained.request, steps);
    if let Some(window) = &proof.window {
        let ts = match &window.source {
            Some(source) => sent_time(source, explained.request),
            None => in_list,
        };
        time::judge(window, ts.as_deref(), explained.now, steps);
    }
    let Some(message) = &proof.message else { return };
    if message.uses(&Source::Url) {
        urls(proof, explained.request, steps);
    }
    if let Some((of, encoding)) = &proof.body_digest {
        let said = Context::unverified(explained.request).fill(of).ok();
        let is_right = said
            .and_then(|text| encoding.decode(&text))
            .is_some_and(|said| said == sha256(explained.request.body));
        if is_right {
            steps.passed("digest", "the digest that is signed is the body's SHA-256");
        } else {
            steps.failed("digest", "the digest that is signed is missing, or is not the body's SHA-256");
        }
    }
    let signed = format!("signed is {}", proof.message_text);
    match explained.verified {
        Err(rejection) if is_about_parts(rejection.reason()) => {
            steps.failed("message", format!("{signed}; {}", rejection.detail()));
        }
        Ok(_) | Err(_) => steps.noted("message", signed),
    }
}

const fn is_about_parts(reason: Reason) -> bool {
    matches!(reason, Reason::SignedPartMissing | Reason::BodyMalformed | Reason::SettingMissing)
}

/// The time where the recipe says it is, wherever that is.
fn sent_time(source: &Template, request: &Request<'_>) -> Option<Vec<u8>> {
    let document = Document::parse(request.body.into(), JSON_DEPTH_MAX).ok();
    let context = Context { document: document.as_ref(), ..Context::unverified(request) };
    context.fill(source).ok().map(std::borrow::Cow::into_owned)
}

fn urls(proof: &Proof, request: &Request<'_>, steps: &mut Steps) {
    if request.public_urls.is_empty() {
        steps.failed("URL", "the provider signs the public URL, and none is configured");
        return;
    }
    let forms: Vec<&str> = proof.urls.iter().map(|form| name(*form)).collect();
    let query = if request.query.is_empty() { "" } else { ", with the query as received" };
    for url in request.public_urls {
        let base = url.split_once('?').map_or(url.as_str(), |(base, _)| base);
        steps.noted("URL", format!("{base} {}{query}", forms.join(" and ")));
    }
}

const fn name(form: UrlForm) -> &'static str {
    match form {
        UrlForm::AsConfigured => "as configured",
        UrlForm::WithPort => "with its port",
        UrlForm::WithoutPort => "without its port",
        UrlForm::Hubspot => "with some escapes decoded",
    }
}
