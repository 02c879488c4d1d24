//! Where access tokens come from.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use portero_types::Redacted;
use tokio::io::AsyncReadExt as _;

/// Longest token, bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

type Ask = dyn Fn() -> Pin<Box<dyn Future<Output = Result<String, TokenError>> + Send>> + Send + Sync;

/// Where access tokens come from. Cheap to clone; `Debug` shows the kind only.
#[derive(Clone)]
pub struct Token(Source);

#[derive(Clone)]
enum Source {
    None,
    Fixed(Arc<Redacted<String>>),
    File(Arc<PathBuf>),
    Ask(Arc<Ask>),
}

impl Token {
    /// No token: for gateways that check none.
    #[must_use]
    pub fn none() -> Self {
        Self(Source::None)
    }

    /// The same token for ever. When the gateway refuses it, subscriptions end.
    #[must_use]
    pub fn fixed(token: impl Into<String>) -> Self {
        Self(Source::Fixed(Arc::new(Redacted::new(token.into()))))
    }

    /// A file that holds the token, as Kubernetes projects them. It is read again for every new stream and every unary
    /// call, so that a renewed token is taken up without a restart; white space around it is dropped.
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(Arc::new(path.into())))
    }

    /// Asks a closure for every new stream and every unary call. It should cache: it may be called often.
    #[must_use]
    pub fn from_fn<F, Fut>(ask: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        Self(Source::Ask(Arc::new(move || {
            let answer = ask();
            Box::pin(async move { answer.await.map_err(TokenError::Provider) })
        })))
    }

    /// Whether the next attempt may carry another token.
    pub(crate) fn can_renew(&self) -> bool {
        match self.0 {
            Source::None | Source::Fixed(_) => false,
            Source::File(_) | Source::Ask(_) => true,
        }
    }

    /// The token to send now; `None` sends none.
    pub(crate) async fn get(&self) -> Result<Option<Redacted<String>>, TokenError> {
        let token = match &self.0 {
            Source::None => return Ok(None),
            Source::Fixed(token) => token.expose_secret().clone(),
            Source::File(path) => read(path).await?,
            Source::Ask(ask) => ask().await?,
        };
        let token = Redacted::new(token);
        let text = token.expose_secret().trim();
        let usable = !text.is_empty()
            && text.len() <= TOKEN_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if usable { Ok(Some(Redacted::new(text.to_owned()))) } else { Err(TokenError::Malformed) }
    }
}

async fn read(path: &PathBuf) -> Result<String, TokenError> {
    let file = tokio::fs::File::open(path).await.map_err(TokenError::File)?;
    let mut text = String::new();
    let limit = u64::try_from(TOKEN_BYTES_MAX + 2).unwrap_or(u64::MAX);
    file.take(limit).read_to_string(&mut text).await.map_err(TokenError::File)?;
    Ok(text)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::None => "Token(none)",
            Source::Fixed(_) => "Token(fixed)",
            Source::File(_) => "Token(file)",
            Source::Ask(_) => "Token(function)",
        })
    }
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The token's file cannot be read.
    #[error("the token's file cannot be read")]
    File(#[source] std::io::Error),
    /// The closure failed.
    #[error("the token provider failed")]
    Provider(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is empty, longer than 16 KiB, or holds characters that no token has.
    #[error("the token is empty, too long, or holds characters that no token has")]
    Malformed,
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(token: &Token) -> Option<String> {
        token.get().await.expect("a token").map(|token| token.expose_secret().clone())
    }

    #[tokio::test]
    async fn a_renewed_file_is_taken_up() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "first\n").expect("write");
        let token = Token::file(&path);
        assert_eq!(text(&token).await.as_deref(), Some("first"));
        std::fs::write(&path, "other").expect("write");
        assert_eq!(text(&token).await.as_deref(), Some("other"));
    }

    #[tokio::test]
    async fn an_empty_or_broken_token_is_refused_and_never_shown() {
        for bad in ["", "  \n", "two words", "newline\nwithin", "é"] {
            let error = Token::fixed(bad).get().await.expect_err("refused");
            assert!(matches!(error, TokenError::Malformed), "{bad:?}");
        }
        assert_eq!(format!("{:?}", Token::fixed("hunter2")), "Token(fixed)");
        assert!(matches!(Token::file("/nonexistent/token").get().await, Err(TokenError::File(_))));
    }

    #[tokio::test]
    async fn a_closure_is_asked_each_time() {
        let asked = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counter = Arc::clone(&asked);
        let token = Token::from_fn(move || {
            let n = counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async move { Ok(format!("token-{n}")) }
        });
        assert_eq!(text(&token).await.as_deref(), Some("token-0"));
        assert_eq!(text(&token).await.as_deref(), Some("token-1"));
    }
}
