//! Redis, shared by the replicas. Every call is bounded in time; failures are counted, logged once per change of state, and
//! never shown to the caller.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use portero_types::Redacted;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{ClientTlsConfig, TlsCertificates};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use crate::breaker::Breaker;
use crate::entry::{Digest, from_value, to_value};
use crate::{Hit, Namespace, metrics};

/// Most keys in one command; more are sent in several, within the same time-out.
pub const KEYS_PER_COMMAND_MAX: usize = 512;

/// How long connecting may take. Only probes wait that long, outside of any request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Commands that may wait to be written. When it is full, callers wait and run into their time-out.
const QUEUE_MAX: usize = 1_024;

/// How Redis is reached.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// `redis://[user:password@]host[:port][/database]`, the same with `rediss` for TLS, or `unix:///path`.
    pub url: Redacted<String>,
    /// For `rediss`.
    pub tls: RedisTls,
    /// How long an entry is trusted, 1 ms to 10 years. Shorter than receipts are kept.
    pub ttl: Duration,
    /// Longest time that one call may take, from the first byte written to the last one read.
    pub call_timeout: Duration,
}

/// How TLS is spoken with Redis. PEM; Debug shows none of it.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Certificates that the server's must come from; `None`: the system's.
    pub authorities: Option<Vec<u8>>,
    /// A certificate of our own.
    pub client_certificate: Option<Vec<u8>>,
    /// Its key. Both or none.
    pub client_key: Option<Zeroizing<Vec<u8>>>,
}

impl RedisTls {
    fn is_given(&self) -> bool {
        self.authorities.is_some() || self.client_certificate.is_some() || self.client_key.is_some()
    }

    fn for_the_driver(&self) -> TlsCertificates {
        let client = self.client_certificate.clone().zip(self.client_key.as_ref());
        TlsCertificates {
            client_tls: client
                .map(|(client_cert, key)| ClientTlsConfig { client_cert, client_key: key.to_vec() }),
            root_cert: self.authorities.clone(),
        }
    }
}

impl std::fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisTls").field("is_given", &self.is_given()).finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// A day to live, 10 ms for a call.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Redacted::new(url.into()),
            tls: RedisTls::default(),
            ttl: Duration::from_secs(24 * 3600),
            call_timeout: Duration::from_millis(10),
        }
    }
}

/// Why Redis cannot be used at all with this configuration. Shows nothing of the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRedis {
    /// Not a URL that is understood.
    #[error(
        "the Redis URL must be redis://[user:password@]host[:port][/database], the same with rediss:// for TLS, or \
         unix:///path"
    )]
    Url,
    /// Certificates or a key that cannot be used, or given for a URL without TLS.
    #[error(
        "the certificates or the key for Redis cannot be used: they must be PEM, and the URL begin with rediss://"
    )]
    Tls,
    /// Out of range.
    #[error("the time to live in Redis must be 1 ms to 10 years")]
    Ttl,
    /// Zero, or too long to be called bounded.
    #[error("the time-out of a Redis call must be 1 ms to 1 s")]
    CallTimeout,
}

/// A connection to Redis that is made when it is needed and made again when it breaks.
pub struct Redis {
    client: redis::Client,
    /// Replaced when a connection answers nothing any more: a broken network path may never report an error.
    connection: Mutex<ConnectionManager>,
    ttl_ms: u64,
    call_timeout: Duration,
    breaker: Breaker,
}

/// Why a call failed.
#[derive(Clone, Copy)]
enum Failure {
    TimedOut,
    /// The certificate of one side is not accepted by the other, or there is no TLS.
    Tls,
    Io,
    Server,
    Protocol,
}

impl Failure {
    const fn code(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Tls => "tls",
            Self::Io => "io",
            Self::Server => "server",
            Self::Protocol => "protocol",
        }
    }

    fn of(error: &redis::RedisError) -> Self {
        if error.is_timeout() {
            Self::TimedOut
        } else if is_of_tls(error) {
            Self::Tls
        } else if error.is_io_error() {
            Self::Io
        } else if error.code().is_some() {
            Self::Server
        } else {
            Self::Protocol
        }
    }
}

impl Redis {
    /// Checks the configuration. Connects at the first call, so that an absent Redis delays nothing.
    ///
    /// # Errors
    /// [`InvalidRedis`] says which setting is wrong.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    pub fn new(config: RedisConfig) -> Result<Self, InvalidRedis> {
        let ttl_ms = u64::try_from(config.ttl.as_millis()).map_err(|_| InvalidRedis::Ttl)?;
        if !(1..=10 * 366 * 24 * 3_600_000).contains(&ttl_ms) {
            return Err(InvalidRedis::Ttl);
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&config.call_timeout) {
            return Err(InvalidRedis::CallTimeout);
        }
        if config.url.expose_secret().contains('#') {
            // The driver would take `#insecure` there.
            return Err(InvalidRedis::Url);
        }
        let client =
            redis::Client::open(config.url.expose_secret().as_str()).map_err(|_| InvalidRedis::Url)?;
        let client = if config.tls.is_given() {
            redis::Client::build_with_tls(config.url.expose_secret().as_str(), config.tls.for_the_driver())
                .map_err(|_| InvalidRedis::Tls)?
        } else {
            client
        };
        let connection = Mutex::new(connect_lazily(&client).ok_or(InvalidRedis::Url)?);
        Ok(Self {
            client,
            connection,
            ttl_ms,
            call_timeout: config.call_timeout,
            breaker: Breaker::default(),
        })
    }

    /// Whether Redis is skipped at present.
    #[must_use]
    pub fn is_skipped(&self) -> bool {
        self.breaker.is_open()
    }

    /// Asks for keys. Takes at most the call's time-out; cancel-safe.
    pub(crate) async fn get(&self, namespace: Namespace, digests: &[Digest]) -> Vec<Option<Hit>> {
        let mut hits = Vec::with_capacity(digests.len());
        if !digests.is_empty() && !self.breaker.is_open() {
            let values = self.call("get", self.values_of(namespace, digests)).await.unwrap_or_default();
            hits.extend(digests.iter().zip(values).map(|(digest, value)| {
                let hit = from_value(digest, value.as_ref()?);
                if hit.is_none() {
                    metrics::redis_error("garbage");
                }
                hit
            }));
        }
        hits.resize(digests.len(), None);
        hits
    }

    async fn values_of(
        &self,
        namespace: Namespace,
        digests: &[Digest],
    ) -> redis::RedisResult<Vec<Option<Vec<u8>>>> {
        let mut connection = self.connection();
        let mut values = Vec::with_capacity(digests.len());
        for part in digests.chunks(KEYS_PER_COMMAND_MAX) {
            let mut command = redis::cmd("MGET");
            for digest in part {
                command.arg(digest.redis_key(namespace));
            }
            let found: Vec<Option<Vec<u8>>> = command.query_async(&mut connection).await?;
            if found.len() != part.len() {
                return Err((redis::ErrorKind::UnexpectedReturnType, "not one value per key").into());
            }
            values.extend(found);
        }
        Ok(values)
    }

    /// Stores entries with their time to live. Takes at most the call's time-out; cancel-safe.
    pub(crate) async fn put(&self, namespace: Namespace, entries: &[(Digest, Hit)]) {
        if entries.is_empty() || self.breaker.is_open() {
            return;
        }
        self.call("set", async {
            let mut connection = self.connection();
            for part in entries.chunks(KEYS_PER_COMMAND_MAX) {
                let mut pipeline = redis::pipe();
                for (digest, hit) in part {
                    pipeline
                        .cmd("SET")
                        .arg(digest.redis_key(namespace))
                        .arg(to_value(digest, hit).as_slice())
                        .arg("PX")
                        .arg(self.ttl_ms)
                        .ignore();
                }
                pipeline.exec_async(&mut connection).await?;
            }
            Ok(())
        })
        .await;
    }

    /// While Redis is skipped, looks whether it is back: connects, and then wants one answer within a call's time-out. To be
    /// called about once a second, outside of any request. Takes about a second at most; cancel-safe.
    pub(crate) async fn probe(&self) {
        if !self.breaker.is_open() {
            return;
        }
        let mut connection = self.connection();
        let connected = timeout(CONNECT_TIMEOUT, ping(&mut connection)).await;
        if connected.is_err() {
            self.replace_connection();
            return;
        }
        if matches!(connected, Ok(Ok(())))
            && matches!(timeout(self.call_timeout, ping(&mut connection)).await, Ok(Ok(())))
            && self.breaker.close()
        {
            metrics::redis_skipped(false);
            tracing::info!("Redis answers again; the pre-filter uses it");
        }
    }

    /// Bounds one call, and lets the breaker learn from it.
    async fn call<T>(
        &self,
        command: &'static str,
        work: impl Future<Output = redis::RedisResult<T>>,
    ) -> Option<T> {
        let begun = Instant::now();
        let outcome = match timeout(self.call_timeout, work).await {
            Ok(outcome) => outcome.map_err(|error| Failure::of(&error)),
            Err(_) => Err(Failure::TimedOut),
        };
        metrics::redis_call(command, begun.elapsed());
        match outcome {
            Ok(value) => {
                self.breaker.succeeded();
                Some(value)
            }
            Err(failure) => {
                metrics::redis_error(failure.code());
                if self.breaker.failed() {
                    metrics::redis_skipped(true);
                    tracing::warn!(
                        reason = failure.code(),
                        "Redis fails; the pre-filter skips it until it answers"
                    );
                }
                None
            }
        }
    }

    fn connection(&self) -> ConnectionManager {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace_connection(&self) {
        if let Some(fresh) = connect_lazily(&self.client) {
            *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }
}

fn connect_lazily(client: &redis::Client) -> Option<ConnectionManager> {
    // Without retries of its own: the next probe is the retry. Without a time-out of its own: each call has one.
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE_MAX);
    ConnectionManager::new_lazy_with_config(client.clone(), config).ok()
}

/// Whether the cause is TLS.
fn is_of_tls(error: &redis::RedisError) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(this) = cause {
        let inner = this.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if this.is::<rustls::Error>() || inner.is_some_and(|inner| inner.is::<rustls::Error>()) {
            return true;
        }
        cause = this.source();
    }
    false
}

async fn ping(connection: &mut ConnectionManager) -> redis::RedisResult<()> {
    redis::cmd("PING").exec_async(connection).await
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("is_skipped", &self.is_skipped()).finish_non_exhaustive()
    }
}
