//! Why nothing was fetched.

/// Why nothing was fetched. Carries no text of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The URL is not one that this client may ask: not https, with credentials, too long, or inside of the network.
    #[error("the address may not be asked")]
    Forbidden,
    /// Too many fetches are under way, or too many new ones for this host or because of this source.
    #[error("too many fetches; try again")]
    Busy,
    /// The name does not resolve, or nobody answers there.
    #[error("the server cannot be reached")]
    Unreachable,
    /// The server's certificate is not trusted, or is another host's.
    #[error("the server's certificate is not trusted")]
    Untrusted,
    /// No complete answer came in time.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The answer is larger than [`crate::RESPONSE_BYTES_MAX`].
    #[error("the answer is too large")]
    TooLarge,
    /// The server answered with another status than 2xx. Redirects are such answers.
    #[error("the server answered with status {0}")]
    Refused(u16),
}

impl FetchError {
    /// Stable code for metrics and logs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Busy => "busy",
            Self::Unreachable => "unreachable",
            Self::Untrusted => "untrusted",
            Self::TimedOut => "timed_out",
            Self::TooLarge => "too_large",
            Self::Refused(_) => "refused",
        }
    }
}
