//! Two tenants with one of everything, the ids of a third that does not exist, and callers of every kind.

use std::time::Duration;

use bytes::Bytes;
use portero_auth::{Grant, Role};
use portero_client::{Outcome, v1};
use portero_types::{ReceiptId, RequestId, SubscriptionId, TenantId};

use super::call::Line;
use crate::harness::{
    Admin, Consumer, Gateway, Provider, Signed, Source, eventually, now, stripe_event, subscription,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The ids of one tenant and of what belongs to it. As long as those of another, so that answers differ in nothing else.
pub(super) struct Place {
    pub(super) tenant: TenantId,
    /// Whether any of it exists.
    pub(super) is_there: bool,
    pub(super) source: String,
    pub(super) secret: String,
    /// A secret that may be retired and revoked.
    pub(super) spare: String,
    pub(super) rejection: String,
    /// Where an entity waits.
    pub(super) subscription: SubscriptionId,
    /// One that may be deleted, and is made again.
    pub(super) doomed: SubscriptionId,
    /// One to consume, which nothing comes to.
    pub(super) quiet: SubscriptionId,
    pub(super) entity: String,
    pub(super) receipt: String,
    pub(super) event: String,
    pub(super) grant: String,
    /// The token of a delivery.
    pub(super) delivery: Bytes,
}

impl Place {
    /// Ids that nothing has.
    pub(super) fn nowhere() -> Self {
        let id = |text: &str| SubscriptionId::new(text).expect("valid");
        Self {
            tenant: TenantId::new("none").expect("valid"),
            is_there: false,
            source: "shop-none".to_owned(),
            secret: "first-none".to_owned(),
            spare: "spare-none".to_owned(),
            rejection: RequestId::new(now(), 1).to_string(),
            subscription: id("events-none"),
            doomed: id("doomed-none"),
            quiet: id("quiet-none"),
            entity: "ffffffffffffffffff".to_owned(),
            receipt: ReceiptId::new(now(), 1).to_string(),
            event: "evt_none".to_owned(),
            grant: "viewer-none".to_owned(),
            delivery: Bytes::from_static(&[7; 40]),
        }
    }

    /// What is of this tenant with another's ids in it.
    pub(super) fn of_tenant(&self, tenant: &Self) -> Self {
        Self { tenant: tenant.tenant.clone(), ..Self::copy(self) }
    }

    fn copy(place: &Self) -> Self {
        Self {
            tenant: place.tenant.clone(),
            is_there: place.is_there,
            source: place.source.clone(),
            secret: place.secret.clone(),
            spare: place.spare.clone(),
            rejection: place.rejection.clone(),
            subscription: place.subscription.clone(),
            doomed: place.doomed.clone(),
            quiet: place.quiet.clone(),
            entity: place.entity.clone(),
            receipt: place.receipt.clone(),
            event: place.event.clone(),
            grant: place.grant.clone(),
            delivery: place.delivery.clone(),
        }
    }

    /// Its ids, and what each is called when answers are compared.
    pub(super) fn words(&self) -> Vec<(&str, &'static str)> {
        vec![
            (&self.source, "SOURCE"),
            (&self.secret, "SECRET"),
            (&self.spare, "SPARE"),
            (&self.rejection, "REJECTION"),
            (self.subscription.as_str(), "SUBSCRIPTION"),
            (self.doomed.as_str(), "DOOMED"),
            (self.quiet.as_str(), "QUIET"),
            (&self.entity, "ENTITY"),
            (&self.receipt, "RECEIPT"),
            (&self.event, "EVENT"),
            (&self.grant, "GRANT"),
        ]
    }

    /// Makes a tenant with one of everything.
    pub(super) async fn make(gateway: &Gateway, admin: &mut Admin, tenant: &str) -> Self {
        let request = v1::CreateTenantRequest { tenant_id: tenant.to_owned(), tenant: None };
        admin.create_tenant(request).await.expect("a tenant");
        let mut place = Self::named(tenant);
        let source = place.make_source(gateway, admin).await;
        for id in [&place.subscription, &place.doomed, &place.quiet] {
            let mut request = place.subscription_request(id);
            if id == &place.quiet {
                request.subscription.as_mut().expect("given").set_start_at(v1::StartAt::Latest);
            }
            admin.create_subscription(request).await.expect("a subscription");
        }
        place.make_rejection(gateway, admin, &source).await;
        place.make_event(gateway, admin, &source).await;
        let request = place.grant_request(&place.grant, Some(&place.tenant));
        admin.create_grant(request).await.expect("a grant");
        place
    }

    fn named(tenant: &str) -> Self {
        let id = |word: &str| format!("{word}-{tenant}");
        let subscription = |word: &str| SubscriptionId::new(id(word)).expect("valid");
        Self {
            tenant: TenantId::new(tenant).expect("valid"),
            is_there: true,
            source: id("shop"),
            secret: id("first"),
            spare: id("spare"),
            subscription: subscription("events"),
            doomed: subscription("doomed"),
            quiet: subscription("quiet"),
            event: format!("evt_{tenant}"),
            grant: id("viewer"),
            ..Self::nowhere()
        }
    }

    async fn make_source(&self, gateway: &Gateway, admin: &mut Admin) -> Source {
        let verification = v1::source::Verification::Preset("stripe".to_owned());
        let recipe = portero_recipe::Recipe::preset("stripe").expect("a preset");
        let mut source =
            Source::without_secret(admin, self.tenant.as_str(), &self.source, verification, recipe).await;
        for id in [&self.secret, &self.spare] {
            let request = v1::CreateSecretRequest {
                parent: source.name.clone(),
                secret_id: id.clone(),
                ..Default::default()
            };
            let made = admin.create_secret(request).await.expect("a secret").into_inner();
            crate::harness::canaries::plant_secret(&made.value);
            if id == &self.secret {
                source.secret = made.value;
            }
        }
        source.is_known(gateway).await;
        source
    }

    async fn make_rejection(&mut self, gateway: &Gateway, admin: &mut Admin, source: &Source) {
        let unsigned = Signed { headers: Vec::new(), body: b"{}".to_vec() };
        let refused = Provider::new(gateway, source).post(&unsigned).await;
        assert_eq!(refused.status, 401);
        self.rejection = eventually("the rejection is kept", PATIENCE, async || {
            let request = v1::ListRejectionsRequest { parent: source.name.clone(), ..Default::default() };
            let listed = admin.list_rejections(request).await.expect("listed").into_inner().rejections;
            listed.first().map(|rejection| rejection.request_id.clone())
        })
        .await;
    }

    /// An event that its consumer fails, so that its entity waits.
    async fn make_event(&mut self, gateway: &Gateway, admin: &mut Admin, source: &Source) {
        let body = stripe_event(&self.event, &format!("entity-{}", self.tenant), 0);
        let sent = Provider::new(gateway, source).send(&body).await;
        self.receipt = sent.field("receipt_id");
        let later = Outcome::Retry { after: Some(PATIENCE * 60), code: String::new(), text: String::new() };
        let consumer = Consumer::with(gateway, self.subscription.as_str(), move |_| {
            let later = later.clone();
            async move { later }
        })
        .await;
        let parent = format!("subscriptions/{}", self.subscription);
        self.entity = eventually("the entity waits", PATIENCE, async || {
            let request = v1::ListParkedEntitiesRequest { parent: parent.clone(), ..Default::default() };
            let listed = admin.list_parked_entities(request).await.expect("listed").into_inner();
            let name = &listed.parked_entities.first()?.name;
            Some(name.rsplit('/').next().expect("a name").to_owned())
        })
        .await;
        consumer.stop().await;
        self.delivery = self.take_delivery(gateway).await;
    }

    /// The token of a delivery of the event, by another subscription.
    async fn take_delivery(&self, gateway: &Gateway) -> Bytes {
        let mut bare = crate::harness::Bare::new(gateway, self.doomed.as_str()).await;
        let flow = v1::Flow { max_inflight_events: 1, max_inflight_bytes: 0 };
        let (_sender, mut stream) = bare.open(flow).await;
        crate::harness::next_delivery(&mut stream).await.token
    }

    /// A subscription to this tenant's source.
    pub(super) fn subscription_request(&self, id: &SubscriptionId) -> v1::CreateSubscriptionRequest {
        subscription(id.as_str(), |wanted| {
            wanted.tenant = format!("tenants/{}", self.tenant);
            wanted.sources = vec![self.source.clone()];
        })
    }

    /// A viewer's grant.
    pub(super) fn grant_request(&self, id: &str, tenant: Option<&TenantId>) -> v1::CreateGrantRequest {
        let grant = v1::Grant {
            issuer: "portero-local".to_owned(),
            subject: "somebody".to_owned(),
            role: v1::Role::Viewer.into(),
            tenant: tenant.map(|tenant| format!("tenants/{tenant}")).unwrap_or_default(),
            ..v1::Grant::default()
        };
        v1::CreateGrantRequest { grant_id: id.to_owned(), grant: Some(grant) }
    }
}

/// Somebody who calls.
pub(super) struct Caller {
    pub(super) what: String,
    /// As the table knows it.
    pub(super) known: portero_auth::Caller,
    pub(super) line: Line,
    pub(super) token: String,
}

/// A caller of every role, for the whole installation and for acme, as far as the role has both; the consumers' grants name
/// a subscription of each place. The last one has no grant.
pub(super) fn callers(gateway: &Gateway, places: [&Place; 3]) -> Vec<Caller> {
    let acme = &places[0].tenant;
    let named: Vec<SubscriptionId> = places.iter().map(|place| place.quiet.clone()).collect();
    let mut callers = Vec::new();
    for role in Role::ALL {
        let (whole, bound) = (Grant::of(role, None), Grant::of(role, Some(acme.clone())));
        let grants = match role {
            Role::PlatformAdmin => vec![whole],
            Role::TenantAdmin => vec![bound],
            Role::Security | Role::Operator | Role::Viewer => vec![whole, bound],
            Role::Consumer => vec![
                Grant::consumer(vec![named[0].clone()]),
                Grant { tenant: Some(acme.clone()), ..Grant::consumer(named.clone()) },
            ],
        };
        for grant in grants {
            grant.check().expect("a grant as they are made");
            let mut arguments = vec!["--role".to_owned(), role.name().to_owned()];
            if let Some(tenant) = &grant.tenant {
                arguments.extend(["--tenant".to_owned(), tenant.to_string()]);
            }
            for subscription in &grant.subscriptions {
                arguments.extend(["--subscription".to_owned(), subscription.to_string()]);
            }
            let what = arguments.join(" ");
            callers.push(caller(gateway, what, &arguments, vec![grant]));
        }
    }
    callers.push(caller(gateway, "no grant".to_owned(), &[], Vec::new()));
    callers
}

fn caller(gateway: &Gateway, what: String, arguments: &[String], grants: Vec<Grant>) -> Caller {
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--subject", "tester"]);
    let token = gateway.site.token(&arguments);
    let known = portero_auth::Caller {
        issuer: "portero-local".to_owned(),
        subject: "tester".to_owned(),
        expires_at: now(),
        grants,
        claimed: None,
    };
    Caller { what, known, line: Line::new(&gateway.grpc_url(), &token), token }
}
