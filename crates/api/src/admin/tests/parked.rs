//! Parked entities: listed in full, asked for by name, and only where that makes sense.

use portero_auth::Grant;
use portero_proto::v1;
use portero_store::testing::fixture::{event_of, new_session, position};
use portero_store::{
    AcceptStore as _, AuditFilter, AuditStore as _, ConfigStore as _, JournalState, LaneAction, LaneFlush,
    LaneStore as _, ParkedEntity, ParkedState, Subscription,
};
use portero_types::{SessionId, Timestamp};
use tonic::{Code, Status};

use super::{NOW, Service, admin_of, bad_field, code, consumer, preset};
use crate::time;

const PARENT: &str = "subscriptions/billing";

/// Three events of acme's, each the head of an entity that is parked in this state, as a gateway has written it.
struct Parked {
    service: Service,
    subscription: Subscription,
    session: SessionId,
    keys: Vec<(String, ParkedState)>,
}

impl Parked {
    async fn new(states: &[ParkedState]) -> Self {
        let service = Service::start().await;
        service.create("pay", preset("stripe")).await.expect("created");
        let of_acme = v1::Subscription { tenant: "tenants/acme".to_owned(), ..v1::Subscription::default() };
        super::subscriptions::create(&service, of_acme).await.expect("created");
        let (acme, pay) = ("acme".parse().expect("valid"), "pay".parse().expect("valid"));
        let store = &service.store;
        let tenant = store.tenant(&acme).await.expect("read").expect("there");
        let source = store.source(&acme, &pay).await.expect("read").expect("there");
        let id = "billing".parse().expect("valid");
        let subscription = store.subscription(&id).await.expect("read").expect("there");
        let session = new_session("gateway", 3_600_000);
        store.open_session(&session).await.expect("a session");
        let claimed =
            store.claim_lanes(session.id, subscription.no, subscription.lanes, 1).await.expect("lanes");
        let mut keys = Vec::new();
        for (number, state) in (0_u32..).zip(states) {
            let key = format!("stripe:cus_{number}");
            let event = event_of(&tenant, &source, &format!("evt_{number}"), &key);
            let verdicts = store.accept(std::slice::from_ref(&event)).await.expect("accepted");
            let at = position(verdicts[0]);
            let lane = event.entity.slot().lane(subscription.lanes);
            let lane =
                claimed.iter().find(|claimed| claimed.lane.lane == lane).expect("every lane is claimed");
            let parked = ParkedEntity {
                entity: event.entity,
                state: *state,
                positions: vec![at.n],
                overflow: None,
                attempts: 2,
                interruptions: 1,
                due_at: Timestamp::from_secs(NOW.as_secs() + 60),
                first_failed_at: NOW,
                reason_code: "DB_DOWN".to_owned(),
                reason_text: "no connection".to_owned(),
            };
            let flush = LaneFlush {
                lane: lane.lane,
                epoch: lane.epoch,
                state: JournalState {
                    seq: u64::from(number) + 1,
                    watermark: at.n,
                    ..JournalState::default()
                },
                park: vec![parked],
                unpark: Vec::new(),
                defer: Vec::new(),
                undefer: Vec::new(),
                dead: Vec::new(),
                expired: 0,
            };
            assert_eq!(store.flush_lanes(session.id, &[flush]).await.expect("flushed"), [lane.lane]);
            keys.push((key, *state));
        }
        Self { service, subscription, session: session.id, keys }
    }

    async fn list(
        &self,
        grant: &Grant,
        size: i32,
        token: &str,
    ) -> Result<v1::ListParkedEntitiesResponse, Status> {
        let message = v1::ListParkedEntitiesRequest {
            parent: PARENT.to_owned(),
            page_size: size,
            page_token: token.to_owned(),
        };
        Ok(self.service.admin.do_list_parked_entities(self.service.by(grant, message)).await?.into_inner())
    }

    async fn all(&self) -> Vec<v1::ParkedEntity> {
        self.list(&admin_of("acme"), 0, "").await.expect("listed").parked_entities
    }

    async fn retry(&self, grant: &Grant, name: &str) -> Result<v1::ParkedEntity, Status> {
        let request = self.service.by(grant, v1::RetryParkedEntityRequest { name: name.to_owned() });
        Ok(self.service.admin.do_retry_parked_entity(request).await?.into_inner())
    }

    async fn dead_letter(&self, grant: &Grant, name: &str) -> Result<v1::ParkedEntity, Status> {
        let request = self.service.by(grant, v1::DeadLetterParkedEntityRequest { name: name.to_owned() });
        Ok(self.service.admin.do_dead_letter_parked_entity(request).await?.into_inner())
    }

    /// What the owner of the lanes is asked for: the entity's key, what, and by whom.
    async fn asked(&self) -> Vec<(String, LaneAction, String)> {
        let taken =
            self.service.store.take_requests(self.session, self.subscription.no).await.expect("taken");
        let acme = "acme".parse().expect("valid");
        let key = |hash| {
            let of = |key: &&(String, ParkedState)| portero_types::EntityHash::of(&acme, &key.0) == hash;
            self.keys.iter().find(of).map(|(key, _)| key.clone()).expect("one of ours")
        };
        taken.into_iter().map(|request| (key(request.entity), request.action, request.by)).collect()
    }
}

#[tokio::test]
async fn parked_entities_are_listed_page_by_page_with_what_waits_and_why() {
    use ParkedState::{Blocked, Draining, Held, Retry};
    let parked = Parked::new(&[Retry, Held, Draining, Blocked, Retry]).await;
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = parked.list(&admin_of("acme"), 2, &token).await.expect("a page");
        assert!(page.parked_entities.len() <= 2);
        found.extend(page.parked_entities);
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(found, parked.all().await, "nothing twice and nothing missing");
    for (key, state) in &parked.keys {
        let entity = found.iter().find(|entity| entity.ordering_key == *key).expect("listed");
        let wanted = match state {
            Retry => v1::ParkedState::Retry,
            Held => v1::ParkedState::Held,
            Draining => v1::ParkedState::Draining,
            Blocked => v1::ParkedState::Blocked,
        };
        assert_eq!((entity.state(), entity.tenant.as_str()), (wanted, "tenants/acme"));
        assert!(entity.receipt_id.starts_with("rcpt_"), "{entity:?}");
        assert_eq!((entity.attempts, entity.interruptions, entity.waiting_count), (2, 1, 0));
        assert_eq!((entity.reason_code.as_str(), entity.reason_text.as_str()), ("DB_DOWN", "no connection"));
        assert!(!entity.waiting_more);
        let due_at = Timestamp::from_secs(NOW.as_secs() + 60);
        assert_eq!(entity.due_time, Some(time::to_proto(due_at)));
        assert_eq!(entity.first_fail_time, Some(time::to_proto(NOW)));
        assert!(entity.name.starts_with("subscriptions/billing/parkedEntities/"), "{entity:?}");
    }
    assert_eq!(bad_field(parked.list(&admin_of("acme"), 2, "odd").await), "page_token");
}

#[tokio::test]
async fn what_is_asked_reaches_the_owner_of_the_lane_with_who_asked() {
    use ParkedState::{Blocked, Retry};
    let parked = Parked::new(&[Retry, Retry, Blocked]).await;
    let all = parked.all().await;
    let named = |key: &str| all.iter().find(|entity| entity.ordering_key == key).expect("listed");
    let (first, second, blocked) = (named("stripe:cus_0"), named("stripe:cus_1"), named("stripe:cus_2"));
    let acme = admin_of("acme");
    assert_eq!(&parked.retry(&acme, &first.name).await.expect("asked"), first, "the entity as it was");
    assert_eq!(&parked.dead_letter(&Grant::platform_admin(), &second.name).await.expect("asked"), second);
    assert_eq!(&parked.retry(&acme, &blocked.name).await.expect("asked"), blocked);
    parked.retry(&acme, &blocked.name).await.expect("asked again");
    let mut asked = parked.asked().await;
    asked.sort_by(|a, b| a.0.cmp(&b.0));
    let wanted = |number, action| (format!("stripe:cus_{number}"), action, "tester".to_owned());
    let retry = LaneAction::Retry;
    assert_eq!(asked, [wanted(0, retry), wanted(1, LaneAction::DeadLetter), wanted(2, retry)]);
}

#[tokio::test]
async fn what_is_asked_is_in_the_audit_log_and_what_is_refused_is_not() {
    use ParkedState::{Held, Retry};
    let parked = Parked::new(&[Retry, Held]).await;
    let all = parked.all().await;
    let named = |key: &str| all.iter().find(|entity| entity.ordering_key == key).expect("listed");
    let (waiting, held) = (named("stripe:cus_0"), named("stripe:cus_1"));
    parked.retry(&admin_of("acme"), &waiting.name).await.expect("asked");
    parked.dead_letter(&admin_of("acme"), &waiting.name).await.expect("asked");
    assert_eq!(code(parked.retry(&admin_of("acme"), &held.name).await), Code::FailedPrecondition);
    let filter = AuditFilter { after_seq: Some(4), ..AuditFilter::default() };
    let entries = parked.service.store.audit_entries(filter, 100).await.expect("read").items;
    let told: Vec<_> = entries.iter().map(|entry| (entry.action.as_str(), entry.resource.as_str())).collect();
    let name = waiting.name.as_str();
    assert_eq!(told, [("RetryParkedEntity", name), ("DeadLetterParkedEntity", name)]);
    assert!(entries.iter().all(|entry| entry.tenant.as_ref().is_some_and(|it| it.as_str() == "acme")));
}

#[tokio::test]
async fn what_makes_no_sense_for_an_entity_is_refused_and_asked_of_nobody() {
    use ParkedState::{Blocked, Draining, Held};
    let parked = Parked::new(&[Held, Draining, Blocked]).await;
    let acme = admin_of("acme");
    for entity in parked.all().await {
        if entity.state() == v1::ParkedState::Blocked {
            let refused = parked.dead_letter(&acme, &entity.name).await.expect_err("refused");
            assert!(refused.message().contains("retry it"), "{refused}");
        } else {
            assert_eq!(code(parked.retry(&acme, &entity.name).await), Code::FailedPrecondition);
            assert_eq!(code(parked.dead_letter(&acme, &entity.name).await), Code::FailedPrecondition);
        }
    }
    for odd in ["000000000000000000", "x", "00000000000000000G"] {
        let name = format!("{PARENT}/parkedEntities/{odd}");
        assert_eq!(code(parked.retry(&acme, &name).await), Code::NotFound, "{odd}");
    }
    assert_eq!(bad_field(parked.retry(&acme, PARENT).await), "name");
    assert!(parked.asked().await.is_empty());
}

#[tokio::test]
async fn only_admins_of_the_tenant_and_of_the_platform_see_or_help_parked_entities() {
    let parked = Parked::new(&[ParkedState::Retry]).await;
    let name = parked.all().await.remove(0).name;
    let unknown = format!("{PARENT}/parkedEntities/000000000000000000");
    for grant in [admin_of("globex"), consumer()] {
        assert_eq!(code(parked.list(&grant, 0, "").await), Code::PermissionDenied);
        for name in [&name, &unknown] {
            assert_eq!(code(parked.retry(&grant, name).await), Code::PermissionDenied);
            assert_eq!(code(parked.dead_letter(&grant, name).await), Code::PermissionDenied);
        }
    }
    assert!(parked.asked().await.is_empty());
    parked.list(&Grant::platform_admin(), 0, "").await.expect("listed");
}
