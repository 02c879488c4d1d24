//! What most cases begin with: a migrated store with a tenant and a source, and events to accept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use portero_keyring::{DataKey, KEY_BYTES, KeyId, Keyring, NONCE_BYTES, TenantKeys};
use portero_types::{
    EntityHash, Header, IngestKey, LaneCount, NewEvent, Position, ProviderName, ReceiptId, RequestId,
    SecretId, SessionId, Shard, ShardCount, SourceId, SubscriptionId, TenantId, Timestamp,
};

use super::{Database, migrated};
use crate::{
    Actor, Change, DeadLetterPolicy, DynStore, EventContent, Limits, NewRejection, NewSession, NewSource,
    NewSubscription, NewTenant, Sealed, SealedSettings, Source, StartAt, StoredEvent, Tenant, Verdict,
};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Stands in for random bits: distinct ids for distinct numbers. A UUIDv7 overwrites six of its first 24 bits.
pub fn random(number: u64) -> u128 {
    u128::from(number) << 24
}

/// A number that was never handed out before in this process.
pub fn fresh() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The moment at which cases happen.
pub const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

/// A day in seconds.
pub const DAY_SECS: i64 = 86_400;

/// A change that a tester asks for.
pub fn tester() -> Change {
    Change::new(Actor::local("tester"), "request-1", NOW)
}

/// A migrated store with one tenant and one source.
pub struct Fixture {
    pub store: DynStore,
    pub tenant: Tenant,
    pub source: Source,
    pub shards: ShardCount,
}

impl Fixture {
    /// Sets it up.
    pub async fn new(database: &dyn Database) -> Self {
        let store = migrated(database).await;
        let tenant = store.create_tenant(new_tenant("acme"), &tester()).await.expect("a tenant");
        let source = store.create_source(new_source("acme", "stripe-eu"), &tester()).await.expect("a source");
        let shards = store.heads().await.expect("heads").len();
        let shards = ShardCount::new(u16::try_from(shards).expect("few")).expect("a shard count");
        Self { store, tenant, source, shards }
    }

    /// An event whose ordering key is its id and whose body names it.
    pub fn event(&self, event_id: &str) -> NewEvent {
        self.keyed(event_id, &format!("stripe:{event_id}"))
    }

    /// An event of an entity.
    pub fn keyed(&self, event_id: &str, ordering_key: &str) -> NewEvent {
        event_of(&self.tenant, &self.source, event_id, ordering_key)
    }

    /// An event that lies in a shard.
    pub fn event_in(&self, shard: Shard, event_id: &str) -> NewEvent {
        let key = (0..)
            .map(|n| format!("stripe:{event_id}/{n}"))
            .find(|key| EntityHash::of(&self.tenant.id, key).slot().shard(self.shards) == shard)
            .expect("some key lies in each shard");
        self.keyed(event_id, &key)
    }

    /// Accepts one event and says where it stands.
    pub async fn accepted(&self, event: &NewEvent) -> Position {
        let verdicts = self.store.accept(std::slice::from_ref(event)).await.expect("accepted");
        position(verdicts[0])
    }

    /// Accepts so many events in a shard; the last one's position.
    pub async fn fill(&self, shard: Shard, count: usize) -> u64 {
        let batch: Vec<_> = (0..count).map(|_| self.event_in(shard, &format!("evt_{}", fresh()))).collect();
        let verdicts = self.store.accept(&batch).await.expect("accepted");
        verdicts.into_iter().map(|verdict| position(verdict).n).max().unwrap_or(0)
    }

    /// Creates a subscription to everything with the default number of lanes.
    pub async fn subscription(&self, id: &str) -> crate::Subscription {
        self.store.create_subscription(new_subscription(id), &tester()).await.expect("a subscription")
    }

    /// Opens a session that lives for an hour.
    pub async fn session(&self, instance: &str) -> SessionId {
        let session = new_session(instance, 3_600_000);
        self.store.open_session(&session).await.expect("a session");
        session.id
    }
}

/// The position of an accepted event.
///
/// # Panics
/// When it was not accepted.
#[track_caller]
pub fn position(verdict: Verdict) -> Position {
    match verdict {
        Verdict::Accepted { position } => position,
        other @ (Verdict::Duplicate { .. }
        | Verdict::Conflict { .. }
        | Verdict::Revoked
        | Verdict::SourceDeleted) => {
            panic!("not accepted: {other:?}")
        }
    }
}

/// An event of some tenant's source.
pub fn event_of(tenant: &Tenant, source: &Source, event_id: &str, ordering_key: &str) -> NewEvent {
    let number = fresh();
    let body = format!("{{\"id\":\"{event_id}\"}}");
    let receipt_id = ReceiptId::new(NOW, random(number));
    NewEvent {
        receipt_id,
        tenant_no: tenant.no,
        source_no: source.no,
        secret_no: None,
        provider: source.provider.clone(),
        event_id: event_id.to_owned(),
        id_derived: false,
        event_type: "invoice.paid".to_owned(),
        ordering_key: ordering_key.to_owned(),
        entity: EntityHash::of(&tenant.id, ordering_key),
        body_digest: digest(body.as_bytes()),
        received_at: NOW,
        expires_at: Timestamp::from_secs(NOW.as_secs() + 35 * DAY_SECS),
        request_id: RequestId::new(NOW, random(number)),
        trace_parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        body_bytes: u32::try_from(body.len()).expect("small"),
        content: sealed(receipt_id, body.as_bytes()),
    }
}

/// The content of an event with this body, sealed as [`keyring`] and [`data_key`] do.
pub fn sealed(receipt_id: ReceiptId, body: &[u8]) -> Bytes {
    let header = Header { name: "x-kept".to_owned(), value: b"as it was".to_vec() };
    let content = EventContent {
        content_type: "application/json".to_owned(),
        headers: vec![header],
        body: Bytes::copy_from_slice(body),
    };
    tenant_keys().seal_event(receipt_id, &content.encode(), [7; NONCE_BYTES]).into()
}

/// What an event held.
///
/// # Panics
/// When it cannot be opened.
#[track_caller]
pub fn opened(event: &StoredEvent) -> EventContent {
    let bytes = tenant_keys().open_event(event.receipt_id, &event.content).expect("it opens");
    EventContent::decode(&Bytes::copy_from_slice(&bytes)).expect("in the format")
}

/// The keyring that wraps the data keys of all tenants here.
pub fn keyring() -> Keyring {
    Keyring::generate(KeyId::new("k1").expect("a key id"), [7; KEY_BYTES]).expect("usable")
}

/// The first data key of every tenant here.
pub fn data_key() -> DataKey {
    DataKey::new(1, [11; KEY_BYTES])
}

/// What every tenant here seals with.
pub fn tenant_keys() -> TenantKeys {
    TenantKeys::new(vec![data_key()]).expect("a set")
}

/// The same event with other bytes, as another request would bring it.
pub fn with_body(event: &NewEvent, body: &[u8]) -> NewEvent {
    let mut event = again(event);
    event.body_digest = digest(body);
    event.body_bytes = u32::try_from(body.len()).expect("small");
    event.content = sealed(event.receipt_id, body);
    event
}

/// The same event as another request would bring it.
pub fn again(event: &NewEvent) -> NewEvent {
    let number = random(fresh());
    let receipt_id = ReceiptId::new(NOW, number);
    let content = tenant_keys().open_event(event.receipt_id, &event.content).expect("it opens");
    let content = tenant_keys().seal_event(receipt_id, &content, [8; NONCE_BYTES]).into();
    NewEvent { receipt_id, request_id: RequestId::new(NOW, number), content, ..event.clone() }
}

/// Stands in for SHA-256: stores compare digests and never compute them.
fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    let text = String::from_utf8_lossy(bytes);
    let hash = EntityHash::of(&tenant_id("digest"), &text).0;
    digest[..8].copy_from_slice(&hash.to_be_bytes());
    digest
}

pub fn tenant_id(id: &str) -> TenantId {
    TenantId::new(id).expect("a slug")
}

pub fn source_id(id: &str) -> SourceId {
    SourceId::new(id).expect("a slug")
}

pub fn secret_id(id: &str) -> SecretId {
    SecretId::new(id).expect("a slug")
}

pub fn subscription_id(id: &str) -> SubscriptionId {
    SubscriptionId::new(id).expect("a slug")
}

pub fn provider(name: &str) -> ProviderName {
    ProviderName::new(name).expect("a slug")
}

pub fn new_tenant(id: &str) -> NewTenant {
    let id = tenant_id(id);
    let key = keyring().wrap(&data_key(), &id, [5; NONCE_BYTES]);
    NewTenant {
        display_name: format!("The {id} company"),
        id,
        limits: Limits::default(),
        key,
        created_at: NOW,
    }
}

pub fn new_source(tenant: &str, id: &str) -> NewSource {
    let mut key = [7; 16];
    key[..8].copy_from_slice(&fresh().to_be_bytes());
    NewSource {
        tenant: tenant_id(tenant),
        id: source_id(id),
        provider: provider("stripe"),
        preset: "stripe".to_owned(),
        recipe: String::new(),
        ingest_key: IngestKey::from_bytes(key),
        public_urls: vec!["https://hooks.example.com/in".to_owned()],
        settings: BTreeMap::from([("webhook_id".to_owned(), "8PT5".to_owned())]),
        sealed_settings: SealedSettings::default(),
        secret_expected_until: None,
        limits: Limits::default(),
        created_at: NOW,
    }
}

pub fn new_secret(id: &str) -> crate::NewSecret {
    crate::NewSecret {
        tenant: tenant_id("acme"),
        source: source_id("stripe-eu"),
        id: secret_id(id),
        sealed: Sealed(vec![0, 255, 7, 0]),
        not_before: NOW,
        retire_others_at: None,
        created_at: NOW,
    }
}

/// A rejection of a source with a capture; later ones have greater ids.
pub fn new_rejection(source: &Source, secs: i64) -> NewRejection {
    let received_at = Timestamp::from_secs(NOW.as_secs() + secs);
    NewRejection {
        request_id: RequestId::new(received_at, random(fresh())),
        tenant_no: source.tenant_no,
        source_no: source.no,
        received_at,
        method: "POST".to_owned(),
        reason: "SIGNATURE_MISMATCH".to_owned(),
        detail: "no listed signature matches".to_owned(),
        body_bytes: 17,
        body_digest: [5; 32],
        capture: Some(Sealed(vec![1, 0, 255, 0xc3, 0x28])),
    }
}

pub fn new_subscription(id: &str) -> NewSubscription {
    NewSubscription {
        id: subscription_id(id),
        tenant: None,
        sources: vec![],
        event_types: vec![],
        lanes: LaneCount::DEFAULT,
        attempts_max: 10,
        defer_deadline_ms: 86_400_000,
        dead_letter_policy: DeadLetterPolicy::Continue,
        start_at: StartAt::Latest,
        created_at: NOW,
    }
}

pub fn new_session(instance: &str, ttl_ms: u64) -> NewSession {
    NewSession {
        id: SessionId::new(NOW, random(fresh())),
        instance: instance.to_owned(),
        ttl: std::time::Duration::from_millis(ttl_ms),
    }
}
