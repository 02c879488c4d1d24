//! Subscriptions and their dead letters.

use std::time::Duration;

use portero_auth::{Action, SubscriptionRef, SubscriptionScope, allows};
use portero_proto::v1;
use portero_store::{DeadLetterPolicy, NewSubscription, StartAt, Subscription};
use portero_types::{LaneCount, LaneNo, SubscriptionId, TenantId};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::authenticate::Gate;
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

const FILTERS_MAX: usize = 100;
const ATTEMPTS_DEFAULT: u32 = 16;
const DEFER_DEADLINE_DEFAULT: Duration = Duration::from_secs(86_400);
const DEFER_DEADLINE_MAX: Duration = Duration::from_secs(30 * 86_400);
const LANES_MIN: u32 = 4;

impl Admin {
    pub(super) async fn do_create_subscription(
        &self,
        request: Request<v1::CreateSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        let (metadata, message) = split(request);
        let wanted = self.read(message)?;
        let action = Action::CreateSubscription(reference(&wanted.id, wanted.tenant.as_ref()));
        self.check(&metadata, action).await?;
        if let Some(tenant) = &wanted.tenant {
            let known = self.store.tenant(tenant).await.map_err(|error| from_store(&error))?;
            known.ok_or_else(|| not_found(&format!("tenants/{tenant}")))?;
        }
        self.require_sources(&wanted).await?;
        let created = self.store.create_subscription(wanted).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(to_proto(&created)))
    }

    pub(super) async fn do_get_subscription(
        &self,
        request: Request<v1::GetSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        let (metadata, message) = split(request);
        let id = name::subscription(&message.name, "name")?;
        let caller = self.gate.caller(&metadata).await?;
        let found = self.store.subscription(&id).await.map_err(|error| from_store(&error))?;
        let scope = found.as_ref().and_then(|found| found.tenant.as_ref());
        Gate::permit(&caller, Action::GetSubscription(reference(&id, scope)))?;
        Ok(Response::new(to_proto(&found.ok_or_else(|| not_found(&message.name))?)))
    }

    pub(super) async fn do_list_subscriptions(
        &self,
        request: Request<v1::ListSubscriptionsRequest>,
    ) -> Answer<v1::ListSubscriptionsResponse> {
        let (metadata, message) = split(request);
        let caller = self.check(&metadata, Action::ListSubscriptions).await?;
        let (after, size) =
            (page::after::<SubscriptionId>(&message.page_token)?, page::size(message.page_size)?);
        let page =
            self.store.subscriptions(after.as_ref(), size).await.map_err(|error| from_store(&error))?;
        let subscriptions = page
            .items
            .iter()
            .filter(|item| {
                allows(&caller, Action::GetSubscription(reference(&item.id, item.tenant.as_ref())))
            })
            .map(to_proto)
            .collect();
        let next_page_token = page::next(&page, |item| item.id.to_string());
        Ok(Response::new(v1::ListSubscriptionsResponse { subscriptions, next_page_token }))
    }

    pub(super) async fn do_delete_subscription(
        &self,
        request: Request<v1::DeleteSubscriptionRequest>,
    ) -> Answer<v1::DeleteSubscriptionResponse> {
        let (metadata, message) = split(request);
        let id = name::subscription(&message.name, "name")?;
        let caller = self.gate.caller(&metadata).await?;
        let found = self.store.subscription(&id).await.map_err(|error| from_store(&error))?;
        let scope = found.as_ref().and_then(|found| found.tenant.as_ref());
        Gate::permit(&caller, Action::DeleteSubscription(reference(&id, scope)))?;
        self.store.delete_subscription(&id).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteSubscriptionResponse {}))
    }

    pub(super) async fn do_list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Answer<v1::ListDeadLettersResponse> {
        let (metadata, message) = split(request);
        let id = name::subscription(&message.parent, "parent")?;
        let caller = self.gate.caller(&metadata).await?;
        let found = self.store.subscription(&id).await.map_err(|error| from_store(&error))?;
        let scope = found.as_ref().and_then(|found| found.tenant.as_ref());
        Gate::permit(&caller, Action::ListDeadLetters(reference(&id, scope)))?;
        let subscription = found.ok_or_else(|| not_found(&message.parent))?;
        let (after, size) = (dead_letter_token(&message.page_token)?, page::size(message.page_size)?);
        let letters = self.store.dead_letters(subscription.no, after, size).await;
        let letters = letters.map_err(|error| from_store(&error))?;
        let full = u32::try_from(letters.len()).is_ok_and(|count| count == size);
        let next_page_token = letters
            .last()
            .filter(|_| full)
            .map(|(lane, letter)| format!("{lane}-{}", letter.position))
            .unwrap_or_default();
        let dead_letters = letters.into_iter().map(|(lane, letter)| dead_letter(lane, letter)).collect();
        Ok(Response::new(v1::ListDeadLettersResponse { dead_letters, next_page_token }))
    }

    /// A source that does not exist would be waited for in silence.
    async fn require_sources(&self, wanted: &NewSubscription) -> Result<(), Status> {
        if wanted.sources.is_empty() {
            return Ok(());
        }
        self.directory.refresh_now().await.map_err(|_| Status::unavailable("the store is away; retry"))?;
        let snapshot = self.directory.snapshot();
        let in_scope = |source: &portero_directory::Source| {
            wanted.tenant.as_ref().is_none_or(|tenant| *tenant == source.tenant)
        };
        let unknown = wanted
            .sources
            .iter()
            .find(|id| !snapshot.sources().any(|source| source.id == **id && in_scope(source)));
        match unknown {
            None => Ok(()),
            Some(id) => Err(invalid("subscription.sources", format!("names no source that exists: {id}"))),
        }
    }

    fn read(&self, message: v1::CreateSubscriptionRequest) -> Result<NewSubscription, Status> {
        let wanted = message.subscription.unwrap_or_default();
        let tenant = match wanted.tenant.as_str() {
            "" => None,
            given => Some(name::tenant(given, "subscription.tenant")?),
        };
        if wanted.sources.len() > FILTERS_MAX || wanted.event_types.len() > FILTERS_MAX {
            return Err(invalid("subscription", "must have at most 100 sources and at most 100 event types"));
        }
        let sources =
            wanted.sources.iter().map(|id| name::id(id, "subscription.sources")).collect::<Result<_, _>>()?;
        for pattern in &wanted.event_types {
            check_pattern(pattern)?;
        }
        let lanes = if wanted.lanes == 0 { u32::from(LaneCount::DEFAULT.get()) } else { wanted.lanes };
        let lanes = u16::try_from(lanes)
            .ok()
            .filter(|_| lanes >= LANES_MIN)
            .and_then(|lanes| LaneCount::new(lanes).ok())
            .ok_or_else(|| invalid("subscription.lanes", "must be a power of two from 4 to 256"))?;
        let attempts_max = if wanted.attempts_max == 0 { ATTEMPTS_DEFAULT } else { wanted.attempts_max };
        if attempts_max > 1_000 {
            return Err(invalid("subscription.attempts_max", "must be from 1 to 1000"));
        }
        let defer_deadline = match &wanted.defer_deadline {
            Some(given) => time::duration(given, "subscription.defer_deadline", DEFER_DEADLINE_MAX)?,
            None => DEFER_DEADLINE_DEFAULT,
        };
        if defer_deadline < Duration::from_secs(1) {
            return Err(invalid("subscription.defer_deadline", "must be at least one second"));
        }
        Ok(NewSubscription {
            id: name::id(&message.subscription_id, "subscription_id")?,
            tenant,
            sources,
            event_types: wanted.event_types,
            lanes,
            attempts_max,
            defer_deadline_ms: u64::try_from(defer_deadline.as_millis()).unwrap_or(u64::MAX),
            dead_letter_policy: match v1::DeadLetterPolicy::try_from(wanted.dead_letter_policy) {
                Ok(v1::DeadLetterPolicy::ParkEntity) => DeadLetterPolicy::ParkEntity,
                Ok(v1::DeadLetterPolicy::Unspecified | v1::DeadLetterPolicy::Continue) => {
                    DeadLetterPolicy::Continue
                }
                Err(_) => return Err(invalid("subscription.dead_letter_policy", "must be CONTINUE or PARK_ENTITY")),
            },
            start_at: match v1::StartAt::try_from(wanted.start_at) {
                Ok(v1::StartAt::Earliest) => StartAt::Earliest,
                Ok(v1::StartAt::Unspecified | v1::StartAt::Latest) => StartAt::Latest,
                Err(_) => return Err(invalid("subscription.start_at", "must be LATEST or EARLIEST")),
            },
            created_at: self.now(),
        })
    }
}

/// A subscription as the permission table names it. One that does not exist has no tenant.
pub(crate) fn reference<'a>(id: &'a SubscriptionId, tenant: Option<&'a TenantId>) -> SubscriptionRef<'a> {
    let scope = tenant.map_or(SubscriptionScope::Platform, SubscriptionScope::Tenant);
    SubscriptionRef { id, scope }
}

fn check_pattern(pattern: &str) -> Result<(), Status> {
    let name = pattern.strip_suffix(".*").unwrap_or(pattern);
    let fits = !name.is_empty() && pattern.len() <= 256 && !name.contains(['*', '\0', ',']);
    if fits {
        return Ok(());
    }
    Err(invalid(
        "subscription.event_types",
        "must be types such as 'invoice.paid', or a prefix such as 'invoice.*'",
    ))
}

fn dead_letter_token(token: &str) -> Result<Option<(LaneNo, u64)>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    token
        .split_once('-')
        .and_then(|(lane, position)| Some((LaneNo(lane.parse().ok()?), position.parse().ok()?)))
        .map(Some)
        .ok_or_else(|| invalid("page_token", "must be the next_page_token of the answer before"))
}

fn dead_letter(lane: LaneNo, letter: portero_store::DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        receipt_id: letter.receipt_id.to_string(),
        lane: u32::from(lane.0),
        position: letter.position,
        attempts: letter.attempts,
        reason_code: letter.reason_code,
        reason_text: letter.reason_text,
        first_fail_time: Some(time::to_proto(letter.first_failed_at)),
        death_time: Some(time::to_proto(letter.died_at)),
    }
}

fn to_proto(subscription: &Subscription) -> v1::Subscription {
    v1::Subscription {
        name: format!("subscriptions/{}", subscription.id),
        tenant: subscription.tenant.as_ref().map(|tenant| format!("tenants/{tenant}")).unwrap_or_default(),
        sources: subscription.sources.iter().map(ToString::to_string).collect(),
        event_types: subscription.event_types.clone(),
        lanes: u32::from(subscription.lanes.get()),
        attempts_max: subscription.attempts_max,
        defer_deadline: Some(time::duration_to_proto(Duration::from_millis(subscription.defer_deadline_ms))),
        start_at: v1::StartAt::Unspecified.into(),
        create_time: Some(time::to_proto(subscription.created_at)),
        dead_letter_policy: match subscription.dead_letter_policy {
            DeadLetterPolicy::Continue => v1::DeadLetterPolicy::Continue.into(),
            DeadLetterPolicy::ParkEntity => v1::DeadLetterPolicy::ParkEntity.into(),
        },
    }
}
