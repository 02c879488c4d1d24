//! `[auth]`: whose tokens are believed, and what their holders may do by configuration.

use std::path::PathBuf;

use portero_auth::{Algorithm, Grant, Role};
use portero_types::{SubjectPattern, SubscriptionId, TenantId};

use super::Reader;

/// Where an issuer's public keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Jwks {
    /// Fetched and refreshed.
    Url {
        url: String,
        /// Certificates to trust for it instead of the system's.
        ca_file: Option<PathBuf>,
        /// A token to send with each request: Kubernetes wants one.
        bearer_token_file: Option<PathBuf>,
    },
    /// Read and re-read.
    File(PathBuf),
}

/// One issuer.
#[derive(Clone, Debug)]
pub(crate) struct IssuerConfig {
    /// The `iss` claim.
    pub(crate) issuer: String,
    /// Its tokens must name one of these in their `aud` claim.
    pub(crate) audiences: Vec<String>,
    pub(crate) jwks: Jwks,
    /// Accepted algorithms.
    pub(crate) algorithms: Vec<Algorithm>,
    /// Whether the claim `portero` of its tokens is believed.
    pub(crate) grants_in_token: bool,
    /// What its subjects may do, whatever their tokens say.
    pub(crate) subjects: Vec<(SubjectPattern, Grant)>,
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
    if issuer.as_ref().is_none_or(String::is_empty) {
        section.problem("issuer", "must be given");
    }
    let audiences = read_audiences(section);
    let jwks = read_jwks(section);
    let algorithms = read_algorithms(section);
    let grants_in_token = section.or("grants_in_token", false);
    let subjects = section.sections("subjects").iter_mut().filter_map(read_subject).collect();
    Some(IssuerConfig { issuer: issuer?, audiences, jwks: jwks?, algorithms, grants_in_token, subjects })
}

/// `audience` for one, `audiences` for several: a name may hold a comma, so the list is no text with commas.
fn read_audiences(section: &mut Reader) -> Vec<String> {
    let one = section.optional::<String>("audience");
    let several = section.list("audiences", &[]);
    match (one, several.is_empty()) {
        (Some(one), true) => vec![one],
        (None, true) => vec!["portero".to_owned()],
        (None, false) => several,
        (Some(_), false) => {
            section.problem("audience", "or audiences may be given, and not both");
            several
        }
    }
}

fn read_jwks(section: &mut Reader) -> Option<Jwks> {
    let url = section.optional::<String>("jwks_url");
    let file = section.optional_path("jwks_file");
    let ca_file = section.optional_path("ca_file");
    let bearer_token_file = section.optional_path("bearer_token_file");
    match (url, file) {
        (Some(url), None) if url.starts_with("https://") || url.starts_with("http://") => {
            Some(Jwks::Url { url, ca_file, bearer_token_file })
        }
        (None, Some(file)) => {
            for (name, given) in [("ca_file", &ca_file), ("bearer_token_file", &bearer_token_file)] {
                if given.is_some() {
                    section.problem(name, "goes with jwks_url: a file is read without it");
                }
            }
            Some(Jwks::File(file))
        }
        (Some(_), None) => {
            section.problem("jwks_url", "must begin with https:// or http://");
            None
        }
        _ => {
            section.problem("jwks_url", "or jwks_file must be given, and not both");
            None
        }
    }
}

fn read_algorithms(section: &mut Reader) -> Vec<Algorithm> {
    let names = section.list("algorithms", &["RS256", "ES256", "EdDSA"]);
    if names.is_empty() {
        section.problem("algorithms", "must name at least one");
    }
    let mut algorithms = Vec::with_capacity(names.len());
    for name in names {
        match name.parse() {
            Ok(algorithm) => algorithms.push(algorithm),
            Err(unknown) => section.problem("algorithms", format!("names {name:?}: {unknown}")),
        }
    }
    algorithms
}

fn read_subject(section: &mut Reader) -> Option<(SubjectPattern, Grant)> {
    let subject = read_id(section, "subject", SubjectPattern::new);
    let role = section.optional::<String>("role");
    let tenant =
        section.optional::<String>("tenant").and_then(|text| checked(section, "tenant", TenantId::new(text)));
    let subscriptions = section.list("subscriptions", &[]);
    let subscriptions = subscriptions
        .into_iter()
        .filter_map(|text| checked(section, "subscriptions", SubscriptionId::new(text)))
        .collect();
    let role = match role.as_deref().map(str::parse::<Role>) {
        Some(Ok(role)) => role,
        Some(Err(unknown)) => {
            section.problem("role", format!("is not known: {unknown}"));
            return None;
        }
        None => {
            section.problem("role", "must be given");
            return None;
        }
    };
    let grant = Grant { role, tenant, subscriptions };
    if let Err(invalid) = grant.check() {
        section.problem("role", format!("does not fit the rest: {invalid}"));
        return None;
    }
    Some((subject?, grant))
}

fn read_id<T>(
    section: &mut Reader,
    name: &str,
    parse: impl FnOnce(String) -> Result<T, portero_types::InvalidId>,
) -> Option<T> {
    match section.optional::<String>(name) {
        Some(text) => checked(section, name, parse(text)),
        None => {
            section.problem(name, "must be given");
            None
        }
    }
}

fn checked<T>(section: &Reader, name: &str, parsed: Result<T, portero_types::InvalidId>) -> Option<T> {
    match parsed {
        Ok(value) => Some(value),
        Err(invalid) => {
            section.problem(name, format!("must be {}", invalid.rule));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Sources};
    use super::*;

    fn auth(issuer: &str) -> Result<Auth, String> {
        let file = format!("[[auth.issuers]]\n{issuer}");
        let loaded = Config::load(&Sources::for_test(&file, &[]));
        loaded.map(|config| config.auth).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_clusters_issuer_is_read_with_its_files_and_subjects() {
        let auth = auth(
            r#"
            issuer = "https://kubernetes.default.svc.cluster.local"
            audiences = ["portero", "https://portero.example"]
            jwks_url = "https://kubernetes.default.svc/openid/v1/jwks"
            ca_file = "/ca.crt"
            bearer_token_file = "/token"
            algorithms = ["RS256"]
            subjects = [
                { subject = "system:serviceaccount:shop:billing", role = "consumer", subscriptions = ["billing"] },
                { subject = "system:serviceaccount:shop:*", role = "viewer", tenant = "acme" },
            ]
            "#,
        )
        .expect("valid");
        let issuer = &auth.issuers[0];
        assert_eq!(issuer.audiences, ["portero", "https://portero.example"]);
        assert_eq!(
            issuer.jwks,
            Jwks::Url {
                url: "https://kubernetes.default.svc/openid/v1/jwks".to_owned(),
                ca_file: Some("/ca.crt".into()),
                bearer_token_file: Some("/token".into()),
            }
        );
        assert!(!issuer.grants_in_token, "nobody's claims are believed unless that is said");
        let billing = SubscriptionId::new("billing").expect("valid");
        assert_eq!(issuer.subjects[0].1, Grant::consumer(vec![billing]));
        assert_eq!(issuer.subjects[1].0.prefix(), Some("system:serviceaccount:shop:"));
    }

    #[test]
    fn every_mistake_is_named_where_it_is() {
        let rows = [
            ("jwks_file = \"j\"", "auth.issuers[0].issuer must be given"),
            ("issuer = \"i\"", "auth.issuers[0].jwks_url or jwks_file must be given"),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nca_file = \"c\"",
                "auth.issuers[0].ca_file goes with jwks_url",
            ),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nalgorithms = [\"HS256\"]",
                "auth.issuers[0].algorithms names \"HS256\"",
            ),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nalgorithms = []",
                "auth.issuers[0].algorithms must name at least one",
            ),
            ("issuer = \"i\"\njwks_file = \"j\"\naudience = \"a\"\naudiences = [\"b\"]", "not both"),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nsubjects = [{ role = \"viewer\" }]",
                "subjects[0].subject must be given",
            ),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nsubjects = [{ subject = \"*\", role = \"viewer\" }]",
                "subjects[0].subject must be",
            ),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nsubjects = [{ subject = \"s\", role = \"admin\" }]",
                "subjects[0].role is not known",
            ),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nsubjects = [{ subject = \"s\", role = \"tenant-admin\" }]",
                "must name its tenant",
            ),
            (
                "issuer = \"i\"\njwks_file = \"j\"\nsubjects = [{ subject = \"s\", role = \"viewer\", tenant = \"A\" }]",
                "subjects[0].tenant must be",
            ),
        ];
        for (issuer, expected) in rows {
            let problems = auth(issuer).expect_err(issuer);
            assert!(problems.contains(expected), "{expected:?} is missing in:\n{problems}");
        }
    }
}
