//! The edge, the batcher and the directory over a real store.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use portero_directory::{Directory, DirectoryConfig, Source};
use portero_ingress::{
    AcceptConfig, AcceptHandle, Edge, EdgeConfig, Parts, Queues, RejectionQueue, SecretNotWritten,
    SecretWriter, serve,
};
use portero_keyring::{KeyId, Keyring, rejection_aad, secret_aad};
use portero_outbound::Offline;
use portero_prefilter::Disabled;
use portero_recipe::{Recipe, SignOptions, sign};
use portero_store::{
    AcceptStore as _, CapturedRequest, ConfigStore as _, NewSecret, NewSource, NewTenant,
    RejectionStore as _, SchemaStore as _, Sealed, SourceUpdate,
};
use portero_store_sqlite::SqliteStore;
use portero_types::{
    IngestKey, ManualClock, ProviderName, Redacted, SecretId, SourceId, TenantId, TenantNo, Timestamp,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const SECRET: &str = "whsec_4f1c9a70b2e35d6888a1c0ffee123456";
const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

fn keyring() -> Arc<Keyring> {
    Arc::new(Keyring::generate(KeyId::new("k1").expect("valid"), [7; 32]).expect("usable"))
}

/// A new database with one tenant and one Stripe source.
async fn create(path: &Path) {
    let store = SqliteStore::open(path).await.expect("opens");
    store.migrate().await.expect("migrates");
    let (tenant, source) = (TenantId::new("acme").expect("valid"), SourceId::new("stripe").expect("valid"));
    let new = NewTenant { id: tenant.clone(), display_name: "Acme".into(), created_at: NOW };
    store.create_tenant(new).await.expect("created");
    let new = NewSource {
        tenant: tenant.clone(),
        id: source.clone(),
        provider: ProviderName::new("stripe").expect("valid"),
        preset: "stripe".into(),
        recipe: String::new(),
        ingest_key: IngestKey::from_bytes([1; 16]),
        public_urls: Vec::new(),
        settings: BTreeMap::new(),
        secret_expected_until: None,
        created_at: NOW,
    };
    store.create_source(new).await.expect("created");
    let new = new_secret(&tenant, &source, "first", SECRET, NOW);
    store.add_secret(new).await.expect("added");
    store.close().await;
}

struct Gateway {
    address: SocketAddr,
    store: Arc<SqliteStore>,
    accept: AcceptHandle,
    directory: Directory,
    shutdown: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
    remembering: tokio::task::JoinHandle<()>,
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
        let written =
            self.0.write_handshake_secret(source.no, new, now).await.map_err(|_| SecretNotWritten)?;
        self.1.refresh_now().await.map_err(|_| SecretNotWritten)?;
        Ok(written)
    }
}

fn new_secret(tenant: &TenantId, source: &SourceId, id: &str, value: &str, now: Timestamp) -> NewSecret {
    let id = SecretId::new(id).expect("valid");
    let sealed = keyring().seal(value.as_bytes(), &secret_aad(tenant, source, &id), [3; 12]);
    NewSecret {
        tenant: tenant.clone(),
        source: source.clone(),
        id,
        sealed: Sealed { key_id: sealed.key_id, bytes: sealed.bytes },
        not_before: now,
        retire_others_at: None,
        created_at: now,
    }
}

/// Distinct bits all over, which ids need: they overwrite some of them with version and variant.
fn scattered(n: u64) -> u128 {
    u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Starts a gateway; `run` makes its ids differ from those of another one.
async fn start(path: &Path, run: u64) -> Gateway {
    let store = Arc::new(SqliteStore::open(path).await.expect("opens"));
    let (directory, _) = Directory::open(Arc::clone(&store) as _, keyring(), DirectoryConfig::default())
        .await
        .expect("readable");
    let shards = store.shards().await.expect("readable");
    let config = AcceptConfig { shards, queues: Queues::One, ..AcceptConfig::default() };
    let accept = AcceptHandle::new(config, Arc::clone(&store) as _, Arc::new(Disabled), Arc::new(|_| {}));
    let next = AtomicU64::new(run << 32);
    let seal = Arc::new(|source: &Source, request_id, bytes: &[u8]| {
        let sealed = keyring().seal(bytes, &rejection_aad(&source.tenant, &source.id, request_id), [4; 12]);
        Sealed { key_id: sealed.key_id, bytes: sealed.bytes }
    });
    let (rejections, writer) = RejectionQueue::new(Arc::clone(&store) as _, seal);
    let parts = Parts {
        directory: directory.clone(),
        accept: accept.clone(),
        prefilter: Arc::new(Disabled),
        fetch: Arc::new(Offline),
        secrets: Arc::new(Secrets(Arc::clone(&store), directory.clone())),
        rejections,
        clock: Arc::new(ManualClock::at(NOW)),
        random: Arc::new(move || scattered(next.fetch_add(1, Ordering::Relaxed))),
        trace_parent: Arc::new(String::new),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, Edge::new(EdgeConfig::default(), parts), shutdown.clone()));
    let remembering = tokio::spawn(writer.run(shutdown.clone()));
    Gateway { address, store, accept, directory, shutdown, serving, remembering }
}

impl Gateway {
    async fn stop(self) {
        self.shutdown.cancel();
        self.serving.await.expect("no panic");
        self.accept.drain().await;
        self.remembering.await.expect("no panic");
        self.store.close().await;
    }
}

async fn deliver(address: SocketAddr, id: &str, entity: &str) -> String {
    let body = format!(r#"{{"id":"{id}","type":"invoice.paid","data":{{"object":{{"id":"{entity}"}}}}}}"#);
    let recipe = Recipe::preset("stripe").expect("a preset");
    let options = SignOptions { now: NOW, ..SignOptions::default() };
    let signed = sign(&recipe, SECRET, body.as_bytes(), options).expect("signs");
    post(address, &signed.headers, &signed.body).await
}

async fn post(address: SocketAddr, headers: &[(String, String)], body: &[u8]) -> String {
    let mut request = format!(
        "POST /in/{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n",
        IngestKey::from_bytes([1; 16]),
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let mut stream = TcpStream::connect(address).await.expect("listening");
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream.write_all(body).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_copies_at_once_are_one_receipt_and_two_hundred_good_answers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = start(&path, 1).await;
    let address = gateway.address;
    let copies: Vec<_> = (0..200).map(|_| tokio::spawn(deliver(address, "evt_1", "in_1"))).collect();
    let mut accepted = 0;
    for copy in copies {
        let answer = copy.await.expect("no panic");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        accepted += usize::from(answer.contains(r#""status":"accepted""#));
    }
    assert_eq!(accepted, 1);
    gateway.stop().await;

    // A restart remembers.
    let gateway = start(&path, 2).await;
    assert!(deliver(gateway.address, "evt_1", "in_1").await.contains(r#""status":"duplicate""#));
    assert!(deliver(gateway.address, "evt_2", "in_1").await.contains(r#""status":"accepted""#));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_answered_as_accepted_has_its_receipt_and_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = start(&path, 1).await;
    let address = gateway.address;
    let sends: Vec<_> = (0..300)
        .map(|n| {
            tokio::spawn(
                async move { deliver(address, &format!("evt_{n}"), &format!("in_{}", n % 17)).await },
            )
        })
        .collect();
    for send in sends {
        let answer = send.await.expect("no panic");
        assert!(answer.contains(r#""status":"accepted""#), "{answer}");
    }
    let provider = ProviderName::new("stripe").expect("valid");
    let mut places = std::collections::HashSet::new();
    for n in 0..300 {
        let receipt = gateway.store.receipt_by_event_id(TenantNo(1), &provider, &format!("evt_{n}")).await;
        let receipt = receipt.expect("readable").expect("there");
        assert!(receipt.secret_no.is_some(), "it says which secret verified");
        assert!(places.insert(receipt.position.expect("in the log")), "a place of its own");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_is_found_again_after_a_restart_with_what_it_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = start(&path, 1).await;
    let headers = vec![("stripe-signature".to_owned(), "t=1,v1=00".to_owned())];
    let answer = post(gateway.address, &headers, b"{\"id\":\"evt_1\"}").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    // Shutting down writes what waits.
    gateway.stop().await;

    let gateway = start(&path, 2).await;
    let (tenant, source) = (TenantId::new("acme").expect("valid"), SourceId::new("stripe").expect("valid"));
    let page = gateway.store.list(&tenant, &source, None, 10).await.expect("readable");
    let [row] = &page.items[..] else { panic!("one: {page:?}") };
    assert!(answer.contains(&row.request_id.to_string()) && answer.contains(&row.reason), "{answer}");
    let stored = gateway.store.get(&tenant, row.request_id).await.expect("readable").expect("there");
    let capture = stored.capture.expect("captured");
    let aad = rejection_aad(&tenant, &source, row.request_id);
    let bytes = keyring().open(&capture.key_id, &capture.bytes, &aad).expect("opens");
    let request = CapturedRequest::decode(&bytes).expect("in the format");
    assert_eq!(request.body, "{\"id\":\"evt_1\"}");
    assert!(request.headers.iter().any(|header| header.name == "stripe-signature"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_brings_the_secret_once_and_events_verify_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("portero.db");
    create(&path).await;
    let gateway = start(&path, 1).await;
    let (tenant, source) = (TenantId::new("acme").expect("valid"), SourceId::new("stripe").expect("valid"));
    let update = SourceUpdate {
        preset: Some("asana".to_owned()),
        recipe: Some(String::new()),
        secret_expected_until: Some(Some(NOW.plus(std::time::Duration::from_secs(60)))),
        ..SourceUpdate::new(tenant, source)
    };
    gateway.store.update_source(update).await.expect("updated");
    gateway.directory.refresh_now().await.expect("readable");

    let secret = "b537207f20cbfa02357cf448134da559e8bd39d61597dcd5631b8012eae53e81";
    let hook = vec![("x-hook-secret".to_owned(), secret.to_owned())];
    let shakes: Vec<_> = (0..8)
        .map(|_| {
            let (address, hook) = (gateway.address, hook.clone());
            tokio::spawn(async move { post(address, &hook, b"").await })
        })
        .collect();
    let mut taken = 0;
    for shake in shakes {
        let answer = shake.await.expect("no panic");
        let good = answer.starts_with("HTTP/1.1 200 ");
        assert!(good || answer.contains("HANDSHAKE_NOT_EXPECTED"), "{answer}");
        assert_eq!(good, answer.contains(&format!("x-hook-secret: {secret}")), "{answer}");
        taken += usize::from(good);
    }
    assert_eq!(taken, 1, "of many at once one succeeds");

    let recipe = Recipe::preset("asana").expect("a preset");
    let body = br#"{"events":[{"action":"changed","resource":{"gid":"7","resource_type":"task"}}]}"#;
    let options = SignOptions { now: NOW, ..SignOptions::default() };
    let signed = sign(&recipe, secret, body, options).expect("signs");
    let answer = post(gateway.address, &signed.headers, &signed.body).await;
    assert!(answer.contains(r#""status":"accepted""#), "{answer}");
    gateway.stop().await;
}
