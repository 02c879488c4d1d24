//! From a bearer token to a caller.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use portero_types::{Clock, SubjectPattern, Timestamp};

use crate::cache::KeyCache;
use crate::caller::is_subject;
use crate::jwks::VerifyKey;
use crate::source::InvalidSource;
use crate::token::{Claims, GrantClaim, Unverified};
use crate::{Algorithm, Caller, Claimed, Grant, KeySource, Reason, metrics};

/// How far the issuer's clock and ours may differ: added to `exp`, taken from `nbf` and `iat`.
pub const LEEWAY: Duration = Duration::from_secs(30);

/// Longest issuer name and audience, bytes.
const NAME_BYTES_MAX: usize = 1024;

/// How often [`Verifier::run`] looks whether an issuer is due.
const TICK: Duration = Duration::from_secs(1);

/// An issuer whose tokens are accepted.
#[derive(Clone, Debug)]
pub struct TrustedIssuer {
    /// `iss`, compared byte by byte.
    pub issuer: String,
    /// Names of this installation; one of them must be in `aud`. At least one.
    pub audiences: Vec<String>,
    /// The algorithms that it may use. At least one.
    pub algorithms: Vec<Algorithm>,
    /// Its public keys.
    pub keys: KeySource,
    /// Whether the claim `portero` of its tokens is a grant: only for issuers that we run, or whose claims we control.
    /// Otherwise the claim is ignored.
    pub grants_in_token: bool,
    /// What its subjects may do, whatever their tokens say: for issuers that know nothing of us, such as Kubernetes.
    pub subjects: Vec<(SubjectPattern, Grant)>,
}

/// Why a verifier cannot be made of this configuration. Names the issuer as configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("issuer {issuer:?}: {problem}")]
pub struct InvalidIssuer {
    /// The issuer's configured name.
    pub issuer: String,
    /// What is wrong, as a sentence.
    pub problem: String,
}

/// Checks tokens of one or more issuers. Cheap to share behind an [`Arc`].
pub struct Verifier {
    issuers: HashMap<String, Issuer>,
}

struct Issuer {
    audiences: Vec<String>,
    algorithms: Vec<Algorithm>,
    grants_in_token: bool,
    subjects: Vec<(SubjectPattern, Grant)>,
    keys: KeyCache,
}

impl Verifier {
    /// Checks the configuration and prepares the issuers. Reads no keys yet, except inline ones: call [`Self::refresh_due`]
    /// once at start, and let [`Self::run`] go on.
    ///
    /// A source with a URL needs a process-wide rustls provider, installed by the caller before.
    ///
    /// # Errors
    /// Every problem of every issuer.
    pub fn new(issuers: Vec<TrustedIssuer>) -> Result<Self, Vec<InvalidIssuer>> {
        let mut prepared = HashMap::new();
        let mut problems = Vec::new();
        for config in issuers {
            let name = config.issuer.clone();
            match prepare(config) {
                Ok(issuer) if !prepared.contains_key(&name) => drop(prepared.insert(name, issuer)),
                Ok(_) => problems
                    .push(InvalidIssuer { issuer: name, problem: "it is configured twice".to_owned() }),
                Err(found) => problems
                    .extend(found.into_iter().map(|problem| InvalidIssuer { issuer: name.clone(), problem })),
            }
        }
        if problems.is_empty() { Ok(Self { issuers: prepared }) } else { Err(problems) }
    }

    /// Who holds this token (without the word `Bearer`), and what the token and the configuration grant: perhaps nothing.
    ///
    /// A key id that is not known makes the issuer's keys be read again, at most once per interval of its source; then
    /// this takes up to the fetch's time-out of 5 seconds. Otherwise it waits for nothing. Cancel-safe.
    ///
    /// # Errors
    /// The first [`Reason`] that applies, in the order of that type.
    pub async fn verify(&self, token: &str, now: Timestamp) -> Result<Caller, Reason> {
        let outcome = self.check(token, now).await;
        metrics::token(outcome.as_ref().map_or_else(|reason| reason.code(), |_| "ok"));
        outcome
    }

    async fn check(&self, token: &str, now: Timestamp) -> Result<Caller, Reason> {
        let token = Unverified::parse(token)?;
        let (name, issuer) = token
            .claims
            .iss
            .as_ref()
            .and_then(|iss| self.issuers.get_key_value(iss))
            .ok_or(Reason::IssuerUnknown)?;
        if !issuer.algorithms.contains(&token.algorithm) {
            return Err(Reason::AlgorithmNotAllowed);
        }
        let kid = token.key_id.as_deref().ok_or(Reason::KeyIdMissing)?;
        issuer.check_signature(&token, kid, now).await?;
        // From here on the claims are the issuer's own words.
        issuer.check_claims(&token.claims, now)?;
        issuer.caller(name, token.claims)
    }

    /// Whether an issuer of this name is configured.
    #[must_use]
    pub fn trusts(&self, issuer: &str) -> bool {
        self.issuers.contains_key(issuer)
    }

    /// Reads the keys of every issuer that is due, one after the other. Failures are logged and counted; the last good keys
    /// stay. Cancel-safe.
    pub async fn refresh_due(&self, now: Timestamp) {
        for issuer in self.issuers.values() {
            issuer.keys.refresh_when_due(now).await;
        }
    }

    /// Keeps the keys fresh until it is dropped. Cancel-safe; run it in a supervised task.
    pub async fn run(self: Arc<Self>, clock: Arc<dyn Clock>) {
        loop {
            self.refresh_due(clock.now()).await;
            tokio::time::sleep(TICK).await;
        }
    }

    /// Whether every issuer has keys, so that no valid token is refused for want of them.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.issuers.values().all(|issuer| issuer.keys.known().is_some())
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("issuers", &self.issuers.keys().collect::<Vec<_>>()).finish()
    }
}

fn prepare(config: TrustedIssuer) -> Result<Issuer, Vec<String>> {
    let mut problems = Vec::new();
    let is_name = |text: &String| (1..=NAME_BYTES_MAX).contains(&text.len());
    if !is_name(&config.issuer) {
        problems.push(format!("its name must have 1 to {NAME_BYTES_MAX} bytes"));
    }
    if config.audiences.is_empty() || !config.audiences.iter().all(is_name) {
        problems.push(format!("it needs at least one audience, each of 1 to {NAME_BYTES_MAX} bytes"));
    }
    if config.algorithms.is_empty() {
        problems.push("it needs at least one algorithm".to_owned());
    }
    for (subject, grant) in &config.subjects {
        if let Err(invalid) = grant.check() {
            problems.push(format!("its subject {subject}: {invalid}"));
        }
    }
    let keys = match KeyCache::new(config.issuer, config.keys) {
        Ok(keys) if problems.is_empty() => keys,
        Ok(_) => return Err(problems),
        Err(invalid) => {
            problems.push(InvalidSource::to_string(&invalid));
            return Err(problems);
        }
    };
    let TrustedIssuer { audiences, algorithms, grants_in_token, subjects, .. } = config;
    Ok(Issuer { audiences, algorithms, grants_in_token, subjects, keys })
}

impl Issuer {
    async fn check_signature(&self, token: &Unverified<'_>, kid: &str, now: Timestamp) -> Result<(), Reason> {
        let knows = |cache: &KeyCache| cache.known().is_some_and(|keys| keys.of(kid).is_some());
        if !knows(&self.keys) {
            self.keys.refresh_for_unknown(now).await;
        }
        let keys = self.keys.known().ok_or(Reason::KeysUnavailable)?;
        let Some(candidates) = keys.of(kid) else {
            let may_be_new = self.keys.is_failing().await;
            return Err(if may_be_new { Reason::KeysUnavailable } else { Reason::KeyUnknown });
        };
        if !candidates.iter().any(|key| key.can(token.algorithm)) {
            return Err(Reason::AlgorithmNotAllowed);
        }
        let verifies = |key: &VerifyKey| key.verifies(token.algorithm, token.signed, token.signature);
        if candidates.iter().any(verifies) { Ok(()) } else { Err(Reason::SignatureMismatch) }
    }

    fn check_claims(&self, claims: &Claims, now: Timestamp) -> Result<(), Reason> {
        if !claims.aud.as_ref().is_some_and(|aud| aud.has_any(&self.audiences)) {
            return Err(Reason::AudienceWrong);
        }
        let expires = claims.exp.as_ref().ok_or(Reason::ExpiryMissing)?;
        if now >= expires.0.plus(LEEWAY) {
            return Err(Reason::Expired);
        }
        let begins = [&claims.nbf, &claims.iat];
        if begins.into_iter().flatten().any(|begin| begin.0.minus(LEEWAY) > now) {
            return Err(Reason::NotYetValid);
        }
        Ok(())
    }

    fn caller(&self, name: &str, claims: Claims) -> Result<Caller, Reason> {
        let expires_at = claims.exp.ok_or(Reason::ExpiryMissing)?.0;
        let subject = claims.sub.filter(|sub| is_subject(sub)).ok_or(Reason::ClaimsMalformed)?;
        let configured = self.subjects.iter().filter(|(pattern, _)| pattern.matches(&subject));
        let grants = configured.map(|(_, grant)| grant.clone()).collect();
        let claim = claims.portero.filter(|_| self.grants_in_token).map(GrantClaim::grant).transpose()?;
        let issued_at = claims.iat.map(|iat| iat.0);
        let claimed = claim.map(|grant| Claimed { grant, issued_at });
        Ok(Caller { issuer: name.to_owned(), subject, expires_at, grants, claimed })
    }
}
