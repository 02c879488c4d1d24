//! `[outbound]`: how the gateway fetches what verification needs, such as a provider's certificate.

use std::path::PathBuf;
use std::time::Duration;

use portero_types::Redacted;

use super::Reader;

/// `[outbound]`.
#[derive(Clone, Debug)]
pub(crate) struct Outbound {
    /// The HTTP proxy through which everything goes; it may carry user and password.
    pub(crate) proxy: Option<Redacted<String>>,
    /// Certificates to trust beside the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// How long one fetch may take.
    pub(crate) timeout: Duration,
}

impl Outbound {
    pub(super) fn read(section: &mut Reader) -> Self {
        let proxy = section.optional::<String>("proxy").filter(|url| !url.is_empty());
        if proxy.as_ref().is_some_and(|url| !is_proxy(url)) {
            section.problem("proxy", "must be a URL that begins with http:// or https://");
        }
        Self {
            proxy: proxy.map(Redacted::new),
            ca_file: section.optional_path("ca_file"),
            timeout: section.within(
                "timeout",
                Duration::from_secs(3),
                Duration::from_millis(100),
                Duration::from_secs(30),
            ),
        }
    }
}

fn is_proxy(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}
