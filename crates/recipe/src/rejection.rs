//! Why a request was refused.

use std::fmt;

/// The kinds of refusal. The set only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The source has no secret that is active now and fits the scheme.
    NoActiveSecret,
    /// No secret that can be read verifies the request, and an active one cannot be read: whether the request is genuine cannot
    /// be told. The one refusal that is not the sender's fault; it may send again.
    SecretUnreadable,
    /// The signature is good, but its secret was revoked.
    SecretRevoked,
    /// The signature is good, but its secret's end has passed.
    SecretRetired,
    /// The signature is good, but its secret's time has not come.
    SecretPlanned,
    /// The place where the signature belongs is absent, empty or holds no signature of a version that counts.
    SignatureMissing,
    /// The signature, or a header that is part of the signed text, came more than once.
    SignatureDuplicated,
    /// The signature is there but cannot be read.
    SignatureMalformed,
    /// No listed signature matches the bytes received under any active secret.
    SignatureMismatch,
    /// More signatures than one request may carry.
    TooManySignatures,
    /// Something that takes part in the signed text is absent.
    SignedPartMissing,
    /// The signed time is absent.
    TimestampMissing,
    /// The signed time cannot be read.
    TimestampMalformed,
    /// The signature is good, but its time lies too far in the past.
    TimestampTooOld,
    /// The signature is good, but its time lies too far in the future.
    TimestampInFuture,
    /// The body has not the shape that verification needs.
    BodyMalformed,
    /// More events than one request may carry.
    TooManyEvents,
    /// The recipe signs the public URL, and the source has none.
    PublicUrlUnknown,
    /// A handshake carries a value that must not be answered.
    HandshakeRefused,
    /// A handshake would write the source's secret, and the source waits for none.
    HandshakeNotExpected,
    /// A handshake's token is not the one that the provider was told.
    HandshakeTokenMismatch,
    /// The source lacks a setting that the recipe needs.
    SettingMissing,
    /// The digest that is signed is not the body's.
    BodyDigestMismatch,
    /// The key that the request names may not be fetched, or what was fetched is not a usable key.
    FetchedKeyInvalid,
    /// The `Content-Encoding` could not be undone.
    EncodingMalformed,
    /// The method carries no event, and no handshake of the recipe is like the request.
    MethodNotAllowed,
    /// The `Content-Encoding` is not undone, or the recipe does not say what is signed then.
    EncodingUnsupported,
    /// The request is signed for another topic, application or key than the source's.
    NotForThisSource,
}

impl Reason {
    /// The stable code, in SCREAMING_SNAKE_CASE.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoActiveSecret => "NO_ACTIVE_SECRET",
            Self::SecretUnreadable => "SECRET_UNREADABLE",
            Self::SecretRevoked => "SECRET_REVOKED",
            Self::SecretRetired => "SECRET_RETIRED",
            Self::SecretPlanned => "SECRET_PLANNED",
            Self::SignatureMissing => "SIGNATURE_MISSING",
            Self::SignatureDuplicated => "SIGNATURE_DUPLICATED",
            Self::SignatureMalformed => "SIGNATURE_MALFORMED",
            Self::SignatureMismatch => "SIGNATURE_MISMATCH",
            Self::TooManySignatures => "TOO_MANY_SIGNATURES",
            Self::SignedPartMissing => "SIGNED_PART_MISSING",
            Self::TimestampMissing => "TIMESTAMP_MISSING",
            Self::TimestampMalformed => "TIMESTAMP_MALFORMED",
            Self::TimestampTooOld => "TIMESTAMP_TOO_OLD",
            Self::TimestampInFuture => "TIMESTAMP_IN_FUTURE",
            Self::BodyMalformed => "BODY_MALFORMED",
            Self::TooManyEvents => "TOO_MANY_EVENTS",
            Self::PublicUrlUnknown => "PUBLIC_URL_UNKNOWN",
            Self::HandshakeRefused => "HANDSHAKE_REFUSED",
            Self::HandshakeNotExpected => "HANDSHAKE_NOT_EXPECTED",
            Self::HandshakeTokenMismatch => "HANDSHAKE_TOKEN_MISMATCH",
            Self::SettingMissing => "SETTING_MISSING",
            Self::BodyDigestMismatch => "BODY_DIGEST_MISMATCH",
            Self::FetchedKeyInvalid => "FETCHED_KEY_INVALID",
            Self::EncodingMalformed => "ENCODING_MALFORMED",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::EncodingUnsupported => "ENCODING_UNSUPPORTED",
            Self::NotForThisSource => "NOT_FOR_THIS_SOURCE",
        }
    }
}

/// A refused request: the reason and a sentence for the person who looks for the cause.
///
/// Neither ever holds a secret, a signature or a part of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: Reason,
    detail: String,
}

impl Rejection {
    /// A refusal; `detail` is one sentence that is safe to show to anybody.
    #[must_use]
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }

    /// The kind of refusal.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// One sentence, safe to show to anybody.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.code(), self.detail)
    }
}

impl std::error::Error for Rejection {}
