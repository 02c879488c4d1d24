//! The local issuer: signs tokens with an Ed25519 key.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey};
use portero_types::limits::SUBJECT_BYTES_MAX;
use portero_types::{Redacted, Timestamp};
use sha2::{Digest, Sha256};

use crate::caller::is_subject;
use crate::{Algorithm, Grant, InvalidGrant, KeySource, TrustedIssuer};

/// Longest life of a token minted here: one year and a day. There is no revocation of single tokens, only of the key.
pub const LIFETIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// A token to be minted.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Who gets it: 1 to [`SUBJECT_BYTES_MAX`] bytes without control characters.
    pub subject: String,
    /// What its holder may do by this token alone. With `None` the token only says who its holder is, and stored grants say
    /// what it may do: they can be taken back before the token ends.
    pub grant: Option<Grant>,
    /// How long it lives from now: 1 second to [`LIFETIME_MAX`]; fractions of a second are cut.
    pub lifetime: Duration,
}

/// A minted token.
#[derive(Clone, Debug)]
pub struct Minted {
    /// The token. Whoever holds it is its subject.
    pub token: Redacted<String>,
    /// Its `jti`, to find it again in logs; not secret.
    pub id: String,
    /// Its `exp`.
    pub expires_at: Timestamp,
}

/// Why a token is not minted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The subject breaks its rule.
    #[error("a subject must have 1 to {SUBJECT_BYTES_MAX} bytes and no control characters")]
    Subject,
    /// The life is too short or too long.
    #[error("a token lives at least one second and at most 366 days")]
    Lifetime,
    /// The grant makes no sense.
    #[error(transparent)]
    Grant(#[from] InvalidGrant),
}

/// Signs tokens in the name of one issuer for one audience. The key is wiped on drop; Debug shows its id only.
#[derive(Clone)]
pub struct Issuer {
    pub(crate) key: SigningKey,
    key_id: String,
    name: String,
    audience: String,
}

#[derive(serde::Serialize)]
struct Header<'a> {
    alg: &'static str,
    typ: &'static str,
    kid: &'a str,
}

#[derive(serde::Serialize)]
struct Claims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    iat: i64,
    nbf: i64,
    exp: i64,
    jti: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    portero: Option<&'a Grant>,
}

impl Issuer {
    /// A new key from fresh random bytes of a cryptographically secure source. `name` becomes `iss`, `audience` becomes `aud`.
    #[must_use]
    pub fn generate(name: &str, audience: &str, random: [u8; 32]) -> Self {
        Self::from_key(name, audience, SigningKey::from_bytes(&zeroize::Zeroizing::new(random)))
    }

    pub(crate) fn from_key(name: &str, audience: &str, key: SigningKey) -> Self {
        let key_id = thumbprint(&public_part(&key));
        Self { key, key_id, name: name.to_owned(), audience: audience.to_owned() }
    }

    /// The `kid` of its tokens: the key's thumbprint (RFC 7638).
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Signs a token that is valid from now on. `random` makes its `jti` unique.
    ///
    /// # Errors
    /// [`MintError`] when the subject, the life or the grant breaks its rule.
    pub fn mint(&self, new: &NewToken, now: Timestamp, random: u128) -> Result<Minted, MintError> {
        let subject = &new.subject;
        if !is_subject(subject) {
            return Err(MintError::Subject);
        }
        if !(Duration::from_secs(1)..=LIFETIME_MAX).contains(&new.lifetime) {
            return Err(MintError::Lifetime);
        }
        new.grant.as_ref().map_or(Ok(()), Grant::check)?;
        let iat = now.as_secs();
        let exp = Timestamp::from_secs(iat).plus(new.lifetime).as_secs();
        let id = format!("{random:032x}");
        let header = Header { alg: Algorithm::EdDsa.name(), typ: "JWT", kid: &self.key_id };
        let claims = Claims {
            iss: &self.name,
            aud: &self.audience,
            sub: subject,
            iat,
            nbf: iat,
            exp,
            jti: &id,
            portero: new.grant.as_ref(),
        };
        let mut token = format!("{}.{}", encode(&header), encode(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(token.as_bytes()).to_bytes());
        token.push('.');
        token.push_str(&signature);
        Ok(Minted { token: Redacted::new(token), id, expires_at: Timestamp::from_secs(exp) })
    }

    /// Its public key as a key set document (RFC 7517): what verifiers elsewhere are given.
    #[must_use]
    pub fn jwks(&self) -> String {
        serde_json::json!({ "keys": [{
            "kty": "OKP",
            "crv": "Ed25519",
            "x": public_part(&self.key),
            "kid": self.key_id,
            "alg": Algorithm::EdDsa.name(),
            "use": "sig",
        }] })
        .to_string()
    }

    /// How a verifier trusts this issuer.
    #[must_use]
    pub fn trusted(&self) -> TrustedIssuer {
        TrustedIssuer {
            issuer: self.name.clone(),
            audiences: vec![self.audience.clone()],
            algorithms: vec![Algorithm::EdDsa],
            keys: KeySource::Inline(self.jwks()),
            grants_in_token: true,
            subjects: Vec::new(),
        }
    }
}

fn encode(part: &impl serde::Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(part).expect("invariant: texts and numbers serialise"))
}

fn public_part(key: &SigningKey) -> String {
    URL_SAFE_NO_PAD.encode(key.verifying_key().as_bytes())
}

/// RFC 7638 with the members that RFC 8037 appendix A.3 names for this kind of key, in their required order.
fn thumbprint(x: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#)))
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer")
            .field("name", &self.name)
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thumbprint_is_that_of_rfc_8037() {
        assert_eq!(
            thumbprint("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
    }

    #[test]
    fn tokens_that_nobody_could_use_are_not_minted() {
        let issuer = Issuer::generate("portero", "portero", [1; 32]);
        let good = NewToken {
            subject: "ops".into(),
            grant: Some(Grant::platform_admin()),
            lifetime: Duration::from_secs(60),
        };
        let mint = |new: NewToken| issuer.mint(&new, Timestamp::EPOCH, 1).err();
        assert_eq!(mint(good.clone()), None);
        assert_eq!(mint(NewToken { subject: String::new(), ..good.clone() }), Some(MintError::Subject));
        assert_eq!(mint(NewToken { subject: "a\nb".into(), ..good.clone() }), Some(MintError::Subject));
        assert_eq!(mint(NewToken { lifetime: Duration::ZERO, ..good.clone() }), Some(MintError::Lifetime));
        assert_eq!(mint(NewToken { lifetime: LIFETIME_MAX * 2, ..good.clone() }), Some(MintError::Lifetime));
        assert_eq!(
            mint(NewToken { grant: Some(Grant::consumer(Vec::new())), ..good }),
            Some(MintError::Grant(InvalidGrant::NoSubscriptions))
        );
    }

    #[test]
    fn debug_shows_neither_key_nor_token() {
        let issuer = Issuer::generate("portero", "portero", [0xAB; 32]);
        let minted = issuer
            .mint(
                &NewToken {
                    subject: "ops".into(),
                    grant: Some(Grant::platform_admin()),
                    lifetime: Duration::from_secs(60),
                },
                Timestamp::EPOCH,
                1,
            )
            .expect("good");
        assert!(!format!("{minted:?}").contains(minted.token.expose_secret()));
        assert!(!format!("{issuer:?}").contains("171"));
    }
}
