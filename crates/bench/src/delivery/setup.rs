//! Tenants, sources and subscriptions, made through the admin API as an operator makes them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use portero_client::{Admin, v1};
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::stripe::Key;

/// How long a gateway may take to know of a new source.
const PATIENCE: Duration = Duration::from_secs(20);

/// The id of every source here.
pub(super) const SOURCE: &str = "stripe";

/// A tenant's Stripe source and its secret.
#[derive(Clone)]
pub(super) struct Source {
    /// `/in/…`.
    pub(super) path: String,
    pub(super) key: Key,
}

impl Source {
    /// Makes a tenant with a source.
    pub(super) async fn create(admin: &mut Admin, tenant: &str) -> anyhow::Result<Self> {
        let request =
            v1::CreateTenantRequest { tenant_id: tenant.to_owned(), tenant: Some(v1::Tenant::default()) };
        admin.create_tenant(request).await.context("creating a tenant")?;
        let verification = v1::source::Verification::Preset("stripe".to_owned());
        let request = v1::CreateSourceRequest {
            parent: format!("tenants/{tenant}"),
            source_id: SOURCE.to_owned(),
            source: Some(v1::Source { verification: Some(verification), ..v1::Source::default() }),
        };
        let source = admin.create_source(request).await.context("creating a source")?.into_inner();
        let request = v1::CreateSecretRequest { parent: source.name, ..v1::CreateSecretRequest::default() };
        let secret = admin.create_secret(request).await.context("creating a secret")?.into_inner();
        Ok(Self { path: source.ingest_path, key: Key::new(&secret.value) })
    }

    /// Waits until a gateway's edge knows the source and its secret.
    pub(super) async fn is_known_at(&self, edge: SocketAddr) -> anyhow::Result<()> {
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            self.path
        );
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut connection = Connection::open(edge).await?;
            let status = connection.exchange(request.as_bytes()).await?;
            if status != 404 && !connection.body().contains("NO_ACTIVE_SECRET") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the edge does not learn of a new source");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Creates a subscription to everything, from the log's beginning or from now on.
pub(super) async fn subscribe(admin: &mut Admin, id: &str, start_at: v1::StartAt) -> anyhow::Result<()> {
    let subscription = v1::Subscription { start_at: start_at.into(), ..v1::Subscription::default() };
    let request =
        v1::CreateSubscriptionRequest { subscription_id: id.to_owned(), subscription: Some(subscription) };
    admin.create_subscription(request).await.context("creating a subscription")?;
    Ok(())
}
