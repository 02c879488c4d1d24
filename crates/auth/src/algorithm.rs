//! Signature algorithms that an issuer may be pinned to.

/// An asymmetric signature algorithm (RFC 7518 section 3.1, RFC 8037). There is no symmetric one, so a public key can never
/// be taken for a shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Algorithm {
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// RSA PKCS#1 v1.5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    #[serde(rename = "RS384")]
    Rs384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    #[serde(rename = "RS512")]
    Rs512,
    /// RSA PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// RSA PSS with SHA-384.
    #[serde(rename = "PS384")]
    Ps384,
    /// RSA PSS with SHA-512.
    #[serde(rename = "PS512")]
    Ps512,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 9] = [
        Self::EdDsa,
        Self::Es256,
        Self::Es384,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
    ];

    /// Its registered name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EdDsa => "EdDSA",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
        }
    }

    /// The algorithm of a registered name, in its exact spelling.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    pub(crate) const fn to_library(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::EdDsa => jsonwebtoken::Algorithm::EdDSA,
            Self::Es256 => jsonwebtoken::Algorithm::ES256,
            Self::Es384 => jsonwebtoken::Algorithm::ES384,
            Self::Rs256 => jsonwebtoken::Algorithm::RS256,
            Self::Rs384 => jsonwebtoken::Algorithm::RS384,
            Self::Rs512 => jsonwebtoken::Algorithm::RS512,
            Self::Ps256 => jsonwebtoken::Algorithm::PS256,
            Self::Ps384 => jsonwebtoken::Algorithm::PS384,
            Self::Ps512 => jsonwebtoken::Algorithm::PS512,
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Algorithm {
    type Err = UnknownAlgorithm;
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::from_name(name).ok_or(UnknownAlgorithm)
    }
}

/// The name is not that of an asymmetric algorithm that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an algorithm must be one of EdDSA, ES256, ES384, RS256, RS384, RS512, PS256, PS384, PS512")]
pub struct UnknownAlgorithm;
