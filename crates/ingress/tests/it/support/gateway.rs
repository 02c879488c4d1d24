//! A gateway: the edge, the batcher and the directory over a real store.

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
use portero_keyring::rejection_aad;
use portero_outbound::{Fetch, FetchError};
use portero_prefilter::Disabled;
use portero_store::{
    AcceptStore as _, Actor, Change, ConfigStore as _, EventContent, LogStore as _, PageRequest, Receipt,
    Sealed, StoredEvent,
};
use portero_store_sqlite::SqliteStore;
use portero_types::{Event, ManualClock, Redacted, Shard, SourceNo, TenantNo, Timestamp};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::endpoint::{Endpoint, create, new_secret};
use super::wire::{Answer, Message};
use super::{NOW, keyring, scattered, tenant_keys};

/// The provider's own server: gives whatever it was told to give.
#[derive(Default)]
struct Provider(Mutex<Option<Bytes>>);

#[async_trait]
impl Fetch for Provider {
    async fn fetch(&self, _: &portero_recipe::Fetch, _: SourceNo) -> Result<Bytes, FetchError> {
        self.0.lock().expect("not poisoned").clone().ok_or(FetchError::Unreachable)
    }
}

/// Writes secrets of handshakes as the program does.
struct Secrets(Arc<SqliteStore>, Directory);

#[async_trait]
impl SecretWriter for Secrets {
    async fn write(
        &self,
        source: &Source,
        secret: &Redacted<String>,
        now: Timestamp,
    ) -> Result<bool, SecretNotWritten> {
        let new = new_secret(&source.tenant, &source.id, "handshake", secret.expose_secret(), now);
        let change = Change::new(Actor::system("handshake"), "req-1", now);
        let written = self
            .0
            .write_handshake_secret(source.no, new, now, &change)
            .await
            .map_err(|_| SecretNotWritten)?;
        self.1.refresh_now().await.map_err(|_| SecretNotWritten)?;
        Ok(written)
    }
}

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) directory: Directory,
    accept: AcceptHandle,
    clock: ManualClock,
    provider: Arc<Provider>,
    shutdown: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
    remembering: tokio::task::JoinHandle<()>,
    folder: Option<tempfile::TempDir>,
}

impl Gateway {
    /// A gateway with these endpoints on a database of its own.
    pub(crate) async fn start(endpoints: &[Endpoint]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("portero.db");
        create(&path, endpoints).await;
        Self { folder: Some(folder), ..Self::open(&path, 1).await }
    }

    /// A gateway on a database that is there; `run` makes its ids differ from those of another one.
    pub(crate) async fn open(path: &Path, run: u64) -> Self {
        let store = Arc::new(SqliteStore::open(path).await.expect("opens"));
        // Nothing follows the store: tests say when to refresh.
        let patient =
            DirectoryConfig { stale_after: Duration::from_secs(3600), ..DirectoryConfig::default() };
        let (directory, _) =
            Directory::open(Arc::clone(&store) as _, keyring(), patient).await.expect("readable");
        let shards = store.shards().await.expect("readable");
        let config = AcceptConfig { shards, queues: Queues::One, ..AcceptConfig::default() };
        let accept = AcceptHandle::new(config, Arc::clone(&store) as _, Arc::new(Disabled), Arc::new(|_| {}));
        let next = AtomicU64::new(run << 32);
        let seal = Arc::new(|source: &Source, request_id, bytes: &[u8]| {
            let aad = rejection_aad(&source.tenant, &source.id, request_id);
            Some(Sealed(tenant_keys().seal(&aad, bytes, [4; 12])))
        });
        let (rejections, writer) = RejectionQueue::new(Arc::clone(&store) as _, seal);
        let (clock, provider) = (ManualClock::at(NOW), Arc::<Provider>::default());
        let parts = Parts {
            directory: directory.clone(),
            accept: accept.clone(),
            prefilter: Arc::new(Disabled),
            fetch: Arc::clone(&provider) as _,
            secrets: Arc::new(Secrets(Arc::clone(&store), directory.clone())),
            secret_uses: portero_ingress::SecretUses::new(),
            rejections,
            clock: Arc::new(clock.clone()),
            random: Arc::new(move || scattered(next.fetch_add(1, Ordering::Relaxed))),
            trace_parent: Arc::new(String::new),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shutdown = CancellationToken::new();
        let edge = Edge::new(EdgeConfig::default(), parts);
        let serving = tokio::spawn(serve(listener, None, edge, shutdown.clone()));
        let remembering = tokio::spawn(writer.run(shutdown.clone()));
        let folder = None;
        Self { address, store, directory, accept, clock, provider, shutdown, serving, remembering, folder }
    }

    /// Moves the clock.
    pub(crate) fn forward(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// What the provider's own server gives from now on; without it, nothing can be fetched.
    pub(crate) fn gives(&self, fetched: Option<&str>) {
        let fetched = fetched.map(|text| Bytes::copy_from_slice(text.as_bytes()));
        *self.provider.0.lock().expect("not poisoned") = fetched;
    }

    /// Sends a message on a connection of its own.
    pub(crate) async fn send(&self, endpoint: &Endpoint, message: &Message) -> Answer {
        self.raw(&message.to_bytes(&endpoint.path())).await
    }

    /// Sends bytes on a connection of their own.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.expect("sent");
        Answer::read(&mut stream).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("listening")
    }

    /// The receipt of an event.
    pub(crate) async fn receipt(&self, endpoint: &Endpoint, event_id: &str) -> Option<Receipt> {
        let tenant = self.tenant_no(endpoint);
        self.store.receipt_by_event_id(tenant, &endpoint.provider(), event_id).await.expect("readable")
    }

    fn tenant_no(&self, endpoint: &Endpoint) -> TenantNo {
        let snapshot = self.directory.snapshot();
        snapshot.source_by_ingest_key(&endpoint.key()).expect("an endpoint of this gateway").tenant_no
    }

    /// All stored events of the endpoint's tenant, in the order of their shard's log.
    pub(crate) async fn stored(&self, endpoint: &Endpoint) -> Vec<Event> {
        let tenant = self.tenant_no(endpoint);
        let mut ids = Vec::new();
        for (n, head) in self.store.heads().await.expect("readable").into_iter().enumerate() {
            let shard = Shard(u8::try_from(n).expect("few"));
            let mut after = 0;
            while after < head {
                let request = PageRequest::new(shard, after, 1_000);
                let page = self.store.page(request).await.expect("readable");
                let own = page.entries.iter().filter(|entry| entry.tenant_no == tenant);
                ids.extend(own.map(|entry| entry.receipt_id));
                after = page.entries.last().map_or(head, |entry| entry.n);
            }
        }
        let mut events = Vec::new();
        for some in ids.chunks(100) {
            let stored = self.store.events(some).await.expect("readable");
            events.extend(stored.into_iter().map(opened));
        }
        events.sort_by_key(|event| ids.iter().position(|id| *id == event.receipt_id));
        events
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.serving.await.expect("no panic");
        self.accept.drain().await;
        self.remembering.await.expect("no panic");
        self.store.close().await;
        drop(self.folder);
    }
}

/// The event as a consumer gets it.
fn opened(stored: StoredEvent) -> Event {
    let content = tenant_keys().open_event(stored.receipt_id, &stored.content).expect("opens");
    let content = EventContent::decode(&Bytes::from_owner(content)).expect("in the format");
    stored.with_content(content)
}
