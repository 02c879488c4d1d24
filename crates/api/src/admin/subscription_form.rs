//! Subscriptions as the protocol writes them: read with their bounds and defaults, and shown.

use std::time::Duration;

use portero_proto::v1;
use portero_store::{DeadLetterPolicy, NewSubscription, StartAt, Subscription, SubscriptionUpdate};
use portero_types::{LaneCount, SubscriptionId, Timestamp};
use tonic::Status;

use crate::error::invalid;
use crate::{name, time};

const FILTERS_MAX: usize = 100;
const ATTEMPTS_DEFAULT: u32 = 16;
const ATTEMPTS_MAX: u32 = 1_000;
const DEFER_DEADLINE_DEFAULT: Duration = Duration::from_secs(86_400);
const DEFER_DEADLINE_MAX: Duration = Duration::from_secs(30 * 86_400);
const LANES_MIN: u32 = 4;

/// A subscription to be created.
pub(super) fn from_proto(
    message: v1::CreateSubscriptionRequest,
    now: Timestamp,
) -> Result<NewSubscription, Status> {
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
    Ok(NewSubscription {
        id: name::id(&message.subscription_id, "subscription_id")?,
        tenant,
        sources,
        lanes: lanes(wanted.lanes)?,
        attempts_max: attempts_max(&wanted)?,
        defer_deadline_ms: defer_deadline_ms(&wanted)?,
        dead_letter_policy: policy(&wanted)?,
        event_types: wanted.event_types,
        start_at: match v1::StartAt::try_from(wanted.start_at) {
            Ok(v1::StartAt::Earliest) => StartAt::Earliest,
            Ok(v1::StartAt::Unspecified | v1::StartAt::Latest) => StartAt::Latest,
            Err(_) => return Err(invalid("subscription.start_at", "must be LATEST or EARLIEST")),
        },
        created_at: now,
    })
}

/// A change of what the mask names.
pub(super) fn update(
    id: SubscriptionId,
    wanted: &v1::Subscription,
    mask: Option<prost_types::FieldMask>,
) -> Result<SubscriptionUpdate, Status> {
    let paths = mask.unwrap_or_default().paths;
    let mut update = SubscriptionUpdate::new(id);
    for path in &paths {
        match path.as_str() {
            "attempts_max" => update.attempts_max = Some(attempts_max(wanted)?),
            "defer_deadline" => update.defer_deadline_ms = Some(defer_deadline_ms(wanted)?),
            "dead_letter_policy" => update.dead_letter_policy = Some(policy(wanted)?),
            "tenant" | "sources" | "event_types" | "lanes" | "start_at" => {
                return Err(invalid(
                    "update_mask",
                    format!("must not name {path}, which is fixed at creation: create another subscription"),
                ));
            }
            _ => return Err(unknown_path()),
        }
    }
    if paths.is_empty() { Err(unknown_path()) } else { Ok(update) }
}

fn unknown_path() -> Status {
    invalid("update_mask", "must name what changes: attempts_max, defer_deadline, dead_letter_policy")
}

fn lanes(wanted: u32) -> Result<LaneCount, Status> {
    let lanes = if wanted == 0 { u32::from(LaneCount::DEFAULT.get()) } else { wanted };
    u16::try_from(lanes)
        .ok()
        .filter(|_| lanes >= LANES_MIN)
        .and_then(|lanes| LaneCount::new(lanes).ok())
        .ok_or_else(|| invalid("subscription.lanes", "must be a power of two from 4 to 256"))
}

fn attempts_max(wanted: &v1::Subscription) -> Result<u32, Status> {
    match wanted.attempts_max {
        0 => Ok(ATTEMPTS_DEFAULT),
        given if given <= ATTEMPTS_MAX => Ok(given),
        _ => Err(invalid("subscription.attempts_max", "must be from 1 to 1000")),
    }
}

fn defer_deadline_ms(wanted: &v1::Subscription) -> Result<u64, Status> {
    let deadline = match &wanted.defer_deadline {
        Some(given) => time::duration(given, "subscription.defer_deadline", DEFER_DEADLINE_MAX)?,
        None => DEFER_DEADLINE_DEFAULT,
    };
    if deadline < Duration::from_secs(1) {
        return Err(invalid("subscription.defer_deadline", "must be at least one second"));
    }
    Ok(u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX))
}

fn policy(wanted: &v1::Subscription) -> Result<DeadLetterPolicy, Status> {
    match v1::DeadLetterPolicy::try_from(wanted.dead_letter_policy) {
        Ok(v1::DeadLetterPolicy::Unspecified | v1::DeadLetterPolicy::Continue) => {
            Ok(DeadLetterPolicy::Continue)
        }
        Ok(v1::DeadLetterPolicy::ParkEntity) => Ok(DeadLetterPolicy::ParkEntity),
        Err(_) => Err(invalid("subscription.dead_letter_policy", "must be CONTINUE or PARK_ENTITY")),
    }
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

/// A subscription as it is shown.
pub(super) fn to_proto(subscription: &Subscription) -> v1::Subscription {
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
        expired_count: subscription.expired,
    }
}
