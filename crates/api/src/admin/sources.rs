//! Sources.

use std::sync::Arc;

use portero_auth::Action;
use portero_directory::{Fault, open_secret};
use portero_proto::v1;
use portero_recipe::Recipe;
use portero_store::{NewSource, SealedSettings, SourceUpdate};
use portero_types::{IngestKey, ProviderName, SourceId, TenantId};
use tonic::{Request, Response, Status};

use super::source_form::{self, Chosen};
use super::source_settings::SettingsChange;
use super::{Admin, Answer, limits_form, split};
use crate::error::{from_store, invalid, not_found, unusable_recipe};
use crate::{name, page};

/// Most secrets that are looked at when a source's recipe changes.
const SECRETS_MAX: u32 = 1_000;

impl Admin {
    pub(super) async fn do_create_source(
        &self,
        request: Request<v1::CreateSourceRequest>,
    ) -> Answer<v1::Source> {
        let (metadata, message) = split(request);
        let tenant = name::tenant(&message.parent, "parent")?;
        let caller = self.check(&metadata, Action::CreateSource(&tenant)).await?;
        let now = self.now();
        let id: SourceId = name::id(&message.source_id, "source_id")?;
        let wanted = message.source.unwrap_or_default();
        let chosen = Chosen::from_proto(wanted.verification)?;
        let provider = provider(&wanted.provider, &chosen.preset, &id)?;
        source_form::check_urls(&wanted.public_urls)?;
        let given = wanted.settings.into_iter().collect();
        let settings = SettingsChange::at_creation(&chosen.recipe, given, &wanted.secret_settings)?;
        let wait = match &wanted.secret_window {
            Some(window) => source_form::wait(&chosen.recipe, window, now)?,
            None => chosen.recipe.writes_secret().then(|| now.plus(source_form::SECRET_WINDOW)),
        };
        let sealed = self.seal_settings((&tenant, &id), &settings).await?;
        let mut key = [0_u8; 16];
        key.copy_from_slice(&(self.entropy)()[..16]);
        let source = NewSource {
            tenant,
            id,
            provider,
            preset: chosen.preset,
            recipe: chosen.json,
            ingest_key: IngestKey::from_bytes(key),
            public_urls: wanted.public_urls,
            settings: settings.plain.unwrap_or_default(),
            sealed_settings: SealedSettings::default().changed(&sealed),
            secret_expected_until: wait,
            limits: limits_form::from_proto(wanted.limits, "source.limits")?,
            created_at: now,
        };
        let change = self.change(&caller, &metadata);
        let source = self.store.create_source(source, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(source_form::to_proto(&source, Some(&chosen.recipe))))
    }

    pub(super) async fn do_update_source(
        &self,
        request: Request<v1::UpdateSourceRequest>,
    ) -> Answer<v1::Source> {
        let (metadata, message) = split(request);
        let wanted = message.source.unwrap_or_default();
        let (tenant, id) = name::source(&wanted.name, "source.name")?;
        let caller = self.check(&metadata, Action::UpdateSource(&tenant)).await?;
        let mask = Mask::from_proto(message.update_mask)?;
        let row = self.store.source(&tenant, &id).await.map_err(|error| from_store(&error))?;
        let row = row.ok_or_else(|| not_found(&wanted.name))?;
        let mut update = SourceUpdate::new(tenant, id);
        let recipe = if mask.verification {
            let chosen = Chosen::from_proto(wanted.verification)?;
            self.require_fitting_secrets(&row, &chosen.recipe).await?;
            (update.preset, update.recipe) = (Some(chosen.preset), Some(chosen.json));
            chosen.recipe
        } else {
            self.compiled(&row).ok_or_else(unusable_recipe)?
        };
        if mask.public_urls {
            source_form::check_urls(&wanted.public_urls)?;
            update.public_urls = Some(wanted.public_urls);
        }
        let given = mask.settings.then(|| wanted.settings.into_iter().collect());
        let named = mask.secret_settings.then_some(wanted.secret_settings.as_slice());
        let settings = SettingsChange::of_update(&row, &recipe, given, named)?;
        update.sealed_settings = self.seal_settings((&row.tenant, &row.id), &settings).await?;
        update.settings = settings.plain;
        if mask.secret_window {
            let window = wanted.secret_window.unwrap_or_default();
            update.secret_expected_until = Some(source_form::wait(&recipe, &window, self.now())?);
        } else if !recipe.writes_secret() {
            update.secret_expected_until = Some(None);
        }
        if mask.limits {
            update.limits = Some(limits_form::from_proto(wanted.limits, "source.limits")?);
        }
        let change = self.change(&caller, &metadata);
        let source = self.store.update_source(update, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        tracing::info!(tenant.id = %source.tenant, source.id = %source.id, "a source was changed");
        Ok(Response::new(source_form::to_proto(&source, Some(&recipe))))
    }

    pub(super) async fn do_get_source(&self, request: Request<v1::GetSourceRequest>) -> Answer<v1::Source> {
        let (metadata, message) = split(request);
        let (tenant, id) = name::source(&message.name, "name")?;
        self.check(&metadata, Action::GetSource(&tenant)).await?;
        let source = self.store.source(&tenant, &id).await.map_err(|error| from_store(&error))?;
        let source = source.ok_or_else(|| not_found(&message.name))?;
        let recipe = self.compiled(&source);
        let mut shown = source_form::to_proto(&source, recipe.as_deref());
        let secrets = self.secrets_of(&source.tenant, &source.id, recipe.as_deref()).await?;
        shown.warnings.extend(secrets.warnings());
        shown.warnings.extend(self.unopened(&source));
        Ok(Response::new(shown))
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
        let show =
            |source: &portero_store::Source| source_form::to_proto(source, self.compiled(source).as_deref());
        let (sources, next_page_token) = page::shown(&page, show, |source| source.id.to_string());
        Ok(Response::new(v1::ListSourcesResponse { sources, next_page_token }))
    }

    pub(super) async fn do_delete_source(
        &self,
        request: Request<v1::DeleteSourceRequest>,
    ) -> Answer<v1::DeleteSourceResponse> {
        let (metadata, message) = split(request);
        let (tenant, id) = name::source(&message.name, "name")?;
        let caller = self.check(&metadata, Action::DeleteSource(&tenant)).await?;
        self.require_unnamed(&tenant, &id).await?;
        let change = self.change_because(&caller, &metadata, &message.reason)?;
        self.store.delete_source(&tenant, &id, &change).await.map_err(|error| from_store(&error))?;
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

    /// What to say of a source of which this gateway cannot open something.
    fn unopened(&self, row: &portero_store::Source) -> Option<String> {
        let snapshot = self.directory.snapshot();
        match snapshot.source_by_no(row.no)?.verification.as_ref().err()? {
            Fault::SettingSealed(name) => Some(format!(
                "every request is answered 503 until the setting {name} is given anew: what is stored of it cannot be opened"
            )),
            Fault::DataKey(_) => Some(
                "every request is answered 503: the tenant's data key cannot be opened; the platform's operators find the \
                 cause in the log and by `portero keyring status`"
                    .to_owned(),
            ),
            Fault::PresetUnknown | Fault::RecipeInvalid(_) => None,
        }
    }

    /// A source's recipe, without compiling it again where this gateway has done so.
    pub(super) fn compiled(&self, row: &portero_store::Source) -> Option<Arc<Recipe>> {
        if !row.preset.is_empty() {
            return Recipe::preset(&row.preset);
        }
        let known = self.directory.snapshot().source_by_no(row.no).cloned();
        let known = known.filter(|source| source.has_recipe_of(row));
        match known.as_deref().map(|source| &source.verification) {
            Some(Ok(verification)) => Some(Arc::clone(&verification.recipe)),
            Some(Err(_)) | None => Recipe::from_json(&row.recipe).ok().map(Arc::new),
        }
    }

    /// A secret of another form would verify nothing, and nobody could tell what is signed with it from what is forged.
    async fn require_fitting_secrets(
        &self,
        row: &portero_store::Source,
        recipe: &Recipe,
    ) -> Result<(), Status> {
        let keys = self.keys_of(&row.tenant).await?;
        let page = self.store.secrets(&row.tenant, &row.id, None, SECRETS_MAX).await;
        for secret in page.map_err(|error| from_store(&error))?.items {
            if secret.revoked_at.is_none() && open_secret(&secret, row, recipe, &keys).is_err() {
                return Err(Status::failed_precondition(format!(
                    "the secret {} does not have the form that this recipe needs, or cannot be opened: revoke it first",
                    secret.id
                )));
            }
        }
        Ok(())
    }
}

/// What a change names.
#[derive(Default)]
struct Mask {
    verification: bool,
    public_urls: bool,
    settings: bool,
    secret_settings: bool,
    secret_window: bool,
    limits: bool,
}

impl Mask {
    fn from_proto(mask: Option<prost_types::FieldMask>) -> Result<Self, Status> {
        const RULE: &str = "must name what changes: preset or recipe_json, public_urls, settings, secret_settings, secret_window, limits";
        let paths = mask.unwrap_or_default().paths;
        if paths.is_empty() {
            return Err(invalid("update_mask", RULE));
        }
        let mut named = Self::default();
        for path in &paths {
            match path.as_str() {
                "preset" | "recipe_json" => named.verification = true,
                "public_urls" => named.public_urls = true,
                "settings" => named.settings = true,
                "secret_settings" => named.secret_settings = true,
                "secret_window" => named.secret_window = true,
                "limits" => named.limits = true,
                _ => return Err(invalid("update_mask", RULE)),
            }
        }
        Ok(named)
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
