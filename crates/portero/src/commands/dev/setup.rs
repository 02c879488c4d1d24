//! Sets up the demo tenant through the admin API, as an operator would. What is there already stays as it is.

use std::path::Path;

use anyhow::Context as _;
use portero_client::{Admin, Client, ClientConfig, Token, v1};
use portero_recipe::Recipe;
use tonic::Code;

use super::{SOURCES, SUBSCRIPTION, TENANT};
use crate::dev_file::{DevFile, DevSource};
use crate::gateway::Addresses;

/// Makes what is missing; answers what there is.
pub(super) async fn demo_tenant(addresses: &Addresses, data: &Path) -> anyhow::Result<DevFile> {
    let edge = addresses.edge.context("the edge is not running")?;
    let grpc = addresses.grpc.context("gRPC is not served")?;
    let known = DevFile::read(data).ok().flatten();
    let mut client = ClientConfig::new(format!("http://{grpc}"));
    client.token = Token::file(data.join("admin.token"));
    let mut admin = Client::connect(client).await?.admin();
    let tenant = v1::CreateTenantRequest {
        tenant_id: TENANT.to_owned(),
        tenant: Some(v1::Tenant { display_name: "Demo".to_owned(), ..v1::Tenant::default() }),
    };
    allow_existing(admin.create_tenant(tenant).await.map(drop))?;
    let mut sources = Vec::new();
    for (id, preset) in SOURCES {
        let secret = known.as_ref().and_then(|file| file.sources.iter().find(|source| source.source == id));
        let secret = secret.map(|source| source.secret.clone());
        sources.push(source(&mut admin, id, preset, secret).await?);
    }
    let subscription = v1::CreateSubscriptionRequest {
        subscription_id: SUBSCRIPTION.to_owned(),
        subscription: Some(v1::Subscription {
            tenant: format!("tenants/{TENANT}"),
            start_at: v1::StartAt::Earliest.into(),
            ..v1::Subscription::default()
        }),
    };
    allow_existing(admin.create_subscription(subscription).await.map(drop))?;
    Ok(DevFile {
        edge_url: format!("http://{edge}"),
        grpc_url: format!("http://{grpc}"),
        tenant: TENANT.to_owned(),
        subscription: SUBSCRIPTION.to_owned(),
        sources,
    })
}

async fn source(
    admin: &mut Admin,
    id: &str,
    preset: &str,
    secret: Option<String>,
) -> anyhow::Result<DevSource> {
    let parent = format!("tenants/{TENANT}");
    let name = format!("{parent}/sources/{id}");
    let recipe = custom_recipe(preset);
    let verification = match &recipe {
        Some(json) => v1::source::Verification::RecipeJson(json.clone()),
        None => v1::source::Verification::Preset(preset.to_owned()),
    };
    let create = v1::CreateSourceRequest {
        parent,
        source_id: id.to_owned(),
        source: Some(v1::Source { verification: Some(verification), ..v1::Source::default() }),
    };
    let made = match admin.create_source(create).await {
        Ok(source) => source.into_inner(),
        Err(status) if status.code() == Code::AlreadyExists => {
            admin.get_source(v1::GetSourceRequest { name: name.clone() }).await?.into_inner()
        }
        Err(status) => return Err(status.into()),
    };
    let secret = match secret {
        Some(secret) => secret,
        // The file with the secrets is gone: another secret beside the one that nobody knows any more.
        None => {
            let create = v1::CreateSecretRequest { parent: name, ..v1::CreateSecretRequest::default() };
            admin.create_secret(create).await?.into_inner().value
        }
    };
    Ok(DevSource {
        source: id.to_owned(),
        preset: preset.to_owned(),
        ingest_path: made.ingest_path,
        secret,
        recipe,
    })
}

/// The model of a custom recipe, for the source that shows one.
fn custom_recipe(preset: &str) -> Option<String> {
    Recipe::presets()
        .find(|known| known.name == preset && preset == "custom")
        .map(|known| known.json.to_owned())
}

fn allow_existing(result: Result<(), tonic::Status>) -> Result<(), tonic::Status> {
    match result {
        Err(status) if status.code() == Code::AlreadyExists => Ok(()),
        result => result,
    }
}
