//! A gateway with a source for each sample, and a second one under another secret.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use portero_directory::{Directory, DirectoryConfig, Source};
use portero_ingress::{
    AcceptConfig, AcceptHandle, Edge, EdgeConfig, Parts, Queues, RejectionQueue, SecretNotWritten,
    SecretWriter, serve,
};
use portero_keyring::{KeyId, Keyring, rejection_aad, secret_aad};
use portero_outbound::{Fetch, FetchError};
use portero_prefilter::Disabled;
use portero_store::{
    AcceptStore as _, ConfigStore as _, LogStore as _, NewSecret, NewSource, NewTenant, PageRequest, Receipt,
    SchemaStore as _, Sealed,
};
use portero_store_sqlite::SqliteStore;
use portero_types::{
    IngestKey, ManualClock, ProviderName, Redacted, SecretId, Shard, SourceId, TenantId, TenantNo, Timestamp,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::sample::Sample;

/// The moment at which the samples are signed.
pub(super) const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);
/// What the other source of a sample adds to its name.
const OTHER: &str = "-other";

fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable"))
}

/// The provider's own server: gives what the sample at hand says.
#[derive(Default)]
struct Provider(Mutex<Option<Bytes>>);

#[async_trait]
impl Fetch for Provider {
    async fn fetch(&self, _: &portero_recipe::Fetch) -> Result<Bytes, FetchError> {
        self.0.lock().expect("not poisoned").clone().ok_or(FetchError::Unreachable)
    }
}

/// Writes secrets of handshakes as the program does.
struct Secrets(Arc<SqliteStore>);

#[async_trait]
impl SecretWriter for Secrets {
    async fn write(
        &self,
        source: &Source,
        secret: &Redacted<String>,
        now: Timestamp,
    ) -> Result<bool, SecretNotWritten> {
        let new = new_secret(&source.tenant, &source.id, secret.expose_secret());
        self.0.write_handshake_secret(source.no, new, now).await.map_err(|_| SecretNotWritten)
    }
}

fn new_secret(tenant: &TenantId, source: &SourceId, value: &str) -> NewSecret {
    let id = SecretId::new("first").expect("valid");
    let sealed = keyring().seal(value.as_bytes(), &secret_aad(tenant, source, &id), [3; 12]);
    NewSecret {
        tenant: tenant.clone(),
        source: source.clone(),
        id,
        sealed: Sealed { key_id: sealed.key_id, bytes: sealed.bytes },
        not_before: Timestamp::EPOCH,
        retire_others_at: None,
        created_at: NOW,
    }
}

/// An answer as read from the wire.
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers = lines.map(header).collect();
        Self { status: status.parse().expect("a number"), headers, body: body.to_owned() }
    }
}

pub(super) struct Gateway {
    address: SocketAddr,
    store: Arc<SqliteStore>,
    accept: AcceptHandle,
    clock: Arc<ManualClock>,
    provider: Arc<Provider>,
    keys: BTreeMap<String, (IngestKey, TenantNo)>,
    shutdown: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
    remembering: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

/// Distinct bits all over, which ids need: they overwrite some of them with version and variant.
fn scattered(n: u64) -> u128 {
    u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Another secret in a form that the sample's recipe knows.
fn another_secret(sample: &Sample) -> Option<String> {
    let name = sample.secret.split_once('|').map_or("", |(name, _)| name);
    let rsa = include_str!("../../../recipe/tests/it/keys/rsa.public.pem");
    let p256 = include_str!("../../../recipe/tests/it/keys/p256.public.pem");
    let spki = p256.lines().filter(|line| !line.starts_with("---")).collect();
    let candidates = [
        format!("{name}|another"),
        "whsec_YW5vdGhlciBzZWNyZXQgYWx0b2dldGhlcg==".to_owned(),
        // RFC 8032, section 7.1, test 1.
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".to_owned(),
        rsa.to_owned(),
        p256.to_owned(),
        spki,
    ];
    candidates.into_iter().find(|text| portero_recipe::clean_secret(&sample.preset.recipe, text).is_ok())
}

async fn create(path: &Path, samples: &[Sample]) -> BTreeMap<String, (IngestKey, TenantNo)> {
    let store = SqliteStore::open(path).await.expect("opens");
    store.migrate().await.expect("migrates");
    let mut keys = BTreeMap::new();
    for sample in samples {
        let tenant = TenantId::new(&sample.source).expect("valid");
        let new = NewTenant { id: tenant.clone(), display_name: String::new(), created_at: NOW };
        let tenant_no = store.create_tenant(new).await.expect("created").no;
        let other = another_secret(sample).map(|secret| (format!("{}{OTHER}", sample.source), secret));
        let own = (sample.source.clone(), sample.secret.clone());
        for (name, secret) in [Some(own), other].into_iter().flatten() {
            let source = SourceId::new(&name).expect("valid");
            let key = IngestKey::from_bytes(scattered(1_000_000 + keys.len() as u64).to_be_bytes());
            let waits = sample.secret.is_empty() && sample.preset.recipe.writes_secret();
            let new = NewSource {
                tenant: tenant.clone(),
                id: source.clone(),
                provider: ProviderName::new(sample.preset.name).expect("valid"),
                preset: sample.preset.name.to_owned(),
                recipe: String::new(),
                ingest_key: key,
                public_urls: vec![sample.url.clone()],
                settings: sample.settings.clone(),
                secret_expected_until: waits.then(|| NOW.plus(Duration::from_secs(60))),
                created_at: NOW,
            };
            store.create_source(new).await.expect("created");
            if !secret.is_empty() {
                store.add_secret(new_secret(&tenant, &source, &secret)).await.expect("added");
            }
            keys.insert(name, (key, tenant_no));
        }
    }
    store.close().await;
    keys
}

impl Gateway {
    pub(super) async fn start(samples: &[Sample]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("portero.db");
        let keys = create(&path, samples).await;
        let store = Arc::new(SqliteStore::open(&path).await.expect("opens"));
        let (directory, _) = Directory::open(Arc::clone(&store) as _, keyring(), DirectoryConfig::default())
            .await
            .expect("readable");
        let shards = store.shards().await.expect("readable");
        let config = AcceptConfig { shards, queues: Queues::One, ..AcceptConfig::default() };
        let accept = AcceptHandle::new(config, Arc::clone(&store) as _, Arc::new(Disabled), Arc::new(|_| {}));
        let next = AtomicU64::new(0);
        let seal = Arc::new(|source: &Source, request_id, bytes: &[u8]| {
            let aad = rejection_aad(&source.tenant, &source.id, request_id);
            let sealed = keyring().seal(bytes, &aad, [4; 12]);
            Sealed { key_id: sealed.key_id, bytes: sealed.bytes }
        });
        let (rejections, writer) = RejectionQueue::new(Arc::clone(&store) as _, seal);
        let (clock, provider) = (Arc::new(ManualClock::at(NOW)), Arc::<Provider>::default());
        let parts = Parts {
            directory,
            accept: accept.clone(),
            prefilter: Arc::new(Disabled),
            fetch: Arc::clone(&provider) as _,
            secrets: Arc::new(Secrets(Arc::clone(&store))),
            rejections,
            clock: Arc::clone(&clock) as _,
            random: Arc::new(move || scattered(next.fetch_add(1, Ordering::Relaxed))),
            trace_parent: Arc::new(String::new),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shutdown = CancellationToken::new();
        let edge = Edge::new(EdgeConfig::default(), parts);
        let serving = tokio::spawn(serve(listener, edge, shutdown.clone()));
        let remembering = tokio::spawn(writer.run(shutdown.clone()));
        let _folder = folder;
        Self { address, store, accept, clock, provider, keys, shutdown, serving, remembering, _folder }
    }

    /// Moves the clock.
    pub(super) fn forward(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(super) async fn send(&self, sample: &Sample, body: &[u8]) -> Answer {
        self.send_to(&sample.source, sample, body).await
    }

    pub(super) async fn send_under_another_secret(&self, sample: &Sample) -> Answer {
        self.send_to(&format!("{}{OTHER}", sample.source), sample, &sample.body).await
    }

    async fn send_to(&self, source: &str, sample: &Sample, body: &[u8]) -> Answer {
        *self.provider.0.lock().expect("not poisoned") = sample.fetched.clone().map(Bytes::from);
        let (key, _) = self.keys.get(source).unwrap_or_else(|| panic!("{}: no source", sample.name));
        let query = if sample.query.is_empty() { String::new() } else { format!("?{}", sample.query) };
        let mut request = format!(
            "{} /in/{key}{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n",
            sample.method
        );
        if sample.method != "GET" && sample.method != "HEAD" {
            request.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in sample.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut stream = TcpStream::connect(self.address).await.expect("listening");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.write_all(body).await.expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("answered");
        Answer::parse(&String::from_utf8(answer).expect("text"))
    }

    /// The receipt of a sample's event.
    pub(super) async fn receipt(&self, sample: &Sample, event_id: &str) -> Option<Receipt> {
        let (_, tenant) = self.keys[&sample.source];
        let provider = ProviderName::new(sample.preset.name).expect("valid");
        self.store.receipt_by_event_id(tenant, &provider, event_id).await.expect("readable")
    }

    /// How many log entries a sample's tenant has.
    pub(super) async fn receipts(&self, sample: &Sample) -> usize {
        let (_, tenant) = self.keys[&sample.source];
        let mut count = 0;
        for (n, head) in self.store.heads().await.expect("readable").into_iter().enumerate() {
            let shard = Shard(u8::try_from(n).expect("few"));
            let mut after = 0;
            while after < head {
                let request = PageRequest { shard, after, limit: 1_000 };
                let page = self.store.page(request).await.expect("readable");
                count += page.entries.iter().filter(|entry| entry.tenant_no == tenant).count();
                after = page.entries.last().map_or(head, |entry| entry.n);
            }
        }
        count
    }

    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        self.serving.await.expect("no panic");
        self.accept.drain().await;
        self.remembering.await.expect("no panic");
        self.store.close().await;
    }
}
