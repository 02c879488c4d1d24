//! Amazon SNS: RSA under a certificate that the body names.
//!
//! The body is JSON, and its `Signature` is RSASSA-PKCS1-v1_5 over some of its members, each written as a line with its name
//! and a line with its value (<https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html>). Version 1
//! uses SHA-1, version 2 SHA-256. `SigningCertURL` counts only at SNS's own hosts. SNS publishes no window for the time.

use std::time::Duration;

use portero_types::limits::JSON_DEPTH_MAX;
use serde::Deserialize;

use super::{Ambiguous, Input, setting, text_at, url};
use crate::certificate::{Certificate, KeyPairAlgorithm};
use crate::compile::{Checked, invalid};
use crate::encoding::Encoding;
use crate::json::Document;
use crate::request::Fetch;
use crate::{Reason, Rejection, Request};

/// For how long a certificate may be kept: its name changes when it does.
const CERTIFICATE_KEPT: Duration = Duration::from_secs(3600);
/// Lengths of RSA signatures, bytes.
const SIGNATURE_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// The setting with the one topic that the source expects.
const TOPIC_SETTING: &str = "topic_arn";

/// What a recipe may say about SNS.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    /// The signature versions that count. A topic signs with version 1, which is SHA-1, unless it is told otherwise.
    #[serde(default = "both")]
    versions: Vec<u8>,
}

fn both() -> Vec<u8> {
    vec![1, 2]
}

impl Options {
    pub(super) fn check(&self, at: &str) -> Checked<()> {
        let is_known = |version: &u8| matches!(version, 1 | 2);
        if self.versions.is_empty() || !self.versions.iter().all(is_known) {
            return invalid(format!("{at}.versions"), "a list of 1 and 2");
        }
        Ok(())
    }

    /// The certificate that the message names.
    pub(super) fn fetch(&self, input: &Input<'_>) -> Result<Fetch, Rejection> {
        let message = Message::read(input.request, &self.versions)?;
        Ok(Fetch {
            cache_key: message.certificate_url.clone(),
            url: message.certificate_url,
            post_json: None,
            cache_for: CERTIFICATE_KEPT,
        })
    }

    /// Verifies the message under the certificate that was fetched.
    pub(super) fn verify(&self, input: &Input<'_>) -> Result<(), Rejection> {
        let message = Message::read(input.request, &self.versions)?;
        let invalid = |problem| {
            Rejection::new(
                Reason::FetchedKeyInvalid,
                format!("the certificate of SNS is not usable: {problem}"),
            )
        };
        let certificate = Certificate::from_pem(input.fetched("the certificate of SNS")?).map_err(invalid)?;
        let key = certificate.key_at(input.now).map_err(invalid)?;
        if key.verifies(message.algorithm, message.signed.as_bytes(), &message.signature) {
            Ok(())
        } else {
            Err(Rejection::new(
                Reason::SignatureMismatch,
                "the signature does not match the message's fields under the certificate of SNS",
            ))
        }
    }

    /// The confirmation of a subscription to the topic that the source expects. Messages of others
    /// are refused before: else anybody could subscribe it to a topic of theirs.
    pub(super) fn follow_up(&self, request: &Request<'_>) -> Option<Fetch> {
        let message = Message::read(request, &self.versions).ok()?;
        let url = message.subscribe_url.filter(|_| message.kind == Kind::Subscribe)?;
        let (host, rest) = url::pinned(&url)?;
        let same_host = url::pinned(&message.certificate_url).is_some_and(|(have, _)| have == host);
        let is_confirmation = rest.strip_prefix("/?").is_some_and(|query| {
            query.split('&').filter(|pair| pair.starts_with("Action=")).eq(["Action=ConfirmSubscription"])
        });
        (same_host && is_confirmation).then(|| Fetch {
            cache_key: url.clone(),
            url: url.clone(),
            post_json: None,
            cache_for: Duration::ZERO,
        })
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Notification,
    Subscribe,
    Unsubscribe,
}

impl Kind {
    /// The members that are signed, in order, and whether each must be there.
    const fn signed(self) -> &'static [(&'static str, bool)] {
        match self {
            Self::Notification => &[
                ("Message", true),
                ("MessageId", true),
                ("Subject", false),
                ("Timestamp", true),
                ("TopicArn", true),
                ("Type", true),
            ],
            Self::Subscribe | Self::Unsubscribe => &[
                ("Message", true),
                ("MessageId", true),
                ("SubscribeURL", true),
                ("Timestamp", true),
                ("Token", true),
                ("TopicArn", true),
                ("Type", true),
            ],
        }
    }
}

/// A message, read and not verified.
struct Message {
    kind: Kind,
    certificate_url: String,
    subscribe_url: Option<String>,
    algorithm: KeyPairAlgorithm,
    signature: Vec<u8>,
    signed: String,
}

impl Message {
    fn read(request: &Request<'_>, versions: &[u8]) -> Result<Self, Rejection> {
        let document = Document::parse(request.body.into(), JSON_DEPTH_MAX).map_err(|_| {
            Rejection::new(
                Reason::BodyMalformed,
                format!("the body is not JSON of at most {JSON_DEPTH_MAX} levels"),
            )
        })?;
        let kind = match required(&document, "Type", Reason::SignedPartMissing)?.as_str() {
            "Notification" => Kind::Notification,
            "SubscriptionConfirmation" => Kind::Subscribe,
            "UnsubscribeConfirmation" => Kind::Unsubscribe,
            _ => {
                return Err(Rejection::new(Reason::BodyMalformed, "the field 'Type' is none that SNS sends"));
            }
        };
        let topic = required(&document, "TopicArn", Reason::SignedPartMissing)?;
        // Amazon signs for all its customers with the same keys: only the topic tells the tenant's messages from a stranger's.
        if setting(request, TOPIC_SETTING)? != topic {
            return Err(Rejection::new(
                Reason::NotForThisSource,
                format!("the message comes from another topic than the setting '{TOPIC_SETTING}' says"),
            ));
        }
        let signature = required(&document, "Signature", Reason::SignatureMissing)?;
        let signature = Encoding::Base64
            .decode(signature.as_bytes())
            .filter(|signature| SIGNATURE_BYTES.contains(&signature.len()))
            .ok_or_else(|| {
                Rejection::new(
                    Reason::SignatureMalformed,
                    "the field 'Signature' is not base64 of an RSA signature",
                )
            })?;
        Ok(Self {
            kind,
            algorithm: algorithm(&document, versions)?,
            signature,
            signed: signed(&document, kind)?,
            certificate_url: certificate_url(&document)?,
            subscribe_url: optional(&document, "SubscribeURL")?,
        })
    }
}

/// The algorithm of the message's version, if that version counts.
fn algorithm(document: &Document<'_>, versions: &[u8]) -> Result<KeyPairAlgorithm, Rejection> {
    let version = required(document, "SignatureVersion", Reason::SignatureMissing)?;
    let (number, algorithm) = match version.as_str() {
        "1" => (1, KeyPairAlgorithm::RsaSha1),
        "2" => (2, KeyPairAlgorithm::RsaSha256),
        _ => {
            return Err(Rejection::new(
                Reason::SignatureMalformed,
                "the field 'SignatureVersion' is neither 1 nor 2",
            ));
        }
    };
    if !versions.contains(&number) {
        return Err(Rejection::new(
            Reason::SignatureMalformed,
            format!(
                "the message is signed by version {number}, which the recipe does not accept: set the topic's attribute SignatureVersion to {}",
                versions.iter().max().copied().unwrap_or(2)
            ),
        ));
    }
    Ok(algorithm)
}

/// The text that is signed.
fn signed(document: &Document<'_>, kind: Kind) -> Result<String, Rejection> {
    let mut text = String::new();
    for (name, must_be_there) in kind.signed() {
        let value = if *must_be_there {
            required(document, name, Reason::SignedPartMissing)?
        } else {
            match optional(document, name)? {
                Some(value) => value,
                None => continue,
            }
        };
        // Only the message may hold line ends; else the same signed text could be split in two ways.
        if *name != "Message" && value.contains(['\n', '\r']) {
            return Err(Rejection::new(
                Reason::BodyMalformed,
                format!("the field '{name}' holds a line end"),
            ));
        }
        for line in [name, value.as_str()] {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text)
}

/// The certificate's URL, if it is one of SNS's.
fn certificate_url(document: &Document<'_>) -> Result<String, Rejection> {
    let url = required(document, "SigningCertURL", Reason::SignedPartMissing)?;
    let is_certificate = url::pinned(&url).is_some_and(|(host, rest)| {
        let name =
            rest.strip_prefix("/SimpleNotificationService-").and_then(|rest| rest.strip_suffix(".pem"));
        is_sns(host) && name.is_some_and(|name| !name.is_empty() && !name.contains(['/', '?']))
    });
    if is_certificate {
        return Ok(url);
    }
    Err(Rejection::new(
        Reason::FetchedKeyInvalid,
        "the field 'SigningCertURL' is not https://sns.<region>.amazonaws.com/SimpleNotificationService-….pem",
    ))
}

/// Whether a host is SNS's own: `sns.<region>.amazonaws.com`, in China with `.cn` behind.
fn is_sns(host: &str) -> bool {
    let region = host
        .strip_suffix(".cn")
        .unwrap_or(host)
        .strip_suffix(".amazonaws.com")
        .and_then(|rest| rest.strip_prefix("sns."));
    region.is_some_and(is_region)
}

/// Whether a text is a region's name, such as `us-gov-west-1`. Other names in this place are those of other services, and the
/// name before them is their customer's to choose: `sns.s3-us-west-2` is a bucket.
fn is_region(text: &str) -> bool {
    let mut parts = text.rsplit('-');
    let is_number = parts
        .next()
        .is_some_and(|part| (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()));
    let is_word =
        |part: &&str| (2..=12).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_lowercase());
    let words: Vec<&str> = parts.collect();
    is_number && (2..=3).contains(&words.len()) && words.iter().all(is_word)
}

fn optional(document: &Document<'_>, name: &str) -> Result<Option<String>, Rejection> {
    text_at(document, name).map_err(|Ambiguous| {
        Rejection::new(
            Reason::BodyMalformed,
            format!("the field '{name}' is there more than once, or not a text"),
        )
    })
}

fn required(document: &Document<'_>, name: &str, missing: Reason) -> Result<String, Rejection> {
    optional(document, name)?
        .ok_or_else(|| Rejection::new(missing, format!("the body has no text in the field '{name}'")))
}

#[cfg(test)]
mod tests;
