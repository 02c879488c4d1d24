//! PayPal: RSA under a certificate that the request names.
//!
//! `PAYPAL-TRANSMISSION-SIG` is RSASSA-PKCS1-v1_5 with SHA-256 over `id|time|webhook id|crc`, where the CRC-32 of the body
//! is written in decimal (<https://developer.paypal.com/api/rest/webhooks/rest/#link-messagesignature>). The certificate
//! comes from `PAYPAL-CERT-URL`, which counts only at PayPal's own hosts. PayPal publishes no window for the time.

use std::time::Duration;

use serde::Deserialize;

use super::{Input, header, setting, url};
use crate::certificate::{Certificate, KeyPairAlgorithm};
use crate::encoding::Encoding;
use crate::request::Fetch;
use crate::{Reason, Rejection, Request};

/// PayPal's hosts, live and sandbox. An event of the sandbox does not pass for a live one: it carries another webhook id.
const HOSTS: [&str; 4] =
    ["api.paypal.com", "api-m.paypal.com", "api.sandbox.paypal.com", "api-m.sandbox.paypal.com"];
const CERTIFICATE_PATH: &str = "/v1/notifications/certs/";
/// The one algorithm.
const ALGORITHM: &str = "SHA256withRSA";
/// For how long a certificate may be kept: its name changes when it does.
const CERTIFICATE_KEPT: Duration = Duration::from_secs(3600);
/// Lengths of RSA signatures, bytes.
const SIGNATURE_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// PayPal has no options.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {}

/// The certificate that the request names.
pub(super) fn fetch(input: &Input<'_>) -> Result<Fetch, Rejection> {
    let transmission = Transmission::read(input.request)?;
    Ok(Fetch {
        url: transmission.certificate_url.to_owned(),
        post_json: None,
        cache_key: transmission.certificate_url.to_owned(),
        cache_for: CERTIFICATE_KEPT,
    })
}

/// Verifies the request under the certificate that was fetched.
pub(super) fn verify(input: &Input<'_>) -> Result<(), Rejection> {
    let transmission = Transmission::read(input.request)?;
    let certificate = Certificate::from_pem(input.fetched("PayPal's certificate")?);
    let invalid = |problem| {
        Rejection::new(Reason::FetchedKeyInvalid, format!("PayPal's certificate is not usable: {problem}"))
    };
    let certificate = certificate.map_err(invalid)?;
    let key = certificate.key_at(input.now).map_err(invalid)?;
    let message = transmission.message(input.request.body);
    if key.verifies(KeyPairAlgorithm::RsaSha256, message.as_bytes(), &transmission.signature) {
        Ok(())
    } else {
        Err(Rejection::new(
            Reason::SignatureMismatch,
            "the signature does not match the body, the transmission's id and time, and the setting 'webhook_id'",
        ))
    }
}

/// What the request's headers say.
struct Transmission<'a> {
    id: &'a str,
    time: &'a str,
    webhook_id: &'a str,
    certificate_url: &'a str,
    signature: Vec<u8>,
}

impl<'a> Transmission<'a> {
    fn read(request: &Request<'a>) -> Result<Self, Rejection> {
        let signature = header(request, "paypal-transmission-sig", Reason::SignatureMissing)?;
        let id = header(request, "paypal-transmission-id", Reason::SignedPartMissing)?;
        let time = header(request, "paypal-transmission-time", Reason::TimestampMissing)?;
        if header(request, "paypal-auth-algo", Reason::SignedPartMissing)? != ALGORITHM {
            return Err(Rejection::new(
                Reason::SignatureMalformed,
                format!("the header 'paypal-auth-algo' is not {ALGORITHM}"),
            ));
        }
        // Else the same signed text could be split in two ways.
        if id.contains('|') || time.contains('|') {
            return Err(Rejection::new(
                Reason::SignatureMalformed,
                "the transmission's id or time holds a '|'",
            ));
        }
        let signature = Encoding::Base64
            .decode(signature.as_bytes())
            .filter(|signature| SIGNATURE_BYTES.contains(&signature.len()))
            .ok_or_else(|| {
                Rejection::new(
                    Reason::SignatureMalformed,
                    "the header 'paypal-transmission-sig' is not base64 of an RSA signature",
                )
            })?;
        Ok(Self {
            id,
            time,
            webhook_id: setting(request, "webhook_id")?,
            certificate_url: certificate_url(request)?,
            signature,
        })
    }

    fn message(&self, body: &[u8]) -> String {
        format!("{}|{}|{}|{}", self.id, self.time, self.webhook_id, crc32fast::hash(body))
    }
}

/// The certificate's URL, if it is one of PayPal's.
fn certificate_url<'a>(request: &Request<'a>) -> Result<&'a str, Rejection> {
    let url = header(request, "paypal-cert-url", Reason::SignedPartMissing)?;
    let is_certificate = url::pinned(url).is_some_and(|(host, rest)| {
        HOSTS.contains(&host)
            && rest
                .strip_prefix(CERTIFICATE_PATH)
                .is_some_and(|name| !name.is_empty() && !name.contains(['/', '?']))
    });
    is_certificate.then_some(url).ok_or_else(|| {
        Rejection::new(
            Reason::FetchedKeyInvalid,
            format!(
                "the header 'paypal-cert-url' is not https://{}{CERTIFICATE_PATH}… or the same at another of PayPal's hosts",
                HOSTS[0]
            ),
        )
    })
}

#[cfg(test)]
mod tests;
