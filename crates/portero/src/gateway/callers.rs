//! Whose tokens are believed.

use std::sync::Arc;

use anyhow::Context as _;
use portero_auth::{Issuer, JwksUrl, KeySource, TrustedIssuer, Verifier};

use crate::config::{Auth, IssuerConfig, Jwks};
use crate::local_issuer;

/// A verifier of all configured issuers. One that trusts nobody refuses everybody.
pub(crate) fn verifier(settings: &Auth) -> anyhow::Result<Arc<Verifier>> {
    let mut issuers: Vec<_> = settings.issuers.iter().map(trusted).collect();
    if let Some(path) = &settings.local_issuer_key_file {
        let issuer = Issuer::load(path, local_issuer::NAME, local_issuer::AUDIENCE).context(
            "the local issuer's key cannot be used; make one with `portero token mint --create-key`",
        )?;
        issuers.push(issuer.trusted());
    }
    if issuers.is_empty() {
        tracing::warn!(
            "no issuer is trusted, so every call is refused: set auth.issuers or auth.local_issuer_key_file"
        );
    }
    let verifier = Verifier::new(issuers).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("the settings of [auth] cannot be used: {}", problems.join("; "))
    })?;
    Ok(Arc::new(verifier))
}

fn trusted(config: &IssuerConfig) -> TrustedIssuer {
    let keys = match config.jwks.clone() {
        Jwks::File(path) => KeySource::File(path),
        Jwks::Url { url, ca_file, bearer_token_file } => {
            KeySource::Url(JwksUrl { url, ca_file, bearer_token_file })
        }
    };
    TrustedIssuer {
        issuer: config.issuer.clone(),
        audiences: config.audiences.clone(),
        algorithms: config.algorithms.clone(),
        keys,
        grants_in_token: config.grants_in_token,
        subjects: config.subjects.clone(),
    }
}
