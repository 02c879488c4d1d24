//! Subscriptions and their dead letters.
#![expect(
    clippy::redundant_closure,
    reason = "an action's constructor is a function of one lifetime, and one of every lifetime is wanted"
)]

use portero_auth::{Action, Caller, SubscriptionRef, SubscriptionScope, allows};
use portero_proto::v1;
use portero_store::{DeadLetter, NewSubscription, Page, Subscription};
use portero_types::{LaneNo, SubscriptionId, TenantId};
use tonic::{Request, Response, Status};

use super::subscription_form::{self, to_proto};
use super::{Admin, Answer, split};
use crate::authenticate::Metadata;
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

impl Admin {
    pub(super) async fn do_create_subscription(
        &self,
        request: Request<v1::CreateSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        let (metadata, message) = split(request);
        let wanted = subscription_form::from_proto(message, self.now())?;
        let action = Action::CreateSubscription(reference(&wanted.id, wanted.tenant.as_ref()));
        let caller = self.check(&metadata, action).await?;
        if let Some(tenant) = &wanted.tenant {
            let known = self.store.tenant(tenant).await.map_err(|error| from_store(&error))?;
            known.ok_or_else(|| not_found(&format!("tenants/{tenant}")))?;
        }
        self.require_sources(&wanted).await?;
        let change = self.change(&caller, &metadata);
        let created =
            self.store.create_subscription(wanted, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(to_proto(&created)))
    }

    pub(super) async fn do_get_subscription(
        &self,
        request: Request<v1::GetSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        let (metadata, message) = split(request);
        let id = name::subscription(&message.name, "name")?;
        let (_, found) = self.permitted(&metadata, &id, |it| Action::GetSubscription(it)).await?;
        Ok(Response::new(to_proto(&found)))
    }

    pub(super) async fn do_update_subscription(
        &self,
        request: Request<v1::UpdateSubscriptionRequest>,
    ) -> Answer<v1::Subscription> {
        let (metadata, message) = split(request);
        let wanted = message.subscription.unwrap_or_default();
        let id = name::subscription(&wanted.name, "subscription.name")?;
        let (caller, found) = self.permitted(&metadata, &id, |it| Action::UpdateSubscription(it)).await?;
        let update = subscription_form::update(id, &wanted, message.update_mask)?;
        let change = self.change(&caller, &metadata).of(found.tenant);
        let changed =
            self.store.update_subscription(update, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        tracing::info!(subscription.id = %changed.id, by = %caller.subject, "a subscription was changed");
        Ok(Response::new(to_proto(&changed)))
    }

    /// The caller and the subscription, if there is one and this caller may do this with it.
    pub(super) async fn permitted(
        &self,
        metadata: &Metadata,
        id: &SubscriptionId,
        action: impl for<'a> FnOnce(SubscriptionRef<'a>) -> Action<'a>,
    ) -> Result<(Caller, Subscription), Status> {
        let own = self.gate.own(metadata).await?;
        let found = self.store.subscription(id).await.map_err(|error| from_store(&error))?;
        let scope = found.as_ref().and_then(|found| found.tenant.as_ref());
        let caller = self.gate.allowed(&own, action(reference(id, scope))).await?;
        Ok((caller, found.ok_or_else(|| not_found(&format!("subscriptions/{id}")))?))
    }

    pub(super) async fn do_list_subscriptions(
        &self,
        request: Request<v1::ListSubscriptionsRequest>,
    ) -> Answer<v1::ListSubscriptionsResponse> {
        let (metadata, message) = split(request);
        let caller = self.check(&metadata, Action::ListSubscriptions).await?;
        let (after, size) =
            (page::after::<SubscriptionId>(&message.page_token)?, page::size(message.page_size)?);
        let mut gathering = page::Gathering::new(size);
        let mut next = after;
        loop {
            let read = self.store.subscriptions(next.as_ref(), page::READ_MAX).await;
            let read = read.map_err(|error| from_store(&error))?;
            next = read.items.last().map(|item| item.id.clone());
            let visible = read.items.into_iter().filter(|item| {
                allows(&caller, Action::GetSubscription(reference(&item.id, item.tenant.as_ref())))
            });
            if !gathering.take(visible) || !read.more {
                break;
            }
        }
        let (subscriptions, next_page_token) =
            page::shown(&gathering.page(), to_proto, |item| item.id.to_string());
        Ok(Response::new(v1::ListSubscriptionsResponse { subscriptions, next_page_token }))
    }

    pub(super) async fn do_delete_subscription(
        &self,
        request: Request<v1::DeleteSubscriptionRequest>,
    ) -> Answer<v1::DeleteSubscriptionResponse> {
        let (metadata, message) = split(request);
        let id = name::subscription(&message.name, "name")?;
        let (caller, found) = self.permitted(&metadata, &id, |it| Action::DeleteSubscription(it)).await?;
        let change = self.change_because(&caller, &metadata, &message.reason)?.of(found.tenant);
        self.store.delete_subscription(&id, &change).await.map_err(|error| from_store(&error))?;
        self.changed().await;
        Ok(Response::new(v1::DeleteSubscriptionResponse {}))
    }

    pub(super) async fn do_list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Answer<v1::ListDeadLettersResponse> {
        let (metadata, message) = split(request);
        let id = name::subscription(&message.parent, "parent")?;
        let (_, subscription) = self.permitted(&metadata, &id, |it| Action::ListDeadLetters(it)).await?;
        let (after, size) = (dead_letter_token(&message.page_token)?, page::size(message.page_size)?);
        let letters = self.store.dead_letters(subscription.no, after, size).await;
        let letters = letters.map_err(|error| from_store(&error))?;
        let more = u32::try_from(letters.len()).is_ok_and(|count| count == size);
        let id = |(lane, letter): &(LaneNo, DeadLetter)| format!("{lane}-{}", letter.position);
        let (dead_letters, next_page_token) =
            page::shown(&Page { items: letters, more }, |(lane, letter)| dead_letter(*lane, letter), id);
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
}

/// A subscription as the permission table names it. One that does not exist has no tenant.
pub(crate) fn reference<'a>(id: &'a SubscriptionId, tenant: Option<&'a TenantId>) -> SubscriptionRef<'a> {
    let scope = tenant.map_or(SubscriptionScope::Platform, SubscriptionScope::Tenant);
    SubscriptionRef { id, scope }
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

fn dead_letter(lane: LaneNo, letter: &DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        receipt_id: letter.receipt_id.to_string(),
        lane: u32::from(lane.0),
        position: letter.position,
        attempts: letter.attempts,
        reason_code: letter.reason_code.clone(),
        reason_text: letter.reason_text.clone(),
        first_fail_time: Some(time::to_proto(letter.first_failed_at)),
        death_time: Some(time::to_proto(letter.died_at)),
    }
}
