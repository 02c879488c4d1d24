//! Everything that the gateway fetches because of a request: the certificate or key that a provider's signature names, and
//! the address that confirms a subscription. One bounded client, and one trait to put another in its place.
//!
//! ```text
//! edge ─ CachedFetcher ─ HttpFetcher ─ (proxy) ─ provider
//!        once per key      https only, small, soon, public addresses
//! ```
//!
//! A stranger can make the gateway fetch: what a request names is not verified yet. So the recipe's code pins scheme, host
//! and path; [`HttpFetcher`] bounds what one fetch may cost and refuses addresses inside of the network; and
//! [`CachedFetcher`] bounds how many there are, in all, to a host and because of a source.
//!
//! This crate must never follow a redirect, send anything about a request but what the recipe's [`portero_recipe::Fetch`]
//! says, or put an answer, a URL's query or a driver's text into an error or a log.

mod address;
mod bucket;
mod cached;
mod error;
mod http;
mod lru;
pub mod metrics;
mod resolver;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use async_trait::async_trait;
use bytes::Bytes;
use portero_types::SourceNo;

pub use bucket::Rate;
pub use cached::{CacheConfig, CachedFetcher};
pub use error::FetchError;
pub use http::{HttpConfig, HttpFetcher, InvalidConfig, RESPONSE_BYTES_MAX};

/// Fetches what verification needs. Every call is bounded in time and size.
#[async_trait]
pub trait Fetch: Send + Sync + 'static {
    /// The body of the answer. `source` is whose request makes it necessary: each has its share of what may be fetched.
    ///
    /// Cancel-safe: dropping it ends the fetch, unless others wait for the same one.
    ///
    /// # Errors
    /// Why there is nothing; see [`FetchError`].
    async fn fetch(&self, wanted: &portero_recipe::Fetch, source: SourceNo) -> Result<Bytes, FetchError>;
}

/// A client that reaches nobody: for a process that cannot speak TLS.
#[derive(Clone, Copy, Debug)]
pub struct Offline;

#[async_trait]
impl Fetch for Offline {
    async fn fetch(&self, _: &portero_recipe::Fetch, _: SourceNo) -> Result<Bytes, FetchError> {
        Err(FetchError::Unreachable)
    }
}
