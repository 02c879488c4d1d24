//! What the gateway decides before it asks the recipe: method and content encoding.

use super::steps::Steps;
use crate::{Compressed, Reason, Recipe, Rejection, Request};

/// What becomes of a request by its head alone.
pub(super) enum Admission {
    /// Method and encoding are taken.
    Open,
    /// A probe of the URL, answered without a look at the recipe.
    Probe,
    /// Refused before its body is read.
    Refused(Rejection),
}

/// Judges the head, and says so.
pub(super) fn judge(recipe: &Recipe, request: &Request<'_>, steps: &mut Steps) -> Admission {
    match request.method {
        "POST" => encoding(recipe, request, steps),
        "HEAD" => {
            steps.noted("method", "HEAD probes the URL: answered at once, nothing is verified or stored");
            Admission::Probe
        }
        "GET" | "OPTIONS" if recipe.answers_method(request.method) => Admission::Open,
        _ => Admission::Refused(wrong_method(steps)),
    }
}

/// Refuses another method than POST that is no handshake.
pub(super) fn wrong_method(steps: &mut Steps) -> Rejection {
    let detail = "events come with POST, and no handshake of the recipe is like this request";
    steps.failed("method", detail);
    Rejection::new(Reason::MethodNotAllowed, detail)
}

fn encoding(recipe: &Recipe, request: &Request<'_>, steps: &mut Steps) -> Admission {
    let refused = |steps: &mut Steps, detail: &'static str| {
        steps.failed("encoding", detail);
        Admission::Refused(Rejection::new(Reason::EncodingUnsupported, detail))
    };
    match (coding(request), recipe.compressed()) {
        (Coding::None, _) => return Admission::Open,
        (Coding::Unknown, _) => {
            return refused(
                steps,
                "the Content-Encoding is not one of gzip and deflate, or there is more than one",
            );
        }
        (Coding::One, None) => {
            return refused(
                steps,
                "the request has a Content-Encoding, and the recipe does not say what is signed then",
            );
        }
        (Coding::One, Some(Compressed::AsSent)) => {
            steps.noted("encoding", "the signature covers the body as sent");
        }
        (Coding::One, Some(Compressed::Inflated)) if super::body::is_compressed(request.body) => {
            steps.noted(
                "encoding",
                "the signature covers the inflated body, and this one is still compressed: inflate it first",
            );
        }
        (Coding::One, Some(Compressed::Inflated)) => {
            steps.noted("encoding", "the signature covers the inflated body");
        }
    }
    Admission::Open
}

/// What a body is packed in.
enum Coding {
    None,
    One,
    Unknown,
}

/// As the gateway reads the header (RFC 9110 section 8.4).
fn coding(request: &Request<'_>) -> Coding {
    let values = request.header_values("content-encoding");
    let names = values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let mut found = Coding::None;
    for name in names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"identity")) {
        let is_known =
            [&b"gzip"[..], b"x-gzip", b"deflate"].iter().any(|have| name.eq_ignore_ascii_case(have));
        found = match found {
            Coding::None if is_known => Coding::One,
            Coding::None | Coding::One | Coding::Unknown => Coding::Unknown,
        };
    }
    found
}
