//! The edge over real connections.

mod bounds;
mod deliver;
mod encodings;
mod fetching;
mod freshness;
mod handshakes;
mod head;
mod large;
mod limits;
mod rejections;
mod revoked;
mod strangers;
mod unreadable;
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portero_directory::testing::{FixedConfig, tenant_key, tenant_keys};
use portero_directory::{Directory, DirectoryConfig, Reporting};
use portero_keyring::{KeyId, Keyring, rejection_aad, secret_aad};
use portero_outbound::testing::Scripted;
use portero_prefilter::{Disabled, Prefilter};
use portero_recipe::{Recipe, SignOptions, sign};
use portero_store::{ConfigSnapshot, ConfigStore, EventContent, Revision, Sealed};
use portero_types::{
    Clock, IngestKey, ManualClock, NewEvent, ProviderName, ReplicaId, SecretId, SecretNo, SourceId, SourceNo,
    TenantId, TenantNo, Timestamp,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::testing::{FakeRejections, FakeSecrets, FakeStore};
use crate::{
    AcceptConfig, AcceptHandle, Edge, EdgeConfig, Parts, Queues, RejectionQueue, SealCapture, serve,
};

/// One source per preset; its number is its place in this list.
const PRESETS: [(&str, &str); 4] = [
    ("stripe", "whsec_4f1c9a70b2e35d6888a1c0ffee123456"),
    ("github", "a-long-enough-secret-for-github"),
    ("slack", "8f742231b10e8888abcd99yyyzzz85a5"),
    ("adyen", "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"),
];
/// A source without a secret.
const BARE: u8 = 5;
/// A source whose recipe this version does not know.
const DISABLED: u8 = 6;

const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

/// How old the configuration may be here.
const STALE_AFTER: Duration = Duration::from_secs(3600);

fn reporting(machine: &ManualClock) -> Reporting {
    Reporting {
        replica: ReplicaId::new(NOW, 1),
        instance: "edge".to_owned(),
        roles: vec!["edge".to_owned()],
        version: "1".to_owned(),
        clock: Arc::new(machine.clone()),
    }
}

/// A running edge over stores in memory.
struct Gateway {
    address: SocketAddr,
    edge: Edge,
    store: Arc<FakeStore>,
    config: FixedConfig,
    directory: Directory,
    clock: ManualClock,
    /// The clock by which the configuration is fresh.
    machine: ManualClock,
    accept: AcceptHandle,
    /// What verification fetches.
    fetch: Arc<Scripted>,
    /// What handshakes bring.
    secrets: Arc<FakeSecrets>,
    /// What is remembered of refused requests.
    rejections: Arc<FakeRejections>,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    remembering: JoinHandle<()>,
}

impl Gateway {
    async fn start() -> Self {
        Self::with(EdgeConfig::default(), FakeStore::open(), Arc::new(Disabled)).await
    }

    async fn bounded(config: EdgeConfig) -> Self {
        Self::with(config, FakeStore::open(), Arc::new(Disabled)).await
    }

    async fn with(config: EdgeConfig, store: Arc<FakeStore>, prefilter: Arc<dyn Prefilter>) -> Self {
        let (snapshot, keyring) = configuration();
        let fixed = FixedConfig::new(snapshot);
        let config_store: Arc<dyn ConfigStore> = Arc::new(fixed.clone());
        // Nothing follows the store: tests say when to refresh.
        let machine = ManualClock::at(NOW);
        fixed.set_database_time(NOW);
        let patient = DirectoryConfig {
            stale_after: STALE_AFTER,
            reporting: Some(reporting(&machine)),
            ..DirectoryConfig::default()
        };
        let (directory, _) = Directory::open(config_store, keyring, patient).await.expect("readable");
        let clock = ManualClock::at(NOW);
        let (fetch, secrets) = (Scripted::new(), FakeSecrets::gated(1_000));
        let rejections = FakeRejections::open();
        let (queue, writer) = RejectionQueue::new(Arc::clone(&rejections) as _, seal_capture());
        let accept_config = AcceptConfig { queues: Queues::One, ..AcceptConfig::default() };
        let accept = AcceptHandle::new(
            accept_config,
            Arc::clone(&store) as _,
            Arc::clone(&prefilter),
            Arc::new(|_| {}),
        );
        let next = AtomicU64::new(1);
        let parts = Parts {
            directory: directory.clone(),
            accept: accept.clone(),
            prefilter,
            fetch: Arc::clone(&fetch) as _,
            secrets: Arc::clone(&secrets) as _,
            secret_uses: crate::SecretUses::new(),
            rejections: queue,
            clock: Arc::new(clock.clone()) as Arc<dyn Clock>,
            random: Arc::new(move || scattered(next.fetch_add(1, Ordering::Relaxed))),
            trace_parent: Arc::new(|| "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shutdown = CancellationToken::new();
        let edge = Edge::new(config, parts);
        let serving = tokio::spawn(serve(listener, None, edge.clone(), shutdown.clone()));
        let remembering = tokio::spawn(writer.run(shutdown.clone()));
        Self {
            address,
            edge,
            store,
            config: fixed,
            directory,
            clock,
            machine,
            accept,
            fetch,
            secrets,
            rejections,
            shutdown,
            serving,
            remembering,
        }
    }

    /// Adds a source under a number that is free. `recipe` is a preset's name or a recipe.
    async fn add(
        &self,
        number: u8,
        recipe: &str,
        secret: Option<&str>,
        change: impl FnOnce(&mut portero_store::Source),
    ) {
        self.config.change(|snapshot| {
            add(snapshot, number, recipe, secret);
            change(snapshot.sources.last_mut().expect("added"));
        });
        self.directory.refresh_now().await.expect("readable");
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("listening")
    }

    /// Sends bytes on a connection of their own and reads until it is closed.
    async fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        stream.write_all(request).await.expect("sent");
        Reply::read(&mut stream).await
    }

    /// Posts to a source, as one message with a content length.
    async fn post(&self, source: u8, headers: &[(String, String)], body: &[u8]) -> Reply {
        self.raw(&post(&path(source), headers, body)).await
    }

    /// Signs a body as the source's provider would, now, and posts it.
    async fn deliver(&self, source: u8, body: &[u8]) -> Reply {
        let (headers, body) = signed(source, body, self.clock.now());
        self.post(source, &headers, &body).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.serving.await.expect("no panic");
        self.accept.drain().await;
        self.remembering.await.expect("no panic");
    }

    fn stored(&self) -> Vec<String> {
        self.store.with(|state| state.log.clone())
    }
}

/// Distinct bits all over, which ids need: they overwrite some of them with version and variant.
fn scattered(n: u64) -> u128 {
    u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    /// Reads until the peer closes; status 0 when nothing came.
    async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let reading = stream.read_to_end(&mut bytes);
        // A reset after the answer is as good as a close.
        let _ = tokio::time::timeout(Duration::from_secs(20), reading).await.expect("closed in time");
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).expect("answers are text");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

fn key(source: u8) -> IngestKey {
    IngestKey::from_bytes([source; 16])
}

fn path(source: u8) -> String {
    format!("/in/{}", key(source))
}

fn request(line: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut request = format!("{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    request
}

fn post(path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut headers = headers.to_vec();
    headers.push(("content-length".to_owned(), body.len().to_string()));
    request(&format!("POST {path}"), &headers, body)
}

fn pairs(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn signed(source: u8, body: &[u8], now: Timestamp) -> (Vec<(String, String)>, Vec<u8>) {
    let (preset, secret) = PRESETS[usize::from(source) - 1];
    let recipe = Recipe::preset(preset).expect("a preset");
    let options = SignOptions { id: Some("delivery-1"), event_type: "push", now, ..SignOptions::default() };
    let signed = sign(&recipe, secret, body, options).expect("signs");
    (signed.headers, signed.body)
}

fn stripe_event(id: &str) -> Vec<u8> {
    format!(r#"{{"id":"{id}","object":"event","type":"invoice.paid","data":{{"object":{{"id":"in_1"}}}}}}"#)
        .into_bytes()
}

fn configuration() -> (ConfigSnapshot, Arc<Keyring>) {
    let keyring = Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable");
    let mut snapshot = ConfigSnapshot {
        revision: Revision(1),
        tenants: Vec::new(),
        tenant_keys: vec![tenant_key(TenantNo(1), &TenantId::new("acme").expect("valid"), &keyring)],
        sources: Vec::new(),
        secrets: Vec::new(),
        subscriptions: Vec::new(),
        grants: Vec::new(),
        freed_names: Vec::new(),
    };
    for (number, (preset, secret)) in (1..).zip(PRESETS) {
        add(&mut snapshot, number, preset, Some(secret));
    }
    add(&mut snapshot, BARE, "stripe", None);
    add(&mut snapshot, DISABLED, "a-preset-of-another-version", None);
    (snapshot, Arc::new(keyring))
}

/// What an accepted event held.
fn opened(event: &NewEvent) -> EventContent {
    let content = tenant_keys().open_event(event.receipt_id, &event.content).expect("opens");
    EventContent::decode(&Bytes::from_owner(content)).expect("in the format")
}

fn seal_capture() -> SealCapture {
    Arc::new(|source, request_id, bytes| {
        let keys = &source.verification.as_ref().ok()?.keys;
        Some(Sealed(keys.seal(&rejection_aad(&source.tenant, &source.id, request_id), bytes, [9; 12])))
    })
}

fn add(snapshot: &mut ConfigSnapshot, number: u8, recipe: &str, secret: Option<&str>) {
    let preset = if recipe.starts_with('{') { "" } else { recipe };
    let name = if preset.is_empty() { "custom" } else { preset };
    let source = portero_store::Source {
        no: SourceNo(i64::from(number)),
        tenant_no: TenantNo(1),
        tenant: TenantId::new("acme").expect("valid"),
        id: SourceId::new(format!("{name}-{number}")).expect("valid"),
        provider: ProviderName::new(name).expect("valid"),
        preset: preset.to_owned(),
        recipe: if preset.is_empty() { recipe.to_owned() } else { String::new() },
        ingest_key: key(number),
        public_urls: Vec::new(),
        settings: BTreeMap::new(),
        sealed_settings: portero_store::SealedSettings::default(),
        secret_expected_until: None,
        limits: portero_store::Limits::default(),
        created_at: Timestamp::EPOCH,
    };
    if let Some(secret) = secret {
        let id = SecretId::new("current").expect("valid");
        let aad = secret_aad(&source.tenant, &source.id, &id);
        let sealed = Sealed(tenant_keys().seal(&aad, secret.as_bytes(), [number; 12]));
        snapshot.secrets.push(portero_store::Secret {
            no: SecretNo(i64::from(number)),
            source_no: source.no,
            id,
            sealed,
            not_before: Timestamp::EPOCH,
            not_after: None,
            revoked_at: None,
            unseen: false,
            created_at: Timestamp::EPOCH,
        });
    }
    snapshot.sources.push(source);
}
