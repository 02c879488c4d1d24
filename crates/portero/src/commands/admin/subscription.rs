//! `portero subscription`.

use std::time::Duration;

use portero_client::v1;
use serde::Serialize;

use super::{list, name};
use crate::cli::{Common, DeadLetterPolicy, StartFrom, SubscriptionCommand};
use crate::commands::connection::AdminApi;
use crate::commands::exit::Failure;
use crate::commands::present::{self, Record};

/// Subscriptions on a page: each may carry two hundred filters.
const PAGE: i32 = 100;
/// Dead letters on a page.
const DEAD_LETTERS_PAGE: i32 = 1_000;

/// Runs one of its commands.
pub(crate) async fn run(command: SubscriptionCommand) -> anyhow::Result<()> {
    match command {
        SubscriptionCommand::Create {
            subscription,
            tenant,
            sources,
            event_types,
            lanes,
            attempts_max,
            defer_deadline,
            dead_letter_policy,
            from,
            common,
        } => {
            let api = AdminApi::open(&common.connect).await?;
            let start_at = match from {
                StartFrom::Latest => v1::StartAt::Latest,
                StartFrom::Earliest => v1::StartAt::Earliest,
            };
            let wanted = v1::Subscription {
                tenant: if tenant.is_empty() { tenant } else { name::tenant(&tenant) },
                sources,
                event_types,
                lanes,
                attempts_max,
                defer_deadline: Some(present::duration(defer_deadline)),
                start_at: start_at.into(),
                dead_letter_policy: policy(dead_letter_policy).into(),
                ..v1::Subscription::default()
            };
            let name = name::subscription(&subscription);
            let request =
                v1::CreateSubscriptionRequest { subscription_id: subscription, subscription: Some(wanted) };
            let created = api
                .ask(api.calls().create_subscription(request))
                .await
                .map_err(|error| error.about(&name))?;
            present::one(common.output.output, &Subscription::from(created))
        }
        SubscriptionCommand::Update {
            subscription,
            attempts_max,
            defer_deadline,
            dead_letter_policy,
            common,
        } => {
            let name = name::subscription(&subscription);
            let request = update(name.clone(), attempts_max, defer_deadline, dead_letter_policy)?;
            let api = AdminApi::open(&common.connect).await?;
            let changed = api.ask(api.calls().update_subscription(request)).await;
            present::one(
                common.output.output,
                &Subscription::from(changed.map_err(|error| error.about(&name))?),
            )
        }
        SubscriptionCommand::Get { subscription, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::GetSubscriptionRequest { name: name::subscription(&subscription) };
            let found = api.ask(api.calls().get_subscription(request)).await?;
            present::one(common.output.output, &Subscription::from(found))
        }
        SubscriptionCommand::List { common } => {
            let api = AdminApi::open(&common.connect).await?;
            list::show::<_, Subscription>(&api, common.output.output, async |mut calls, page_token| {
                calls.list_subscriptions(v1::ListSubscriptionsRequest { page_size: PAGE, page_token }).await
            })
            .await
        }
        SubscriptionCommand::Delete { subscription, reason, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let name = name::subscription(&subscription);
            let request = v1::DeleteSubscriptionRequest { name: name.clone(), reason: reason.reason };
            api.ask(api.calls().delete_subscription(request)).await?;
            present::deleted(common.output.output, &name)
        }
        SubscriptionCommand::DeadLetters { subscription, common } => {
            dead_letters(&subscription, &common).await
        }
    }
}

/// A change of what is given.
fn update(
    name: String,
    attempts_max: Option<u32>,
    defer_deadline: Option<Duration>,
    dead_letter_policy: Option<DeadLetterPolicy>,
) -> Result<v1::UpdateSubscriptionRequest, Failure> {
    let paths: Vec<String> = [
        attempts_max.map(|_| "attempts_max"),
        defer_deadline.map(|_| "defer_deadline"),
        dead_letter_policy.map(|_| "dead_letter_policy"),
    ]
    .into_iter()
    .flatten()
    .map(str::to_owned)
    .collect();
    if paths.is_empty() {
        return Err(Failure::usage("nothing is to be changed: see `portero subscription update --help`"));
    }
    let subscription = v1::Subscription {
        name,
        attempts_max: attempts_max.unwrap_or_default(),
        defer_deadline: defer_deadline.map(present::duration),
        dead_letter_policy: dead_letter_policy.map_or(0, |given| policy(given).into()),
        ..v1::Subscription::default()
    };
    let update_mask = Some(prost_types::FieldMask { paths });
    Ok(v1::UpdateSubscriptionRequest { subscription: Some(subscription), update_mask })
}

const fn policy(given: DeadLetterPolicy) -> v1::DeadLetterPolicy {
    match given {
        DeadLetterPolicy::Continue => v1::DeadLetterPolicy::Continue,
        DeadLetterPolicy::ParkEntity => v1::DeadLetterPolicy::ParkEntity,
    }
}

async fn dead_letters(subscription: &str, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let parent = name::subscription(subscription);
    list::show::<_, DeadLetter>(&api, common.output.output, async |mut calls, page_token| {
        let (parent, page_size) = (parent.clone(), DEAD_LETTERS_PAGE);
        calls.list_dead_letters(v1::ListDeadLettersRequest { parent, page_size, page_token }).await
    })
    .await
}

/// A subscription as it is shown.
#[derive(Debug, Serialize)]
struct Subscription {
    name: String,
    subscription: String,
    tenant: Option<String>,
    sources: Vec<String>,
    event_types: Vec<String>,
    lanes: u32,
    attempts_max: u32,
    defer_deadline_secs: Option<u64>,
    dead_letter_policy: &'static str,
    expired_count: u64,
    create_time: Option<String>,
}

impl From<v1::Subscription> for Subscription {
    fn from(subscription: v1::Subscription) -> Self {
        Self {
            subscription: name::id(&subscription.name, 0),
            dead_letter_policy: match subscription.dead_letter_policy() {
                v1::DeadLetterPolicy::Unspecified | v1::DeadLetterPolicy::Continue => "continue",
                v1::DeadLetterPolicy::ParkEntity => "park-entity",
            },
            expired_count: subscription.expired_count,
            name: subscription.name,
            tenant: Some(name::id(&subscription.tenant, 0)).filter(|tenant| !tenant.is_empty()),
            sources: subscription.sources,
            event_types: subscription.event_types,
            lanes: subscription.lanes,
            attempts_max: subscription.attempts_max,
            defer_deadline_secs: present::seconds(subscription.defer_deadline.as_ref()),
            create_time: present::time(subscription.create_time.as_ref()),
        }
    }
}

fn all_or(filter: &[String]) -> String {
    if filter.is_empty() { "all".to_owned() } else { filter.join(", ") }
}

impl Record for Subscription {
    const COLUMNS: &'static [&'static str] =
        &["SUBSCRIPTION", "TENANT", "SOURCES", "TYPES", "LANES", "CREATED"];

    fn row(&self) -> Vec<String> {
        vec![
            self.subscription.clone(),
            self.tenant.clone().unwrap_or_else(|| "all".to_owned()),
            all_or(&self.sources),
            all_or(&self.event_types),
            self.lanes.to_string(),
            self.create_time.clone().unwrap_or_default(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        vec![
            ("subscription", self.subscription.clone()),
            ("tenant", self.tenant.clone().unwrap_or_else(|| "all".to_owned())),
            ("sources", all_or(&self.sources)),
            ("event types", all_or(&self.event_types)),
            ("lanes", self.lanes.to_string()),
            ("attempts at most", self.attempts_max.to_string()),
            ("deferred for at most", present::for_people(self.defer_deadline_secs)),
            ("after a dead letter", self.dead_letter_policy.to_owned()),
            ("expired undelivered", self.expired_count.to_string()),
            ("created", self.create_time.clone().unwrap_or_default()),
        ]
    }
}

/// A dead letter as it is shown.
#[derive(Debug, Serialize)]
struct DeadLetter {
    receipt_id: String,
    lane: u32,
    position: u64,
    attempts: u32,
    reason_code: String,
    reason_text: String,
    first_fail_time: Option<String>,
    death_time: Option<String>,
}

impl From<v1::DeadLetter> for DeadLetter {
    fn from(letter: v1::DeadLetter) -> Self {
        Self {
            receipt_id: letter.receipt_id,
            lane: letter.lane,
            position: letter.position,
            attempts: letter.attempts,
            reason_code: letter.reason_code,
            reason_text: letter.reason_text,
            first_fail_time: present::time(letter.first_fail_time.as_ref()),
            death_time: present::time(letter.death_time.as_ref()),
        }
    }
}

impl Record for DeadLetter {
    const COLUMNS: &'static [&'static str] =
        &["RECEIPT", "LANE", "POSITION", "ATTEMPTS", "DIED", "CODE", "REASON"];

    fn row(&self) -> Vec<String> {
        vec![
            self.receipt_id.clone(),
            self.lane.to_string(),
            self.position.to_string(),
            self.attempts.to_string(),
            self.death_time.clone().unwrap_or_default(),
            self.reason_code.clone(),
            self.reason_text.clone(),
        ]
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        Self::COLUMNS.iter().copied().zip(self.row()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_forms_are_stable() {
        let subscription = Subscription::from(v1::Subscription {
            name: "subscriptions/billing".to_owned(),
            tenant: "tenants/acme".to_owned(),
            event_types: vec!["invoice.*".to_owned()],
            lanes: 16,
            attempts_max: 16,
            defer_deadline: Some(prost_types::Duration { seconds: 86_400, nanos: 0 }),
            ..v1::Subscription::default()
        });
        let wanted = serde_json::json!({
            "name": "subscriptions/billing", "subscription": "billing", "tenant": "acme", "sources": [],
            "event_types": ["invoice.*"], "lanes": 16, "attempts_max": 16, "defer_deadline_secs": 86_400,
            "dead_letter_policy": "continue", "expired_count": 0, "create_time": null,
        });
        assert_eq!(serde_json::to_value(&subscription).expect("serialises"), wanted);
        assert_eq!(subscription.row().len(), Subscription::COLUMNS.len());
        assert_eq!(subscription.row()[2], "all");
        let letter = DeadLetter::from(v1::DeadLetter { position: u64::MAX, ..v1::DeadLetter::default() });
        let json = serde_json::to_value(&letter).expect("serialises");
        assert_eq!(json["position"], u64::MAX);
        assert_eq!(letter.row().len(), DeadLetter::COLUMNS.len());
    }

    #[test]
    fn an_update_names_what_is_given_and_is_refused_when_nothing_is() {
        let request = update("subscriptions/a".to_owned(), Some(3), None, Some(DeadLetterPolicy::ParkEntity));
        let request = request.expect("a request");
        assert_eq!(request.update_mask.expect("a mask").paths, ["attempts_max", "dead_letter_policy"]);
        let wanted = request.subscription.expect("a subscription");
        assert_eq!(wanted.dead_letter_policy(), v1::DeadLetterPolicy::ParkEntity);
        let refused = update("subscriptions/a".to_owned(), None, None, None).expect_err("refused");
        assert!(refused.to_string().contains("nothing is to be changed"));
    }
}
