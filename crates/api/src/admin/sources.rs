//! Sources.

use std::collections::BTreeMap;

use portero_auth::Action;
use portero_proto::v1;
use portero_proto::v1::source::Verification;
use portero_recipe::Recipe;
use portero_store::NewSource;
use portero_types::{IngestKey, ProviderName, SourceId, TenantId};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

const RECIPE_BYTES_MAX: usize = 64 * 1024;
const URL_BYTES_MAX: usize = 2_048;

impl Admin {
    pub(super) async fn do_create_source(
        &self,
        request: Request<v1::CreateSourceRequest>,
    ) -> Answer<v1::Source> {
        let (metadata, message) = split(request);
        let tenant = name::tenant(&message.parent, "parent")?;
        self.check(&metadata, Action::CreateSource(&tenant)).await?;
        let id: SourceId = name::id(&message.source_id, "source_id")?;
        let wanted = message.source.unwrap_or_default();
        let (preset, recipe) = verification(wanted.verification)?;
        let provider = provider(&wanted.provider, &preset, &id)?;
        if !wanted.public_url.is_empty() && !is_url(&wanted.public_url) {
            return Err(invalid("source.public_url", "must be an http or https URL of at most 2048 bytes"));
        }
        let mut key = [0_u8; 16];
        key.copy_from_slice(&(self.entropy)()[..16]);
        let source = NewSource {
            tenant,
            id,
            provider,
            preset,
            recipe,
            ingest_key: IngestKey::from_bytes(key),
            public_urls: Some(wanted.public_url).filter(|url| !url.is_empty()).into_iter().collect(),
            settings: BTreeMap::new(),
            secret_expected_until: None,
            created_at: self.now(),
        };
        let source = self.store.create_source(source).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(to_proto(&source)))
    }

    pub(super) async fn do_get_source(&self, request: Request<v1::GetSourceRequest>) -> Answer<v1::Source> {
        let (metadata, message) = split(request);
        let (tenant, id) = name::source(&message.name, "name")?;
        self.check(&metadata, Action::GetSource(&tenant)).await?;
        let source = self.store.source(&tenant, &id).await.map_err(|error| from_store(&error))?;
        Ok(Response::new(to_proto(&source.ok_or_else(|| not_found(&message.name))?)))
    }

    pub(super) async fn do_list_sources(
        &self,
        request: Request<v1::ListSourcesRequest>,
    ) -> Answer<v1::ListSourcesResponse> {
        let (metadata, message) = split(request);
        let tenant = name::tenant(&message.parent, "parent")?;
        self.check(&metadata, Action::ListSources(&tenant)).await?;
        let (after, size) = (page::after::<SourceId>(&message.page_token)?, page::size(message.page_size)?);
        let page =
            self.store.sources(&tenant, after.as_ref(), size).await.map_err(|error| from_store(&error))?;
        Ok(Response::new(v1::ListSourcesResponse {
            next_page_token: page::next(&page, |source| source.id.to_string()),
            sources: page.items.iter().map(to_proto).collect(),
        }))
    }

    pub(super) async fn do_delete_source(
        &self,
        request: Request<v1::DeleteSourceRequest>,
    ) -> Answer<v1::DeleteSourceResponse> {
        let (metadata, message) = split(request);
        let (tenant, id) = name::source(&message.name, "name")?;
        self.check(&metadata, Action::DeleteSource(&tenant)).await?;
        self.require_unnamed(&tenant, &id).await?;
        self.store.delete_source(&tenant, &id).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteSourceResponse {}))
    }
}

impl Admin {
    /// A subscription that names the source would silently never get what it has accepted and not delivered.
    async fn require_unnamed(&self, tenant: &TenantId, id: &SourceId) -> Result<(), Status> {
        self.directory.refresh_now().await.map_err(|_| Status::unavailable("the store is away; retry"))?;
        let snapshot = self.directory.snapshot();
        let naming = snapshot.subscriptions().find(|subscription| {
            subscription.tenant.as_ref().is_none_or(|own| own == tenant) && subscription.sources.contains(id)
        });
        match naming {
            None => Ok(()),
            Some(subscription) if subscription.tenant.is_some() => Err(Status::failed_precondition(format!(
                "subscriptions/{} names this source: delete that subscription first",
                subscription.id
            ))),
            Some(_) => Err(Status::failed_precondition("a subscription of the platform names this source")),
        }
    }
}

/// The preset's name or the custom recipe, one of them empty.
fn verification(wanted: Option<Verification>) -> Result<(String, String), Status> {
    match wanted {
        Some(Verification::Preset(preset)) => {
            if Recipe::preset(&preset).is_none() {
                let known: Vec<&str> = Recipe::presets().map(|preset| preset.name).collect();
                return Err(invalid("source.preset", format!("must be one of: {}", known.join(", "))));
            }
            Ok((preset, String::new()))
        }
        Some(Verification::RecipeJson(recipe)) => {
            if recipe.len() > RECIPE_BYTES_MAX {
                return Err(invalid("source.recipe_json", "must be at most 64 KiB"));
            }
            Recipe::from_json(&recipe)
                .map_err(|error| invalid("source.recipe_json", format!("cannot be used: {error}")))?;
            Ok((String::new(), recipe))
        }
        None => Err(invalid("source.verification", "must be given: a preset's name, or a recipe in JSON")),
    }
}

fn provider(wanted: &str, preset: &str, id: &SourceId) -> Result<ProviderName, Status> {
    let text = match (wanted, preset) {
        ("", "") => id.as_str(),
        ("", preset) => preset,
        (wanted, _) => wanted,
    };
    name::id(text, "source.provider")
}

fn is_url(text: &str) -> bool {
    text.len() <= URL_BYTES_MAX
        && (text.starts_with("https://") || text.starts_with("http://"))
        && text.parse::<tonic::codegen::http::Uri>().is_ok_and(|uri| uri.host().is_some())
}

fn to_proto(source: &portero_store::Source) -> v1::Source {
    let verification = if source.preset.is_empty() {
        Verification::RecipeJson(source.recipe.clone())
    } else {
        Verification::Preset(source.preset.clone())
    };
    v1::Source {
        name: format!("tenants/{}/sources/{}", source.tenant, source.id),
        verification: Some(verification),
        provider: source.provider.to_string(),
        public_url: source.public_urls.first().cloned().unwrap_or_default(),
        ingest_path: format!("/in/{}", source.ingest_key),
        create_time: Some(time::to_proto(source.created_at)),
    }
}
