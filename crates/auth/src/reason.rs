//! Why a token is refused.

use portero_types::limits::SUBJECT_BYTES_MAX;

/// Why a token is refused, and what to do. The texts are fixed: nothing of the token is in them, and nothing of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// Longer than [`crate::TOKEN_BYTES_MAX`].
    #[error("the token is longer than {max} bytes: have its issuer leave out claims that are not needed", max = crate::TOKEN_BYTES_MAX)]
    TokenTooLarge,
    /// Not three base64url parts of which the first two hold JSON objects, or with header fields that must be understood
    /// (`crit`) and are not.
    #[error("the token is not a well-formed signed JWT: was all of it copied, and nothing else?")]
    TokenMalformed,
    /// Header `alg` is `none`: an unsigned token.
    #[error("the token is not signed: get one that its issuer signed")]
    AlgorithmNone,
    /// Header `alg` is symmetric (HMAC): a public key used as if it were a shared secret.
    #[error("the token is signed with a symmetric algorithm: have its issuer sign with a key pair")]
    AlgorithmSymmetric,
    /// The issuer is not configured to use this algorithm, or the key is of another kind.
    #[error(
        "the token's algorithm is not one that its issuer may use, or not one of the key that the token names: compare its 'alg' with \
         auth.issuers.algorithms"
    )]
    AlgorithmNotAllowed,
    /// No configured issuer has this name.
    #[error("the token's issuer is not trusted here: compare its 'iss' with auth.issuers, byte by byte")]
    IssuerUnknown,
    /// No `kid` in the header.
    #[error("the token does not name its key: have its issuer put 'kid' into the header")]
    KeyIdMissing,
    /// The issuer has published no key of this `kid`.
    #[error(
        "the token names a key that its issuer does not publish: get a new token, or compare its 'kid' with the issuer's key set"
    )]
    KeyUnknown,
    /// The issuer's keys cannot be read, and the token names one that is not known yet. The only reason that passes by itself.
    #[error("the keys of the token's issuer cannot be read at the moment; try again")]
    KeysUnavailable,
    /// The signature is not the issuer's.
    #[error(
        "the token's signature does not verify: it was altered, or another key signed it; get a new token"
    )]
    SignatureMismatch,
    /// None of the `aud` values is ours, or there is none.
    #[error(
        "the token is meant for another audience: ask its issuer for one whose 'aud' has an audience of auth.issuers"
    )]
    AudienceWrong,
    /// No `exp`.
    #[error("the token has no expiry: have its issuer set 'exp'")]
    ExpiryMissing,
    /// `exp` has passed.
    #[error("the token has expired: get a new one")]
    Expired,
    /// `nbf` or `iat` lies in the future.
    #[error("the token is not valid yet: its 'nbf' or 'iat' lies in the future; compare the clocks")]
    NotYetValid,
    /// A claim has another type or range than RFC 7519 says, or there is no usable `sub`.
    #[error(
        "a claim of the token is malformed: 'sub' has 1 to {SUBJECT_BYTES_MAX} bytes without control characters, times are numbers of \
         seconds up to the year 9999, 'aud' is a text or a list of texts, and no claim is there twice"
    )]
    ClaimsMalformed,
    /// The grant cannot be understood; it is refused as a whole.
    #[error(
        "the token's claim 'portero' is not a grant: it needs a role that is known here, a tenant or subscriptions where the \
         role wants them, and nothing else"
    )]
    GrantMalformed,
}

impl Reason {
    /// Stable code for answers, logs and metrics.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TokenTooLarge => "TOKEN_TOO_LARGE",
            Self::TokenMalformed => "TOKEN_MALFORMED",
            Self::AlgorithmNone => "ALGORITHM_NONE",
            Self::AlgorithmSymmetric => "ALGORITHM_SYMMETRIC",
            Self::AlgorithmNotAllowed => "ALGORITHM_NOT_ALLOWED",
            Self::IssuerUnknown => "ISSUER_UNKNOWN",
            Self::KeyIdMissing => "KEY_ID_MISSING",
            Self::KeyUnknown => "KEY_UNKNOWN",
            Self::KeysUnavailable => "KEYS_UNAVAILABLE",
            Self::SignatureMismatch => "SIGNATURE_MISMATCH",
            Self::AudienceWrong => "AUDIENCE_WRONG",
            Self::ExpiryMissing => "EXPIRY_MISSING",
            Self::Expired => "EXPIRED",
            Self::NotYetValid => "NOT_YET_VALID",
            Self::ClaimsMalformed => "CLAIMS_MALFORMED",
            Self::GrantMalformed => "GRANT_MALFORMED",
        }
    }

    /// Whether the same token may be accepted later without anyone acting: the caller answers "unavailable" instead of
    /// "unauthenticated".
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::KeysUnavailable)
    }
}
