//! Verifiers: code for the few providers whose proof the recipe language cannot say in data.
//!
//! Each is pure like everything else here. What has to be fetched from elsewhere (a certificate, a key) is asked for by
//! [`Verifier::fetch`], which pins the host itself and lets nothing through that the provider could not have sent; the
//! bytes come back in [`Request::fetched`].

mod aws_sns;
mod contentful;
mod http_signatures;
mod jira_connect;
mod jwt;
mod paypal;
mod plaid;
mod url;

use std::time::Duration;

use portero_types::limits::SIGNATURE_HEADER_BYTES_MAX;
use portero_types::{SecretNo, Timestamp};
use serde::Deserialize;

use crate::algorithm::Key;
use crate::certificate::PublicKey;
use crate::compile::{Checked, invalid};
use crate::json::{Document, Lookup, Scalar};
use crate::path::Path;
use crate::request::Fetch;
use crate::schema::{KeyForm, TimeCheck};
use crate::window::{Unit, Window};
use crate::{Reason, Rejection, Request, Secret, SignError, Strength};

/// Longest window that a verifier may be told, seconds.
const WINDOW_S_MAX: u32 = 7 * 24 * 3600;

/// Code by the name that recipes use, with its options.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum Verifier {
    /// PayPal: RSA under a certificate that the request names.
    Paypal(paypal::Options),
    /// Amazon SNS: RSA under a certificate that the body names.
    AwsSns(aws_sns::Options),
    /// Plaid: a JWT whose key Plaid tells its customers.
    Plaid(plaid::Options),
    /// Contentful: HMAC over headers of the sender's choice.
    Contentful(contentful::Options),
    /// HTTP message signatures (RFC 9421) over the body's digest (RFC 9530).
    HttpSignatures(http_signatures::Options),
    /// Jira Connect: a JWT that names the request's path and query.
    JiraConnect(jira_connect::Options),
}

/// A request to verify.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// The request.
    pub(crate) request: &'a Request<'a>,
    /// The secrets that are active now.
    pub(crate) secrets: &'a [&'a Secret],
    /// The number of the scheme, under which the secrets keep their keys.
    pub(crate) scheme: usize,
    /// Now.
    pub(crate) now: Timestamp,
}

/// A request to sign.
#[derive(Clone, Copy)]
pub(crate) struct Signing<'a> {
    /// The request without its signature.
    pub(crate) request: &'a Request<'a>,
    /// The secret's text; a PEM private key (PKCS #8) where the receiver has a public one.
    pub(crate) secret: &'a str,
    /// Now.
    pub(crate) now: Timestamp,
}

impl Verifier {
    /// The rules that the recipe language cannot state: `at` is the verifier's place in the recipe.
    pub(crate) fn check(&self, at: &str) -> Checked<()> {
        match self {
            Self::AwsSns(options) => options.check(at),
            Self::Contentful(options) => options.check(at),
            Self::HttpSignatures(options) => options.check(at),
            Self::Paypal(_) | Self::Plaid(_) | Self::JiraConnect(_) => Ok(()),
        }
    }

    /// How the source's secret becomes its key; `None` where no secret is needed.
    pub(crate) const fn key_form(&self) -> Option<KeyForm> {
        match self {
            Self::Paypal(_) | Self::AwsSns(_) => None,
            Self::Plaid(_) | Self::Contentful(_) | Self::JiraConnect(_) => Some(KeyForm::Text),
            Self::HttpSignatures(options) => Some(options.key_form()),
        }
    }

    /// Whether a public key is of a kind that it can use.
    pub(crate) fn takes(&self, key: &PublicKey) -> bool {
        match self {
            Self::HttpSignatures(options) => options.takes(key),
            Self::Paypal(_)
            | Self::AwsSns(_)
            | Self::Plaid(_)
            | Self::Contentful(_)
            | Self::JiraConnect(_) => false,
        }
    }

    /// How much it proves.
    pub(crate) const fn strength(&self) -> Strength {
        match self {
            // The body takes part by its CRC-32 only, and another body with the same one is easily made.
            Self::Paypal(_) => Strength::Fields,
            // The message attributes and the link to unsubscribe are not signed.
            Self::AwsSns(_) => Strength::Fields,
            Self::Plaid(_) | Self::Contentful(_) | Self::HttpSignatures(_) => Strength::Body,
            // The token names method, path and query, nothing of the body.
            Self::JiraConnect(_) => Strength::Token,
        }
    }

    /// Whether the configured public URL takes part in what is signed.
    pub(crate) fn signs_url(&self) -> bool {
        match self {
            Self::Contentful(_) | Self::JiraConnect(_) => true,
            Self::HttpSignatures(options) => options.signs_url(),
            Self::Paypal(_) | Self::AwsSns(_) | Self::Plaid(_) => false,
        }
    }

    /// What must be fetched before [`Self::verify`], if anything. A request that could not verify whatever came back is
    /// refused here, so that nobody can make Portero ask around.
    pub(crate) fn fetch(&self, input: &Input<'_>) -> Result<Option<Fetch>, Rejection> {
        match self {
            Self::Paypal(_) => paypal::fetch(input).map(Some),
            Self::AwsSns(options) => options.fetch(input).map(Some),
            Self::Plaid(_) => plaid::fetch(input).map(Some),
            Self::Contentful(_) | Self::HttpSignatures(_) | Self::JiraConnect(_) => Ok(None),
        }
    }

    /// Verifies a request; gives the secret that matched, where there is one.
    pub(crate) fn verify(&self, input: &Input<'_>) -> Result<Option<SecretNo>, Rejection> {
        match self {
            Self::Paypal(_) => paypal::verify(input).map(|()| None),
            Self::AwsSns(options) => options.verify(input).map(|()| None),
            Self::Plaid(_) => plaid::verify(input).map(Some),
            Self::Contentful(options) => options.verify(input).map(Some),
            Self::HttpSignatures(options) => options.verify(input).map(Some),
            Self::JiraConnect(_) => jira_connect::verify(input).map(Some),
        }
    }

    /// What the provider wants to be fetched because of a request that was verified.
    pub(crate) fn follow_up(&self, request: &Request<'_>) -> Option<Fetch> {
        match self {
            Self::AwsSns(options) => options.follow_up(request),
            Self::Paypal(_)
            | Self::Plaid(_)
            | Self::Contentful(_)
            | Self::HttpSignatures(_)
            | Self::JiraConnect(_) => None,
        }
    }

    /// The headers that make the request a signed one, lower-case names.
    pub(crate) fn sign(&self, signing: &Signing<'_>) -> Result<Vec<(String, String)>, SignError> {
        match self {
            Self::Contentful(_) => contentful::sign(signing),
            Self::HttpSignatures(options) => options.sign(signing),
            Self::JiraConnect(_) => jira_connect::sign(signing),
            Self::Paypal(_) | Self::AwsSns(_) | Self::Plaid(_) => Err(SignError::CannotSign),
        }
    }
}

impl Input<'_> {
    /// The first secret with a key for which `proves` holds.
    fn matching(&self, proves: impl Fn(&Key) -> bool) -> Result<SecretNo, Rejection> {
        let has_key = self.secrets.iter().any(|secret| !secret.keys(self.scheme).is_empty());
        if !has_key {
            return Err(Rejection::new(
                Reason::NoActiveSecret,
                "the source has no active secret for this request",
            ));
        }
        let secret = self.secrets.iter().find(|secret| secret.keys(self.scheme).iter().any(&proves));
        secret.map(|secret| secret.no()).ok_or_else(|| {
            Rejection::new(
                Reason::SignatureMismatch,
                "the signature does not match the bytes received under any active secret",
            )
        })
    }

    /// What was fetched.
    fn fetched(&self, what: &str) -> Result<&[u8], Rejection> {
        self.request
            .fetched
            .ok_or_else(|| Rejection::new(Reason::FetchedKeyInvalid, format!("{what} was not fetched")))
    }
}

/// The one value of a header; `None` when it is absent.
fn optional_header<'a>(request: &Request<'a>, name: &str) -> Result<Option<&'a str>, Rejection> {
    let mut values = request.header_values(name);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Rejection::new(
            Reason::SignatureDuplicated,
            format!("the header '{name}' came more than once"),
        ));
    }
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= SIGNATURE_HEADER_BYTES_MAX);
    text.map(str::trim).map(Some).ok_or_else(|| {
        Rejection::new(
            Reason::SignatureMalformed,
            format!("the header '{name}' is not a text of at most {SIGNATURE_HEADER_BYTES_MAX} bytes"),
        )
    })
}

/// The one value of a header that must be there and not empty.
fn header<'a>(request: &Request<'a>, name: &str, missing: Reason) -> Result<&'a str, Rejection> {
    optional_header(request, name)?
        .filter(|value| !value.is_empty())
        .ok_or_else(|| Rejection::new(missing, format!("the header '{name}' is missing")))
}

/// A setting of the source that must be there and not empty.
fn setting<'a>(request: &Request<'a>, name: &str) -> Result<&'a str, Rejection> {
    optional_setting(request, name)
        .ok_or_else(|| Rejection::new(Reason::SettingMissing, format!("the source has no setting '{name}'")))
}

/// A setting of the source; `None` when it is absent or empty.
fn optional_setting<'a>(request: &Request<'a>, name: &str) -> Option<&'a str> {
    request.settings.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// Refuses a request because the source has no public URL.
fn no_public_url() -> Rejection {
    Rejection::new(
        Reason::PublicUrlUnknown,
        "the provider signs the public URL, and the source has none configured",
    )
}

/// Judges a time against a window.
fn judge(time: Timestamp, unit: Unit, past_s: u32, future_s: u32, now: Timestamp) -> Result<(), Rejection> {
    window(unit, past_s, future_s).judge(time, now)
}

/// A window of seconds.
fn window(unit: Unit, past_s: u32, future_s: u32) -> Window {
    let seconds = |s: u32| Duration::from_secs(u64::from(s));
    Window { source: None, unit, past: seconds(past_s), future: seconds(future_s), check: TimeCheck::Reject }
}

/// Refuses a window in a recipe that is longer than a week.
fn check_window(at: &str, field: &str, seconds: u32) -> Checked<()> {
    if seconds > WINDOW_S_MAX {
        return invalid(format!("{at}.{field}"), format!("at most {WINDOW_S_MAX} seconds"));
    }
    Ok(())
}

/// A member of the outermost object was given twice, or is not valid Unicode.
struct Ambiguous;

/// The text of a JSON document at a path of plain names; `None` when there is none.
fn text_at(document: &Document<'_>, path: &str) -> Result<Option<String>, Ambiguous> {
    let path = Path::parse(path).map_err(|_| Ambiguous)?;
    match document.lookup(document.root(), &path) {
        Lookup::Missing => Ok(None),
        Lookup::Duplicate => Err(Ambiguous),
        Lookup::Found(at) => match document.scalar(at) {
            Scalar::None => Ok(None),
            Scalar::NotUnicode => Err(Ambiguous),
            Scalar::Text(text) => Ok(Some(text.into_owned())),
        },
    }
}

/// Whether the outermost object of a document has something at a path of plain names.
fn has(document: &Document<'_>, path: &str) -> bool {
    Path::parse(path).is_ok_and(|path| document.lookup(document.root(), &path) != Lookup::Missing)
}

#[cfg(test)]
mod tests;
