//! The calls about subscriptions and what they carry, about grants, and about the installation.

use bytes::Bytes;
use portero_auth::{Action, SubscriptionRef, SubscriptionScope};
use portero_client::v1;
use portero_types::{SubscriptionId, TenantId};

use super::super::world::Place;
use super::{MADE, Row, bytes, mask, row, tenant};

fn name(id: &SubscriptionId) -> String {
    format!("subscriptions/{id}")
}

fn entity(place: &Place) -> String {
    format!("subscriptions/{}/parkedEntities/{}", place.subscription, place.entity)
}

/// A subscription of a place, as the table knows it: one that does not exist is everybody's.
fn of<'a>(place: &'a Place, id: &'a SubscriptionId) -> SubscriptionRef<'a> {
    let scope =
        if place.is_there { SubscriptionScope::Tenant(&place.tenant) } else { SubscriptionScope::Platform };
    SubscriptionRef { id, scope }
}

/// One that is to be made for a place's tenant.
fn made(place: &Place) -> SubscriptionRef<'_> {
    SubscriptionRef { id: &place.quiet, scope: SubscriptionScope::Tenant(&place.tenant) }
}

/// A grant of a place; one that does not exist is everybody's.
fn grants_tenant(place: &Place) -> Option<&TenantId> {
    place.is_there.then_some(&place.tenant)
}

pub(super) fn subscriptions() -> Vec<Row> {
    fn forget(_: &Place) -> Vec<(&'static str, Bytes)> {
        let name = format!("subscriptions/{MADE}");
        vec![(
            "AdminService/DeleteSubscription",
            bytes(v1::DeleteSubscriptionRequest { name, ..Default::default() }),
        )]
    }
    vec![
        row(
            "AdminService/CreateSubscription",
            |p| Action::CreateSubscription(made(p)),
            |p| {
                let id = SubscriptionId::new(MADE).expect("valid");
                bytes(p.subscription_request(&id))
            },
        )
        .undone(forget),
        row(
            "AdminService/CreateSubscription",
            |p| {
                Action::CreateSubscription(SubscriptionRef {
                    id: &p.quiet,
                    scope: SubscriptionScope::Platform,
                })
            },
            |_| {
                let subscription = Some(v1::Subscription::default());
                bytes(v1::CreateSubscriptionRequest { subscription_id: MADE.to_owned(), subscription })
            },
        )
        .undone(forget),
        row(
            "AdminService/GetSubscription",
            |p| Action::GetSubscription(of(p, &p.subscription)),
            |p| bytes(v1::GetSubscriptionRequest { name: name(&p.subscription) }),
        ),
        row(
            "AdminService/ListSubscriptions",
            |_| Action::ListSubscriptions,
            |_| bytes(v1::ListSubscriptionsRequest::default()),
        ),
        row(
            "AdminService/UpdateSubscription",
            |p| Action::UpdateSubscription(of(p, &p.subscription)),
            |p| {
                let wanted =
                    v1::Subscription { name: name(&p.subscription), attempts_max: 16, ..Default::default() };
                bytes(v1::UpdateSubscriptionRequest {
                    subscription: Some(wanted),
                    update_mask: mask("attempts_max"),
                })
            },
        ),
        row(
            "AdminService/DeleteSubscription",
            |p| Action::DeleteSubscription(of(p, &p.doomed)),
            |p| bytes(v1::DeleteSubscriptionRequest { name: name(&p.doomed), ..Default::default() }),
        )
        .undone(|p| vec![("AdminService/CreateSubscription", bytes(p.subscription_request(&p.doomed)))]),
        row(
            "SubscriberService/Subscribe",
            |p| Action::Subscribe(of(p, &p.quiet)),
            |p| {
                let hello = v1::Hello {
                    subscription: name(&p.quiet),
                    instance_id: "matrix".to_owned(),
                    boot_id: "1".to_owned(),
                    protocol: 1,
                    ..v1::Hello::default()
                };
                bytes(v1::SubscribeRequest { frame: Some(v1::subscribe_request::Frame::Hello(hello)) })
            },
        ),
        row(
            "SubscriberService/Settle",
            |p| Action::Settle(of(p, &p.quiet)),
            |p| bytes(settle(&p.quiet, p.delivery.clone())),
        ),
    ]
}

/// An ack of one delivery.
pub(in super::super) fn settle(subscription: &SubscriptionId, token: Bytes) -> v1::SettleRequest {
    let item = v1::Settlement { token, outcome: v1::Outcome::Ack.into(), ..v1::Settlement::default() };
    v1::SettleRequest { subscription: name(subscription), items: vec![item] }
}

pub(super) fn stuck() -> Vec<Row> {
    vec![
        row(
            "AdminService/ListDeadLetters",
            |p| Action::ListDeadLetters(of(p, &p.subscription)),
            |p| bytes(v1::ListDeadLettersRequest { parent: name(&p.subscription), ..Default::default() }),
        ),
        row(
            "AdminService/ListParkedEntities",
            |p| Action::ListParkedEntities(of(p, &p.subscription)),
            |p| bytes(v1::ListParkedEntitiesRequest { parent: name(&p.subscription), ..Default::default() }),
        ),
        row(
            "AdminService/RetryParkedEntity",
            |p| Action::RetryParkedEntity(of(p, &p.subscription)),
            |p| bytes(v1::RetryParkedEntityRequest { name: entity(p) }),
        ),
        row(
            "AdminService/DeadLetterParkedEntity",
            |p| Action::DeadLetterParkedEntity(of(p, &p.subscription)),
            |p| bytes(v1::DeadLetterParkedEntityRequest { name: entity(p) }),
        ),
        row(
            "AdminService/GetReceipt",
            |p| Action::GetReceipt(&p.tenant),
            |p| {
                let key = Some(v1::get_receipt_request::Key::ReceiptId(p.receipt.clone()));
                bytes(v1::GetReceiptRequest { parent: tenant(p), key })
            },
        ),
        row(
            "AdminService/GetReceipt",
            |p| Action::GetReceipt(&p.tenant),
            |p| {
                let event = v1::EventKey { provider: "stripe".to_owned(), event_id: p.event.clone() };
                let key = Some(v1::get_receipt_request::Key::Event(event));
                bytes(v1::GetReceiptRequest { parent: tenant(p), key })
            },
        ),
    ]
}

pub(super) fn grants() -> Vec<Row> {
    fn forget(_: &Place) -> Vec<(&'static str, Bytes)> {
        let name = format!("grants/{MADE}");
        vec![("AdminService/DeleteGrant", bytes(v1::DeleteGrantRequest { name, ..Default::default() }))]
    }
    vec![
        row(
            "AdminService/CreateGrant",
            |p| Action::CreateGrant(Some(&p.tenant)),
            |p| bytes(p.grant_request(MADE, Some(&p.tenant))),
        )
        .undone(forget),
        row(
            "AdminService/CreateGrant",
            |_| Action::CreateGrant(None),
            |p| bytes(p.grant_request(MADE, None)),
        )
        .undone(forget),
        row(
            "AdminService/GetGrant",
            |p| Action::GetGrant(grants_tenant(p)),
            |p| bytes(v1::GetGrantRequest { name: format!("grants/{}", p.grant) }),
        ),
        row("AdminService/ListGrants", |_| Action::ListGrants, |_| bytes(v1::ListGrantsRequest::default())),
        row(
            "AdminService/DeleteGrant",
            |p| Action::DeleteGrant(grants_tenant(p)),
            |p| bytes(v1::DeleteGrantRequest { name: format!("grants/{}", p.grant), ..Default::default() }),
        )
        .undone(|p| vec![("AdminService/CreateGrant", bytes(p.grant_request(&p.grant, Some(&p.tenant))))]),
    ]
}

pub(super) fn installation() -> Vec<Row> {
    vec![
        row("AdminService/ListReplicas", |_| Action::ListReplicas, |_| bytes(v1::ListReplicasRequest {})),
        row(
            "AdminService/ListAuditEntries",
            |_| Action::ListAuditEntries(None),
            |_| bytes(v1::ListAuditEntriesRequest::default()),
        ),
        row(
            "AdminService/ListAuditEntries",
            |p| Action::ListAuditEntries(Some(&p.tenant)),
            |p| bytes(v1::ListAuditEntriesRequest { parent: tenant(p), ..Default::default() }),
        ),
    ]
}
