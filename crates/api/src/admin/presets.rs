//! The built-in recipes, the same for everybody.

use portero_auth::Action;
use portero_proto::v1;
use portero_recipe::{IdScope, Preset, Recipe, Strength};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::error::not_found;
use crate::{name, page, time};

impl Admin {
    pub(super) async fn do_list_presets(
        &self,
        request: Request<v1::ListPresetsRequest>,
    ) -> Answer<v1::ListPresetsResponse> {
        let (metadata, message) = split(request);
        self.check(&metadata, Action::ListPresets).await?;
        let size = usize::try_from(page::size(message.page_size)?).unwrap_or(usize::MAX);
        let mut presets: Vec<&Preset> = Recipe::presets().collect();
        presets.sort_by_key(|preset| preset.name);
        presets.retain(|preset| preset.name > message.page_token.as_str());
        let more = presets.len() > size;
        presets.truncate(size);
        let last = presets.last().filter(|_| more);
        Ok(Response::new(v1::ListPresetsResponse {
            next_page_token: last.map(|preset| preset.name.to_owned()).unwrap_or_default(),
            presets: presets.into_iter().map(to_proto).collect(),
        }))
    }

    pub(super) async fn do_get_preset(&self, request: Request<v1::GetPresetRequest>) -> Answer<v1::Preset> {
        let (metadata, message) = split(request);
        let wanted = name::preset(&message.name, "name")?;
        self.check(&metadata, Action::GetPreset).await?;
        let preset = Recipe::presets().find(|preset| preset.name == wanted);
        let preset: &Preset = preset.ok_or_else(|| -> Status { not_found("the preset") })?;
        Ok(Response::new(v1::Preset { recipe_json: preset.json.to_owned(), ..to_proto(preset) }))
    }
}

fn to_proto(preset: &Preset) -> v1::Preset {
    let (recipe, info) = (&preset.recipe, preset.recipe.info());
    let settings = recipe.settings().iter().map(|(name, setting)| v1::PresetSetting {
        name: name.clone(),
        about: setting.about.clone(),
        required: setting.required,
        secret: setting.secret,
    });
    v1::Preset {
        name: format!("presets/{}", preset.name),
        title: info.title.clone(),
        about: info.about.clone(),
        links: info.links.clone(),
        category: info.category.map(|category| category.name().to_owned()).unwrap_or_default(),
        evidence: info.evidence.clone(),
        unproven: info.unproven,
        setup: info.setup.clone(),
        secret_about: info.secret_about.clone(),
        settings: settings.collect(),
        strength: strength(recipe.strength()).into(),
        ordering_key: recipe.entity_templates().to_vec(),
        id_scope: id_scope(recipe.id_scope()).into(),
        redelivery: info.redelivery.map(time::duration_to_proto),
        answer_within: info.answer_within.map(time::duration_to_proto),
        needs_secret: recipe.needs_secret(),
        signs_url: recipe.signs_url(),
        writes_secret: recipe.writes_secret(),
        recipe_json: String::new(),
    }
}

const fn strength(strength: Strength) -> v1::Strength {
    match strength {
        Strength::None => v1::Strength::None,
        Strength::Token => v1::Strength::Token,
        Strength::Fields => v1::Strength::Fields,
        Strength::Body => v1::Strength::Body,
    }
}

const fn id_scope(scope: IdScope) -> v1::IdScope {
    match scope {
        IdScope::Global => v1::IdScope::Global,
        IdScope::Account => v1::IdScope::Account,
        IdScope::Source => v1::IdScope::Source,
    }
}
