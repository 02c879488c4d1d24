//! A compact JWT taken apart (RFC 7515 section 3.1). Nothing here is verified.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portero_types::Timestamp;
use serde::Deserialize;

use crate::{Algorithm, Grant, Reason};

/// Longest token that is looked at, bytes. Tokens of identity providers and Kubernetes are 1 to 3 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Latest moment that a claim may name: far beyond any token, and safe to calculate with (year 9999).
const SECS_MAX: i64 = 253_402_300_799;

/// The parts of a token, with the header's choice of key and algorithm.
pub(crate) struct Unverified<'a> {
    /// What was signed: the first two parts and the dot between them.
    pub(crate) signed: &'a str,
    /// The third part, still in base64url.
    pub(crate) signature: &'a str,
    pub(crate) algorithm: Algorithm,
    pub(crate) key_id: Option<String>,
    pub(crate) claims: Claims,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Header fields that the receiver must understand (RFC 7515 section 4.1.11). None are understood here, `b64` neither.
    crit: Option<serde::de::IgnoredAny>,
    b64: Option<bool>,
}

/// The claims that are read. A repeated one makes the token malformed, as a repeated header field does.
#[derive(Deserialize)]
pub(crate) struct Claims {
    pub(crate) iss: Option<String>,
    pub(crate) sub: Option<String>,
    pub(crate) aud: Option<Audience>,
    pub(crate) exp: Option<NumericDate>,
    pub(crate) nbf: Option<NumericDate>,
    pub(crate) iat: Option<NumericDate>,
    pub(crate) portero: Option<GrantClaim>,
}

/// One audience or several (RFC 7519 section 4.1.3).
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Audience {
    One(String),
    Several(Vec<String>),
}

/// The claim `portero`, which not every issuer may make: what is wrong with it is found when it is used.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum GrantClaim {
    Object(Members),
    Other(serde::de::IgnoredAny),
}

impl GrantClaim {
    /// The grant; one that is not understood as a whole is none.
    pub(crate) fn grant(self) -> Result<Grant, Reason> {
        let Self::Object(Members(members)) = self else { return Err(Reason::GrantMalformed) };
        let mut object = serde_json::Map::new();
        for (name, value) in members {
            // Which of two would count is a matter of taste, so neither does.
            if object.insert(name, value).is_some() {
                return Err(Reason::GrantMalformed);
            }
        }
        let grant: Grant = serde_json::from_value(object.into()).map_err(|_| Reason::GrantMalformed)?;
        grant.check().map(|()| grant).map_err(|_| Reason::GrantMalformed)
    }
}

/// The members of an object as they are there, repeated ones too.
pub(crate) struct Members(Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl Audience {
    pub(crate) fn has_any(&self, ours: &[String]) -> bool {
        match self {
            Self::One(audience) => ours.contains(audience),
            Self::Several(audiences) => audiences.iter().any(|audience| ours.contains(audience)),
        }
    }
}

/// Seconds since the epoch, fractions allowed (RFC 7519 section 2).
#[derive(Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct NumericDate(pub(crate) Timestamp);

impl TryFrom<f64> for NumericDate {
    type Error = &'static str;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range is checked, and fractions are cut on purpose"
    )]
    #[expect(clippy::cast_precision_loss, reason = "the bound is exact in 53 bits")]
    fn try_from(secs: f64) -> Result<Self, Self::Error> {
        if (0.0..=SECS_MAX as f64).contains(&secs) {
            Ok(Self(Timestamp::from_secs(secs as i64)))
        } else {
            Err("out of range")
        }
    }
}

impl<'a> Unverified<'a> {
    /// Takes a token apart. The algorithm's name is judged before anything else of the token is read.
    pub(crate) fn parse(token: &'a str) -> Result<Self, Reason> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Reason::TokenTooLarge);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Reason::TokenMalformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Reason::TokenMalformed)?;
        let header: Header = serde_json::from_slice(&object(header)?).map_err(|_| Reason::TokenMalformed)?;
        let algorithm = algorithm(&header.alg)?;
        if header.crit.is_some() || header.b64 == Some(false) || signature.is_empty() {
            return Err(Reason::TokenMalformed);
        }
        let claims: Claims = serde_json::from_slice(&object(claims)?).map_err(|e| match e.classify() {
            serde_json::error::Category::Data => Reason::ClaimsMalformed,
            serde_json::error::Category::Io
            | serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof => Reason::TokenMalformed,
        })?;
        Ok(Self { signed, signature, algorithm, key_id: header.kid, claims })
    }
}

fn algorithm(name: &str) -> Result<Algorithm, Reason> {
    if name.eq_ignore_ascii_case("none") {
        return Err(Reason::AlgorithmNone);
    }
    if name.get(..2).is_some_and(|family| family.eq_ignore_ascii_case("HS")) {
        return Err(Reason::AlgorithmSymmetric);
    }
    Algorithm::from_name(name).ok_or(Reason::AlgorithmNotAllowed)
}

/// A part that is a JSON object (RFC 7519 section 7.2); the library would take a list of its values too.
fn object(part: &str) -> Result<Vec<u8>, Reason> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| Reason::TokenMalformed)?;
    if json.trim_ascii_start().starts_with(b"{") { Ok(json) } else { Err(Reason::TokenMalformed) }
}
