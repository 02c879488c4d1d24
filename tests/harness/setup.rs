//! A tenant, its sources and a subscription, made through the admin API.

use std::sync::Arc;
use std::time::Duration;

use portero_client::v1;
use portero_recipe::Recipe;

use super::{Admin, Gateway, Provider, canaries, eventually, raw};

/// A source and what its provider knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// `tenants/…/sources/…`.
    pub(crate) name: String,
    /// `/in/…`.
    pub(crate) path: String,
    /// Its first secret.
    pub(crate) secret: String,
    pub(crate) recipe: Arc<Recipe>,
}

/// A running gateway with the tenant `acme`, its source `stripe`, and the subscription `billing` from the log's beginning.
pub(crate) struct Setup {
    pub(crate) admin: Admin,
    pub(crate) stripe: Source,
}

impl Setup {
    /// Makes all of it.
    pub(crate) async fn new(gateway: &Gateway) -> Self {
        let mut admin = gateway.admin().await;
        tenant(&mut admin, "acme").await;
        let stripe = Source::preset(&mut admin, gateway, "acme", "stripe").await;
        admin.create_subscription(subscription("billing", |_| {})).await.expect("a subscription");
        Self { admin, stripe }
    }

    /// The provider at a gateway's edge.
    pub(crate) fn provider(&self, gateway: &Gateway) -> Provider {
        Provider::new(gateway, &self.stripe)
    }

    /// The receipt of one of the source's events.
    pub(crate) async fn receipt(&mut self, event_id: &str) -> Option<v1::Receipt> {
        receipt(&mut self.admin, "stripe", event_id).await
    }
}

/// Acme's receipt by provider and event id.
async fn receipt(admin: &mut Admin, provider: &str, event_id: &str) -> Option<v1::Receipt> {
    let event = v1::EventKey { provider: provider.to_owned(), event_id: event_id.to_owned() };
    let key = Some(v1::get_receipt_request::Key::Event(event));
    let request = v1::GetReceiptRequest { parent: "tenants/acme".to_owned(), key };
    match admin.get_receipt(request).await {
        Ok(receipt) => Some(receipt.into_inner()),
        Err(status) if status.code() == tonic::Code::NotFound => None,
        Err(status) => panic!("{status:?}"),
    }
}

async fn tenant(admin: &mut Admin, id: &str) {
    let request = v1::CreateTenantRequest { tenant_id: id.to_owned(), tenant: Some(v1::Tenant::default()) };
    admin.create_tenant(request).await.expect("a tenant");
}

/// A request for a subscription to everything, from the log's beginning, changed by `change`.
pub(crate) fn subscription(
    id: &str,
    change: impl FnOnce(&mut v1::Subscription),
) -> v1::CreateSubscriptionRequest {
    let mut subscription =
        v1::Subscription { start_at: v1::StartAt::Earliest.into(), ..v1::Subscription::default() };
    change(&mut subscription);
    v1::CreateSubscriptionRequest { subscription_id: id.to_owned(), subscription: Some(subscription) }
}

/// Where a source is reached is known to its provider alone.
pub(crate) fn plant_path(ingest_path: &str) {
    canaries::plant("ingest key", ingest_path.trim_start_matches("/in/"));
}

impl Source {
    /// A source of a preset with a generated secret, known to the gateway's edge.
    pub(crate) async fn preset(admin: &mut Admin, gateway: &Gateway, tenant: &str, preset: &str) -> Self {
        let verification = v1::source::Verification::Preset(preset.to_owned());
        let recipe = Recipe::preset(preset).expect("a preset");
        let mut source = Self::without_secret(admin, tenant, preset, verification, recipe).await;
        source.secret = source.add_secret(admin, "").await.value;
        source.is_known(gateway).await;
        source
    }

    /// A source `chat` of Meta's preset with this verify token and a generated secret, known to the gateway's edge.
    pub(crate) async fn meta(admin: &mut Admin, gateway: &Gateway, verify_token: &str) -> Self {
        canaries::plant("secret setting", verify_token);
        let source = v1::Source {
            verification: Some(v1::source::Verification::Preset("meta".to_owned())),
            settings: [("verify_token".to_owned(), verify_token.to_owned())].into(),
            ..v1::Source::default()
        };
        let mut source =
            Self::made(admin, "acme", "chat", source, Recipe::preset("meta").expect("a preset")).await;
        source.secret = source.add_secret(admin, "").await.value;
        source.is_known(gateway).await;
        source
    }

    /// A source without a secret.
    pub(crate) async fn without_secret(
        admin: &mut Admin,
        tenant: &str,
        id: &str,
        verification: v1::source::Verification,
        recipe: Arc<Recipe>,
    ) -> Self {
        let source = v1::Source { verification: Some(verification), ..v1::Source::default() };
        Self::made(admin, tenant, id, source, recipe).await
    }

    async fn made(
        admin: &mut Admin,
        tenant: &str,
        id: &str,
        source: v1::Source,
        recipe: Arc<Recipe>,
    ) -> Self {
        let parent = format!("tenants/{tenant}");
        let request = v1::CreateSourceRequest { parent, source_id: id.to_owned(), source: Some(source) };
        let made = admin.create_source(request).await.expect("a source").into_inner();
        plant_path(&made.ingest_path);
        Self { name: made.name, path: made.ingest_path, secret: String::new(), recipe }
    }

    /// Adds a secret; an empty value has one generated.
    pub(crate) async fn add_secret(&self, admin: &mut Admin, value: &str) -> v1::Secret {
        let request = v1::CreateSecretRequest {
            parent: self.name.clone(),
            value: value.to_owned(),
            ..Default::default()
        };
        let secret = admin.create_secret(request).await.expect("a secret").into_inner();
        canaries::plant_secret(&secret.value);
        secret
    }

    /// Waits until the gateway's edge knows the source and a secret of it.
    pub(crate) async fn is_known(&self, gateway: &Gateway) {
        let (path, address) = (&self.path, gateway.edge_address());
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        eventually("the edge knows the source", Duration::from_secs(20), async || {
            let answer = raw(&address, request.as_bytes()).await;
            let known = answer.status != 404 && answer.reason() != "NO_ACTIVE_SECRET";
            known.then_some(())
        })
        .await;
    }
}
