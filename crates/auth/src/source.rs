//! Where an issuer's keys are read from, with bounds on size and time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

use crate::jwks::KeySet;

/// Largest key set that is read, bytes.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;

/// Longest time that one fetch may take, from name resolution to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest certificate or token file beside a URL, bytes.
const SIDE_FILE_BYTES_MAX: usize = 256 * 1024;

/// Where an issuer publishes its keys.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// The document itself. Never read again.
    Inline(String),
    /// A file, read again every 30 seconds, and on an unknown key id at most once a second.
    File(PathBuf),
    /// A URL, fetched again every 5 minutes, and on an unknown key id at most every 10 seconds.
    Url(JwksUrl),
}

/// A URL of a key set. Redirects are not followed, proxies of the environment are not used.
#[derive(Clone, Debug)]
pub struct JwksUrl {
    /// `https://…`; `http://…` only to this machine (`localhost`, `127.0.0.0/8`, `::1`). Without user name and password.
    pub url: String,
    /// Certificates (PEM) to trust for this URL instead of the system's: a cluster's own authority. Read at each fetch.
    pub ca_file: Option<PathBuf>,
    /// A bearer token to send: a Kubernetes API server wants one. Read at each fetch, since it is renewed on disk.
    pub bearer_token_file: Option<PathBuf>,
}

/// Why keys could not be read. Carries no text of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("a file cannot be read ({0})")]
    File(std::io::ErrorKind),
    #[error("the certificate file is not PEM, or the TLS client cannot be set up")]
    Client,
    #[error("the bearer token file does not hold a token")]
    BearerToken,
    #[error("the server cannot be reached")]
    Unreachable,
    #[error("the server did not answer in time")]
    TimedOut,
    #[error("the server answered with status {0}")]
    Status(u16),
    #[error("the answer is larger than {JWKS_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the answer is not a key set")]
    Malformed,
    #[error("the key set holds no usable key")]
    NoUsableKeys,
}

impl FetchError {
    /// Stable code for metrics.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Client => "client",
            Self::BearerToken => "bearer_token",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Status(_) => "status",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::NoUsableKeys => "no_usable_keys",
        }
    }
}

/// Why a source can never work: found at start, not at the first token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSource {
    #[error("the inline key set is malformed or holds no usable key")]
    Inline,
    #[error("the key set's URL must be https, or http to this machine, without user name and password")]
    Url,
    #[error("no TLS provider was installed before the verifier was made")]
    NoTlsProvider,
    #[error("the TLS client cannot be set up: are there system certificates?")]
    Client,
}

/// A checked source that can be read.
pub(crate) enum Reader {
    Inline,
    File(PathBuf),
    Url { url: reqwest::Url, client: Option<reqwest::Client>, config: JwksUrl },
}

impl Reader {
    /// Checks a source. An inline one gives its keys at once.
    pub(crate) fn new(source: KeySource) -> Result<(Self, Option<KeySet>), InvalidSource> {
        match source {
            KeySource::Inline(json) => {
                let keys = KeySet::parse(json.as_bytes()).filter(|keys| !keys.is_empty());
                Ok((Self::Inline, Some(keys.ok_or(InvalidSource::Inline)?)))
            }
            KeySource::File(path) => Ok((Self::File(path), None)),
            KeySource::Url(config) => {
                let url = checked_url(&config.url).ok_or(InvalidSource::Url)?;
                if rustls::crypto::CryptoProvider::get_default().is_none() {
                    return Err(InvalidSource::NoTlsProvider);
                }
                let client = match (&config.ca_file, url.scheme()) {
                    (Some(_), _) => None,
                    // No certificates at all: plain HTTP needs none, and the system may have none.
                    (None, "http") => Some(client(Some(Vec::new())).map_err(|_| InvalidSource::Client)?),
                    (None, _) => Some(client(None).map_err(|_| InvalidSource::Client)?),
                };
                Ok((Self::Url { url, client, config }, None))
            }
        }
    }

    /// How often to read: at most every, at least every. `None` for a source that never changes.
    pub(crate) const fn pace(&self) -> Option<(Duration, Duration)> {
        match self {
            Self::Inline => None,
            Self::File(_) => Some((Duration::from_secs(1), Duration::from_secs(30))),
            Self::Url { .. } => Some((Duration::from_secs(10), Duration::from_secs(300))),
        }
    }

    /// Reads the keys. A set without a usable key is a failure: it would lock everyone out. Cancel-safe.
    pub(crate) async fn read(&self) -> Result<KeySet, FetchError> {
        let json = match self {
            Self::Inline => return Err(FetchError::NoUsableKeys),
            Self::File(path) => read_bounded(path, JWKS_BYTES_MAX).await?,
            Self::Url { url, client, config } => fetch(url, client.as_ref(), config).await?,
        };
        let keys = KeySet::parse(&json).ok_or(FetchError::Malformed)?;
        if keys.is_empty() { Err(FetchError::NoUsableKeys) } else { Ok(keys) }
    }
}

fn checked_url(text: &str) -> Option<reqwest::Url> {
    let url = reqwest::Url::parse(text).ok()?;
    let is_local = || {
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let is_good = match url.scheme() {
        "https" => url.has_host(),
        "http" => is_local(),
        _ => false,
    };
    (is_good && url.username().is_empty() && url.password().is_none()).then_some(url)
}

/// The one bounded client. `certificates` replace the system's.
fn client(certificates: Option<Vec<reqwest::Certificate>>) -> Result<reqwest::Client, reqwest::Error> {
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(FETCH_TIMEOUT)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("portero/", env!("CARGO_PKG_VERSION")));
    if let Some(certificates) = certificates {
        builder = builder.tls_certs_only(certificates);
    }
    builder.build()
}

async fn fetch(
    url: &reqwest::Url,
    ready: Option<&reqwest::Client>,
    config: &JwksUrl,
) -> Result<Vec<u8>, FetchError> {
    let client = match (ready, &config.ca_file) {
        (Some(client), _) => client.clone(),
        (None, None) => return Err(FetchError::Client),
        (None, Some(path)) => {
            let pem = read_bounded(path, SIDE_FILE_BYTES_MAX).await?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|_| FetchError::Client)?;
            if certificates.is_empty() {
                return Err(FetchError::Client);
            }
            client(Some(certificates)).map_err(|_| FetchError::Client)?
        }
    };
    let mut request = client.get(url.clone()).header("accept", "application/json");
    if let Some(path) = &config.bearer_token_file {
        request = request.header("authorization", bearer(path).await?);
    }
    let mut response = request.send().await.map_err(|e| sanitised(&e))?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| sanitised(&e))? {
        if body.len() + chunk.len() > JWKS_BYTES_MAX {
            return Err(FetchError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

async fn bearer(path: &Path) -> Result<reqwest::header::HeaderValue, FetchError> {
    let text = Zeroizing::new(read_bounded(path, SIDE_FILE_BYTES_MAX).await?);
    let token = std::str::from_utf8(&text).map_err(|_| FetchError::BearerToken)?.trim();
    if token.is_empty() {
        return Err(FetchError::BearerToken);
    }
    let header = Zeroizing::new(format!("Bearer {token}"));
    let mut value = reqwest::header::HeaderValue::from_str(&header).map_err(|_| FetchError::BearerToken)?;
    value.set_sensitive(true);
    Ok(value)
}

fn sanitised(error: &reqwest::Error) -> FetchError {
    if error.is_timeout() { FetchError::TimedOut } else { FetchError::Unreachable }
}

async fn read_bounded(path: &Path, max: usize) -> Result<Vec<u8>, FetchError> {
    let unreadable = |e: std::io::Error| FetchError::File(e.kind());
    if !tokio::fs::metadata(path).await.map_err(unreadable)?.is_file() {
        return Err(FetchError::File(std::io::ErrorKind::InvalidInput));
    }
    let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let mut content = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut content).await.map_err(unreadable)?;
    if content.len() > max { Err(FetchError::TooLarge) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encrypted_or_local_urls_without_credentials_are_taken() {
        for good in [
            "https://id.example.com/keys",
            "http://localhost:8080/keys",
            "http://127.0.0.1/keys",
            "http://[::1]:1/keys",
        ] {
            assert!(checked_url(good).is_some(), "{good}");
        }
        for bad in [
            "http://id.example.com/keys",
            "http://localhost.example.com/keys",
            "http://10.0.0.1/keys",
            "https://user:pw@id.example.com/keys",
            "file:///etc/passwd",
            "keys",
            "",
        ] {
            assert!(checked_url(bad).is_none(), "{bad}");
        }
    }
}
