//! `portero parked`.

use portero_client::v1;
use serde::Serialize;

use super::{list, name};
use crate::cli::{Common, ParkedCommand};
use crate::commands::connection::AdminApi;
use crate::commands::exit::Kind;
use crate::commands::present::{self, Listing, Record};
use crate::print;

/// Parked entities on a page: each may hold a long reason.
const PAGE: i32 = 500;

/// Runs one of its commands.
pub(crate) async fn run(command: ParkedCommand) -> anyhow::Result<()> {
    match command {
        ParkedCommand::List { subscription, common } => list_all(&subscription, &common).await,
        ParkedCommand::Retry { subscription, entity: Some(entity), common, .. } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::RetryParkedEntityRequest { name: name::parked_entity(&subscription, &entity) };
            let asked = api.ask(api.calls().retry_parked_entity(request)).await;
            present::one(common.output.output, &Entity::from(asked.map_err(|error| error.about(&entity))?))
        }
        ParkedCommand::Retry { subscription, entity: None, common, .. } => {
            retry_all(&subscription, &common).await
        }
        ParkedCommand::DeadLetter { subscription, entity, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::parked_entity(&subscription, &entity);
            let request = v1::DeadLetterParkedEntityRequest { name };
            let asked = api.ask(api.calls().dead_letter_parked_entity(request)).await;
            present::one(common.output.output, &Entity::from(asked.map_err(|error| error.about(&entity))?))
        }
    }
}

async fn list_all(subscription: &str, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let parent = name::subscription(subscription);
    list::show::<_, Entity>(&api, common.output.output, async |mut calls, page_token| {
        let parent = parent.clone();
        calls
            .list_parked_entities(v1::ListParkedEntitiesRequest { parent, page_size: PAGE, page_token })
            .await
    })
    .await
}

/// Asks for a retry of each that could use one, and shows those.
async fn retry_all(subscription: &str, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let parent = name::subscription(subscription);
    let mut names = Vec::new();
    let page = async |mut calls: portero_client::Admin, page_token| {
        let parent = parent.clone();
        calls
            .list_parked_entities(v1::ListParkedEntitiesRequest { parent, page_size: PAGE, page_token })
            .await
    };
    list::each(&api, page, |entity: v1::ParkedEntity| {
        if matches!(entity.state(), v1::ParkedState::Retry | v1::ParkedState::Blocked) {
            names.push(entity.name);
        }
        Ok(())
    })
    .await?;
    let mut listing = Listing::<Entity>::new(common.output.output);
    for name in names {
        match api
            .ask(api.calls().retry_parked_entity(v1::RetryParkedEntityRequest { name: name.clone() }))
            .await
        {
            Ok(entity) => listing.push(&Entity::from(entity))?,
            // It has gone on by itself meanwhile.
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::Failed) => {
                print::note(&format!("note: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    listing.finish()
}

/// A parked entity as it is shown.
#[derive(Debug, Serialize)]
struct Entity {
    name: String,
    entity: String,
    state: &'static str,
    lane: u32,
    tenant: Option<String>,
    ordering_key: Option<String>,
    receipt_id: Option<String>,
    position: u64,
    waiting_count: u64,
    waiting_more: bool,
    attempts: u32,
    interruptions: u32,
    reason_code: String,
    reason_text: String,
    first_fail_time: Option<String>,
    due_time: Option<String>,
}

impl From<v1::ParkedEntity> for Entity {
    fn from(entity: v1::ParkedEntity) -> Self {
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            state: state(entity.state()),
            entity: name::id(&entity.name, 1),
            name: entity.name,
            lane: entity.lane,
            tenant: some(name::id(&entity.tenant, 0)),
            ordering_key: some(entity.ordering_key),
            receipt_id: some(entity.receipt_id),
            position: entity.position,
            waiting_count: entity.waiting_count,
            waiting_more: entity.waiting_more,
            attempts: entity.attempts,
            interruptions: entity.interruptions,
            reason_code: entity.reason_code,
            reason_text: entity.reason_text,
            first_fail_time: present::time(entity.first_fail_time.as_ref()),
            due_time: present::time(entity.due_time.as_ref()),
        }
    }
}

const fn state(state: v1::ParkedState) -> &'static str {
    match state {
        v1::ParkedState::Unspecified => "unknown",
        v1::ParkedState::Retry => "retry",
        v1::ParkedState::Held => "held",
        v1::ParkedState::Draining => "draining",
        v1::ParkedState::Blocked => "blocked",
    }
}

impl Entity {
    fn waiting(&self) -> String {
        let more = if self.waiting_more { "+" } else { "" };
        format!("{}{more}", self.waiting_count)
    }
}

impl Record for Entity {
    const COLUMNS: &'static [&'static str] =
        &["ENTITY", "STATE", "TENANT", "KEY", "RECEIPT", "BEHIND", "ATTEMPTS", "DUE", "CODE", "REASON"];

    fn row(&self) -> Vec<String> {
        vec![
            self.entity.clone(),
            self.state.to_owned(),
            self.tenant.clone().unwrap_or_default(),
            self.ordering_key.clone().unwrap_or_default(),
            self.receipt_id.clone().unwrap_or_default(),
            self.waiting(),
            self.attempts.to_string(),
            self.due_time.clone().unwrap_or_default(),
            self.reason_code.clone(),
            self.reason_text.clone(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            ("entity", self.entity.clone()),
            ("state before", self.state.to_owned()),
            ("tenant", self.tenant.clone().unwrap_or_default()),
            ("ordering key", self.ordering_key.clone().unwrap_or_default()),
            ("receipt", self.receipt_id.clone().unwrap_or_default()),
            ("waiting behind it", self.waiting()),
            ("attempts", self.attempts.to_string()),
            ("interruptions", self.interruptions.to_string()),
            ("first failed", self.first_fail_time.clone().unwrap_or_default()),
            ("due", self.due_time.clone().unwrap_or_default()),
            ("code", self.reason_code.clone()),
            ("reason", self.reason_text.clone()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_stable() {
        let mut entity = v1::ParkedEntity {
            name: "subscriptions/billing/parkedEntities/0a5f3c21d4e8b79606".to_owned(),
            lane: 10,
            tenant: "tenants/acme".to_owned(),
            ordering_key: "stripe:cus_1".to_owned(),
            waiting_count: 1_000,
            waiting_more: true,
            attempts: 3,
            ..v1::ParkedEntity::default()
        };
        entity.set_state(v1::ParkedState::Blocked);
        let shown = Entity::from(entity);
        let wanted = serde_json::json!({
            "name": "subscriptions/billing/parkedEntities/0a5f3c21d4e8b79606", "entity": "0a5f3c21d4e8b79606",
            "state": "blocked", "lane": 10, "tenant": "acme", "ordering_key": "stripe:cus_1", "receipt_id": null,
            "position": 0, "waiting_count": 1_000, "waiting_more": true, "attempts": 3, "interruptions": 0,
            "reason_code": "", "reason_text": "", "first_fail_time": null, "due_time": null,
        });
        assert_eq!(serde_json::to_value(&shown).expect("serialises"), wanted);
        assert_eq!(shown.row().len(), Entity::COLUMNS.len());
        assert_eq!(shown.row()[5], "1000+");
    }
}
