//! `[auth]`: whose tokens are believed.

use std::path::PathBuf;

use super::Reader;

/// Where an issuer's public keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Jwks {
    /// Fetched and refreshed.
    Url(String),
    /// Read and re-read.
    File(PathBuf),
}

/// One issuer.
#[derive(Clone, Debug)]
pub(crate) struct IssuerConfig {
    /// The `iss` claim.
    pub(crate) issuer: String,
    /// The `aud` claim that its tokens must carry.
    pub(crate) audience: String,
    pub(crate) jwks: Jwks,
    /// Accepted algorithms, such as `RS256`, `ES256`, `EdDSA`.
    pub(crate) algorithms: Vec<String>,
}

/// `[auth]`.
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    pub(crate) issuers: Vec<IssuerConfig>,
    /// Key file of the local issuer (`portero token`), whose tokens are believed too.
    pub(crate) local_issuer_key_file: Option<PathBuf>,
}

impl Auth {
    pub(super) fn read(section: &mut Reader) -> Self {
        let issuers = section.sections("issuers").iter_mut().filter_map(read_issuer).collect();
        Self { issuers, local_issuer_key_file: section.optional_path("local_issuer_key_file") }
    }
}

fn read_issuer(section: &mut Reader) -> Option<IssuerConfig> {
    let issuer = section.optional::<String>("issuer");
    let audience = section.text("audience", "portero");
    let url = section.optional::<String>("jwks_url");
    let file = section.optional_path("jwks_file");
    let algorithms = section.list("algorithms", &["RS256", "ES256", "EdDSA"]);
    let jwks = match (url, file) {
        (Some(url), None) if url.starts_with("https://") || url.starts_with("http://") => {
            Some(Jwks::Url(url))
        }
        (None, Some(file)) => Some(Jwks::File(file)),
        (Some(_), None) => {
            section.problem("jwks_url", "must begin with https:// or http://");
            None
        }
        _ => {
            section.problem("jwks_url", "or jwks_file must be given, and not both");
            None
        }
    };
    if issuer.is_none() {
        section.problem("issuer", "must be given");
    }
    Some(IssuerConfig { issuer: issuer?, audience, jwks: jwks?, algorithms })
}
