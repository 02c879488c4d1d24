//! A backlog, written through the store's own accept statement: as the edge writes it, in larger batches.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use portero_directory::open_tenant_keys;
use portero_keyring::{Keyring, TenantKeys};
use portero_store::codec::encode_headers;
use portero_store::{AcceptStore as _, ConfigStore as _, EventContent, KeyStore as _, Verdict};
use portero_store_postgres::PostgresStore;
use portero_types::{
    Clock as _, EntityHash, NewEvent, ProviderName, ReceiptId, RequestId, SourceId, SourceNo, TenantId,
    TenantNo, Timestamp,
};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use super::Size;
use super::setup::SOURCE;
use super::site::Site;
use crate::clock::SystemClock;
use crate::progress::say;
use crate::stripe::Events;

/// Events of one accept statement.
const BATCH: usize = 500;
/// Statements under way. Entities are divided among them, so that each entity's events stay in order.
const WRITERS: u64 = 2;
/// Events between two lines of progress.
const TELL_EVERY: u64 = 50_000;
/// As long as the gateway keeps receipts by default.
const RETENTION_SECS: i64 = 35 * 24 * 3600;

struct Writer {
    store: PostgresStore,
    tenant: TenantId,
    tenant_no: TenantNo,
    source_no: SourceNo,
    events: Events,
    size: Size,
    keys: TenantKeys,
}

/// Writes events 0 to `size.events` of a tenant's source.
pub(super) async fn fill(site: &Site, tenant: &str, size: Size) -> anyhow::Result<()> {
    let store = site.store().await?;
    let (tenant, source) = (TenantId::new(tenant)?, SourceId::new(SOURCE)?);
    let source_no = store.source(&tenant, &source).await?.context("the source was made before")?.no;
    let tenant_no = store.tenant(&tenant).await?.context("the tenant was made before")?.no;
    let events = Events::new(size.body_bytes, 0, size.entities)?;
    let keyring = Keyring::load(Path::new(&site.path("keyring.json")))?;
    let keys = open_tenant_keys(&store.tenant_keys(&tenant).await?, &keyring)?;
    let store_of = store.clone();
    let writer = Arc::new(Writer { store: store_of, tenant, tenant_no, source_no, events, size, keys });
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let writer = Arc::clone(&writer);
        writers.spawn(async move { writer.write(number).await });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    store.close().await;
    Ok(())
}

impl Writer {
    async fn write(&self, number: u64) -> anyhow::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        for n in (0..self.size.events).filter(|n| n % self.size.entities % WRITERS == number) {
            batch.push(self.event(n)?);
            if batch.len() == BATCH {
                self.accept(&mut batch).await?;
            }
            if n > 0 && n % TELL_EVERY == 0 {
                say(&format!("backlog: {n} of {} events", self.size.events));
            }
        }
        self.accept(&mut batch).await
    }

    async fn accept(&self, batch: &mut Vec<NewEvent>) -> anyhow::Result<()> {
        let verdicts = self.store.accept(batch).await.context("writing the backlog")?;
        let new = verdicts.iter().all(|verdict| matches!(verdict, Verdict::Accepted { .. }));
        ensure!(new, "an event of the backlog was there before");
        batch.clear();
        Ok(())
    }

    fn event(&self, n: u64) -> anyhow::Result<NewEvent> {
        let now = SystemClock.now();
        let mut body = Vec::with_capacity(self.events.bytes());
        self.events.write(n, &mut body);
        let ordering_key = format!("stripe:ch_{:024x}", n % self.size.entities);
        let receipt_id = ReceiptId::new(now, rand::random());
        let content =
            EventContent::encode_parts("application/json; charset=utf-8", &encode_headers(&[]), &body);
        Ok(NewEvent {
            receipt_id,
            tenant_no: self.tenant_no,
            source_no: self.source_no,
            secret_no: None,
            provider: ProviderName::new("stripe")?,
            event_id: format!("evt_{:08x}{n:016x}", 0),
            id_derived: false,
            event_type: "charge.succeeded".to_owned(),
            entity: EntityHash::of(&self.tenant, &ordering_key),
            ordering_key,
            body_digest: Sha256::digest(&body).into(),
            received_at: now,
            expires_at: Timestamp::from_secs(now.as_secs() + RETENTION_SECS),
            request_id: RequestId::new(now, rand::random()),
            trace_parent: String::new(),
            body_bytes: u32::try_from(body.len())?,
            content: self.keys.seal_event(receipt_id, &content, rand::random()).into(),
        })
    }
}
