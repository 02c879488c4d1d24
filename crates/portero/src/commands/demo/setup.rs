//! The shop sets Portero up through the admin API: a tenant, a source with a recipe of its own, a secret, a subscription.

use anyhow::Context as _;
use portero_client::{Client, v1};
use portero_example_ledger::RECIPE;

/// The subscription that the ledger consumes.
pub(super) const SUBSCRIPTION: &str = "ledger";
const TENANT: &str = "shop";
const SOURCE: &str = "pagora";

/// What the shop enters at the provider.
pub(super) struct Source {
    /// Path of the endpoint.
    pub(super) ingest_path: String,
    /// What the provider signs with.
    pub(super) secret: String,
}

/// Creates all of it.
pub(super) async fn source_and_subscription(client: &Client) -> anyhow::Result<Source> {
    let mut admin = client.admin();
    let tenant = v1::CreateTenantRequest {
        tenant_id: TENANT.to_owned(),
        tenant: Some(v1::Tenant { display_name: "The shop".to_owned(), ..v1::Tenant::default() }),
    };
    admin.create_tenant(tenant).await.context("the tenant cannot be created")?;
    let parent = format!("tenants/{TENANT}");
    // Data that a tenant gives, not a line of Portero's code.
    let recipe = v1::source::Verification::RecipeJson(RECIPE.to_owned());
    let source = v1::CreateSourceRequest {
        parent: parent.clone(),
        source_id: SOURCE.to_owned(),
        source: Some(v1::Source { verification: Some(recipe), ..v1::Source::default() }),
    };
    let source = admin.create_source(source).await.context("the source cannot be created")?.into_inner();
    let secret = v1::CreateSecretRequest { parent: source.name, ..v1::CreateSecretRequest::default() };
    let secret = admin.create_secret(secret).await.context("the secret cannot be created")?.into_inner();
    let subscription = v1::CreateSubscriptionRequest {
        subscription_id: SUBSCRIPTION.to_owned(),
        subscription: Some(v1::Subscription {
            tenant: parent,
            start_at: v1::StartAt::Earliest.into(),
            ..v1::Subscription::default()
        }),
    };
    admin.create_subscription(subscription).await.context("the subscription cannot be created")?;
    Ok(Source { ingest_path: source.ingest_path, secret: secret.value })
}
