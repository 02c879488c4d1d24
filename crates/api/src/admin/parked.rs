//! Entities whose events wait outside of the ordinary flow, and what an operator asks for them.
#![expect(
    clippy::redundant_closure,
    reason = "an action's constructor is a function of one lifetime, and one of every lifetime is wanted"
)]

use portero_auth::{Action, SubscriptionRef};
use portero_proto::v1;
use portero_store::{
    LaneAction, LaneRequest, NewAuditEntry, PARKED_LISTING_MAX, Page, ParkedListing, ParkedState,
};
use portero_types::{EntityHash, LaneNo, SubscriptionId};
use tonic::{Request, Response, Status};

use super::{Admin, Answer, split};
use crate::authenticate::Metadata;
use crate::error::{from_store, invalid, not_found};
use crate::{name, page, time};

impl Admin {
    pub(super) async fn do_list_parked_entities(
        &self,
        request: Request<v1::ListParkedEntitiesRequest>,
    ) -> Answer<v1::ListParkedEntitiesResponse> {
        let (metadata, message) = split(request);
        let id = name::subscription(&message.parent, "parent")?;
        let (_, subscription) = self.permitted(&metadata, &id, |it| Action::ListParkedEntities(it)).await?;
        let (after, size) = (page_token(&message.page_token)?, page::size(message.page_size)?);
        let size = size.min(PARKED_LISTING_MAX);
        let listed = self.store.parked_entities(subscription.no, after, size).await;
        let listed = listed.map_err(|error| from_store(&error))?;
        let more = u32::try_from(listed.len()).is_ok_and(|count| count == size);
        let show = |one: &ParkedListing| to_proto(&id, one.clone());
        let (parked_entities, next_page_token) = page::shown(&Page { items: listed, more }, show, entity_id);
        Ok(Response::new(v1::ListParkedEntitiesResponse { parked_entities, next_page_token }))
    }

    pub(super) async fn do_retry_parked_entity(
        &self,
        request: Request<v1::RetryParkedEntityRequest>,
    ) -> Answer<v1::ParkedEntity> {
        let (metadata, message) = split(request);
        let retries = |state| matches!(state, ParkedState::Retry | ParkedState::Blocked);
        let asked = Asked { name: &message.name, action: LaneAction::Retry, serves: retries };
        self.ask(&metadata, asked, |it| Action::RetryParkedEntity(it)).await
    }

    pub(super) async fn do_dead_letter_parked_entity(
        &self,
        request: Request<v1::DeadLetterParkedEntityRequest>,
    ) -> Answer<v1::ParkedEntity> {
        let (metadata, message) = split(request);
        let gives_up = |state| matches!(state, ParkedState::Retry);
        let asked = Asked { name: &message.name, action: LaneAction::DeadLetter, serves: gives_up };
        self.ask(&metadata, asked, |it| Action::DeadLetterParkedEntity(it)).await
    }

    async fn ask(
        &self,
        metadata: &Metadata,
        asked: Asked<'_>,
        action: impl for<'a> FnOnce(SubscriptionRef<'a>) -> Action<'a>,
    ) -> Answer<v1::ParkedEntity> {
        let (id, entity) = name::parked_entity(asked.name, "name")?;
        let (caller, subscription) = self.permitted(metadata, &id, action).await?;
        let (lane, hash) = read_id(entity).ok_or_else(|| not_found(asked.name))?;
        let next = self.store.parked_entities(subscription.no, before(lane, hash), 1).await;
        let found = next.map_err(|error| from_store(&error))?.into_iter().next();
        let found = found.filter(|found| (found.lane, found.entity) == (lane, hash));
        let found = found.ok_or_else(|| not_found(asked.name))?;
        if !(asked.serves)(found.state) {
            return Err(Status::failed_precondition(match (asked.action, found.state) {
                (LaneAction::DeadLetter, ParkedState::Blocked) => {
                    "the event that blocks this entity is a dead letter already; retry it to let the others go on"
                }
                (LaneAction::Retry | LaneAction::DeadLetter, _) => {
                    "no event of this entity has failed and waits: it goes on by itself"
                }
            }));
        }
        let request = LaneRequest {
            entity: hash,
            lane,
            position: found.position,
            action: asked.action,
            by: caller.subject.clone(),
            at: self.now(),
        };
        // Told first: what is asked twice does no harm, and what was asked is never missing in the log.
        let (change, tenant) = (self.change(&caller, metadata), subscription.tenant.as_ref());
        let rpc = match asked.action {
            LaneAction::Retry => "RetryParkedEntity",
            LaneAction::DeadLetter => "DeadLetterParkedEntity",
        };
        let entry = NewAuditEntry::deed(&change, rpc, asked.name.to_owned(), tenant);
        self.store.append(entry).await.map_err(|error| from_store(&error))?;
        self.store.request(subscription.no, request).await.map_err(|error| from_store(&error))?;
        tracing::info!(
            subscription.id = %id, lane = %lane, action = ?asked.action, by = %caller.subject,
            "something was asked of a parked entity"
        );
        Ok(Response::new(to_proto(&id, found)))
    }
}

/// What is asked of which entity, and in which states that makes sense.
struct Asked<'a> {
    name: &'a str,
    action: LaneAction,
    serves: fn(ParkedState) -> bool,
}

fn entity_id(listing: &ParkedListing) -> String {
    format!("{:02x}{:016x}", listing.lane.0, listing.entity.0)
}

/// The lane and entity of an id; `None` when no such id was ever given.
fn read_id(id: &str) -> Option<(LaneNo, EntityHash)> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if id.len() != 18 || !id.bytes().all(is_hex) {
        return None;
    }
    let (lane, entity) = id.split_at(2);
    Some((LaneNo(u8::from_str_radix(lane, 16).ok()?), EntityHash(u64::from_str_radix(entity, 16).ok()?)))
}

fn page_token(token: &str) -> Result<Option<(LaneNo, EntityHash)>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    read_id(token)
        .map(Some)
        .ok_or_else(|| invalid("page_token", "must be the next_page_token of the answer before"))
}

/// What lies right before an entity in the store's order, which compares hashes as signed numbers.
fn before(lane: LaneNo, entity: EntityHash) -> Option<(LaneNo, EntityHash)> {
    match entity.0.cast_signed().checked_sub(1) {
        Some(hash) => Some((lane, EntityHash(hash.cast_unsigned()))),
        None => Some((LaneNo(lane.0.checked_sub(1)?), EntityHash(i64::MAX.cast_unsigned()))),
    }
}

fn to_proto(subscription: &SubscriptionId, listing: ParkedListing) -> v1::ParkedEntity {
    let state = match listing.state {
        ParkedState::Retry => v1::ParkedState::Retry,
        ParkedState::Held => v1::ParkedState::Held,
        ParkedState::Draining => v1::ParkedState::Draining,
        ParkedState::Blocked => v1::ParkedState::Blocked,
    };
    v1::ParkedEntity {
        name: format!("subscriptions/{subscription}/parkedEntities/{}", entity_id(&listing)),
        state: state.into(),
        lane: u32::from(listing.lane.0),
        tenant: listing.tenant.map(|tenant| format!("tenants/{tenant}")).unwrap_or_default(),
        ordering_key: listing.ordering_key.unwrap_or_default(),
        receipt_id: listing.receipt_id.map(|id| id.to_string()).unwrap_or_default(),
        position: listing.position.unwrap_or_default(),
        waiting_count: listing.waiting,
        waiting_more: listing.has_overflow,
        attempts: listing.attempts,
        reason_code: listing.reason_code,
        reason_text: listing.reason_text,
        due_time: Some(time::to_proto(listing.due_at)),
        interruptions: listing.interruptions,
        first_fail_time: Some(time::to_proto(listing.first_failed_at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_only_what_was_given_is_read() {
        for (lane, entity) in [(0, 0), (255, u64::MAX), (7, 1 << 63)] {
            let id = format!("{lane:02x}{entity:016x}");
            assert_eq!(read_id(&id), Some((LaneNo(lane), EntityHash(entity))));
        }
        for odd in ["", "00", "+00000000000000000", "0g0000000000000000", "FF0000000000000000"] {
            assert_eq!(read_id(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_lies_before_an_entity_is_right_before_it_in_signed_order() {
        let signed = |hash: i64| EntityHash(hash.cast_unsigned());
        assert_eq!(before(LaneNo(3), signed(0)), Some((LaneNo(3), signed(-1))));
        assert_eq!(before(LaneNo(3), signed(i64::MIN)), Some((LaneNo(2), signed(i64::MAX))));
        assert_eq!(before(LaneNo(0), signed(i64::MIN)), None);
    }
}
