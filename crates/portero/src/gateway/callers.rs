//! Whose tokens are believed.

use std::sync::Arc;

use anyhow::Context as _;
use portero_auth::{Grants, Issuer, JwksUrl, KeySource, TrustedIssuer, Verifier};

use crate::config::{Auth, IssuerConfig, Jwks};
use crate::local_issuer;

/// A verifier of all configured issuers. One that trusts nobody refuses everybody.
pub(crate) fn verifier(settings: &Auth) -> anyhow::Result<Arc<Verifier>> {
    let mut issuers = settings.issuers.iter().map(trusted).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(path) = &settings.local_issuer_key_file {
        let issuer = Issuer::load(path, local_issuer::NAME, local_issuer::AUDIENCE)
            .context("the local issuer's key cannot be used; make one with `portero token --create-key`")?;
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

fn trusted(config: &IssuerConfig) -> anyhow::Result<TrustedIssuer> {
    let algorithms = config
        .algorithms
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()
        .with_context(|| format!("the algorithms of issuer {:?} cannot be used", config.issuer))?;
    let keys = match &config.jwks {
        Jwks::File(path) => KeySource::File(path.clone()),
        Jwks::Url(url) => {
            KeySource::Url(JwksUrl { url: url.clone(), ca_file: None, bearer_token_file: None })
        }
    };
    Ok(TrustedIssuer {
        issuer: config.issuer.clone(),
        audiences: vec![config.audience.clone()],
        algorithms,
        keys,
        grants: Grants::FromToken,
    })
}
