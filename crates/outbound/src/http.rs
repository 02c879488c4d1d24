//! The client that does ask: https only, no redirects, small answers, soon, to public addresses.

use std::error::Error as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use portero_types::{Redacted, SourceNo};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Certificate, Client, Proxy, Response, Url};

use crate::address::is_public;
use crate::resolver::{NotPublic, PublicOnly};
use crate::{Fetch, FetchError, metrics};

/// Largest answer, bytes.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;
/// Longest URL, bytes.
const URL_BYTES_MAX: usize = 2 * 1024;
/// Largest file of certificates, bytes.
const CA_FILE_BYTES_MAX: u64 = 1024 * 1024;
const USER_AGENT: &str = concat!("portero/", env!("CARGO_PKG_VERSION"));

/// How to reach providers.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The proxy through which everything goes, `http://…` or `https://…`, perhaps with user and password. The proxy resolves
    /// names then, and so decides what may be reached. Without one, only public addresses are asked.
    pub proxy: Option<Redacted<String>>,
    /// Certificates (PEM) to trust beside the system's: those of a proxy that looks into TLS, say. Read once.
    pub ca_file: Option<PathBuf>,
    /// How long connecting may take, and how long everything together. Default 3 s.
    pub timeout: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { proxy: None, ca_file: None, timeout: Duration::from_secs(3) }
    }
}

/// Why there is no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    /// The certificate file cannot be read.
    #[error("the certificate file cannot be read ({0})")]
    CaFile(std::io::ErrorKind),
    /// The certificate file holds no certificate.
    #[error("the certificate file holds no certificate in PEM form")]
    NoCertificate,
    /// The proxy's URL is malformed.
    #[error("the proxy must be a URL that begins with http:// or https://")]
    Proxy,
    /// The program installed no TLS provider.
    #[error("no TLS provider was installed before the client was made")]
    NoTlsProvider,
    /// TLS cannot be set up.
    #[error("the TLS client cannot be set up: are there system certificates?")]
    Tls,
}

/// Fetches over HTTPS. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HttpFetcher {
    client: Client,
}

impl HttpFetcher {
    /// A client. A TLS provider must have been installed in this process. Reads the certificate file, so it may block a moment.
    ///
    /// # Errors
    /// [`InvalidConfig`].
    pub fn new(config: &HttpConfig) -> Result<Self, InvalidConfig> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(InvalidConfig::NoTlsProvider);
        }
        let mut builder = Client::builder()
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            // No second try behind our back: the provider sends its event again.
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(config.timeout)
            .timeout(config.timeout)
            .pool_max_idle_per_host(0)
            .user_agent(USER_AGENT);
        builder = match &config.proxy {
            Some(url) => builder.proxy(proxy(url.expose_secret())?),
            None => builder.no_proxy().dns_resolver(PublicOnly),
        };
        if let Some(path) = &config.ca_file {
            builder = builder.tls_certs_merge(certificates(path)?);
        }
        let client = builder.build().map_err(|_| InvalidConfig::Tls)?;
        Ok(Self { client })
    }

    async fn get(&self, wanted: &portero_recipe::Fetch) -> Result<Bytes, FetchError> {
        let url = allowed(&wanted.url).ok_or(FetchError::Forbidden)?;
        let request = match &wanted.post_json {
            None => self.client.get(url),
            Some(json) => self
                .client
                .post(url)
                .header(CONTENT_TYPE, "application/json")
                .body(json.expose_secret().clone()),
        };
        let response = request.header(ACCEPT, "*/*").send().await.map_err(|error| sanitised(&error))?;
        let status = response.status();
        if !status.is_success() {
            return Err(FetchError::Refused(status.as_u16()));
        }
        read(response).await
    }
}

#[async_trait]
impl Fetch for HttpFetcher {
    async fn fetch(&self, wanted: &portero_recipe::Fetch, _: SourceNo) -> Result<Bytes, FetchError> {
        let began = Instant::now();
        let result = self.get(wanted).await;
        metrics::fetched(result.as_ref().err().copied(), began.elapsed());
        result
    }
}

fn proxy(text: &str) -> Result<Proxy, InvalidConfig> {
    let url = Url::parse(text).map_err(|_| InvalidConfig::Proxy)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(InvalidConfig::Proxy);
    }
    Proxy::https(url).map_err(|_| InvalidConfig::Proxy)
}

fn certificates(path: &PathBuf) -> Result<Vec<Certificate>, InvalidConfig> {
    let unreadable = |error: std::io::Error| InvalidConfig::CaFile(error.kind());
    if std::fs::metadata(path).map_err(unreadable)?.len() > CA_FILE_BYTES_MAX {
        return Err(InvalidConfig::CaFile(std::io::ErrorKind::FileTooLarge));
    }
    let pem = std::fs::read(path).map_err(unreadable)?;
    let certificates = Certificate::from_pem_bundle(&pem).map_err(|_| InvalidConfig::NoCertificate)?;
    if certificates.is_empty() { Err(InvalidConfig::NoCertificate) } else { Ok(certificates) }
}

/// The URL when it may be asked. A host that is an address does not pass the resolver, so it is checked here.
fn allowed(text: &str) -> Option<Url> {
    if text.len() > URL_BYTES_MAX {
        return None;
    }
    let url = Url::parse(text).ok()?;
    let host = url.host_str()?;
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse();
    let is_good = url.scheme() == "https"
        && url.username().is_empty()
        && url.password().is_none()
        && literal.map_or(true, is_public);
    is_good.then_some(url)
}

async fn read(mut response: Response) -> Result<Bytes, FetchError> {
    if response.content_length().is_some_and(|bytes| bytes > RESPONSE_BYTES_MAX as u64) {
        return Err(FetchError::TooLarge);
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| sanitised(&error))? {
        if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err(FetchError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// What kind of failure a driver's error is; its text goes no further.
fn sanitised(error: &reqwest::Error) -> FetchError {
    if error.is_timeout() {
        return FetchError::TimedOut;
    }
    let mut cause = error.source();
    while let Some(this) = cause {
        let inner = this.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if this.is::<NotPublic>() || inner.is_some_and(|inner| inner.is::<NotPublic>()) {
            return FetchError::Forbidden;
        }
        let tls = this.downcast_ref::<rustls::Error>();
        let tls = tls.or_else(|| inner.and_then(|inner| inner.downcast_ref()));
        if let Some(rustls::Error::InvalidCertificate(_)) = tls {
            return FetchError::Untrusted;
        }
        cause = this.source();
    }
    FetchError::Unreachable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_without_credentials_and_not_inside_of_the_network() {
        for good in ["https://api.paypal.com/v1/certs/1", "https://8.8.8.8/x", "https://[2606:4700::1111]/x"]
        {
            assert!(allowed(good).is_some(), "{good}");
        }
        let long = format!("https://api.paypal.com/{}", "x".repeat(URL_BYTES_MAX));
        for bad in [
            "http://api.paypal.com/x",
            "https://user@api.paypal.com/x",
            "https://user:pw@api.paypal.com/x",
            "https://127.0.0.1/x",
            "https://2130706433/x",
            "https://0x7f.1/x",
            "https://169.254.169.254/latest/meta-data",
            "https://[::1]/x",
            "https://[::ffff:10.0.0.1]/x",
            "file:///etc/passwd",
            "api.paypal.com",
            "",
            &long,
        ] {
            assert!(allowed(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_proxy_is_an_http_url() {
        for good in ["http://proxy:3128", "http://u:p@10.0.0.1:3128", "https://proxy"] {
            assert!(proxy(good).is_ok(), "{good}");
        }
        for bad in ["socks5://proxy:1080", "proxy:3128", "", "http://"] {
            assert_eq!(proxy(bad).err(), Some(InvalidConfig::Proxy), "{bad}");
        }
    }
}
