//! The table, cell by cell.

use std::collections::BTreeSet;

use portero_types::{SubscriptionId, TenantId, Timestamp};

use crate::{Action, Caller, Claimed, Grant, Role, SubscriptionRef, SubscriptionScope, allows, is_outdated};

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).expect("valid")
}

fn subscription(id: &str) -> SubscriptionId {
    SubscriptionId::new(id).expect("valid")
}

fn caller(grants: Vec<Grant>) -> Caller {
    Caller { issuer: "i".into(), subject: "s".into(), expires_at: Timestamp::EPOCH, grants, claimed: None }
}

/// The columns: every role, for the whole installation and for acme, as far as the role has both. A consumer's grant names
/// the subscription "mine".
fn columns() -> Vec<Caller> {
    let acme = tenant("acme");
    let both = |role| [Grant::of(role, None), Grant::of(role, Some(acme.clone()))];
    let consumer = Grant::consumer(vec![subscription("mine")]);
    let mut grants = vec![Grant::platform_admin(), Grant::tenant_admin(acme.clone())];
    grants.extend(both(Role::Security));
    grants.extend(both(Role::Operator));
    grants.extend([consumer.clone(), Grant { tenant: Some(acme.clone()), ..consumer }]);
    grants.extend(both(Role::Viewer));
    assert!(grants.iter().all(|grant| grant.check().is_ok()), "grants as they are made");
    assert!(Role::ALL.iter().all(|role| grants.iter().any(|grant| grant.role == *role)), "every role");
    grants.into_iter().map(|grant| caller(vec![grant])).collect()
}

/// One letter for each column of [`columns`]: `y` where it may.
fn cells(action: Action<'_>) -> String {
    columns().iter().map(|caller| if allows(caller, action) { 'y' } else { '.' }).collect()
}

/// platform-admin, tenant-admin of acme, security, security of acme, operator, operator of acme, consumer, consumer of
/// acme, viewer, viewer of acme.
const HEADER: &str = "PTSsOoCcVv";

/// Actions on acme, with what the table says; and, in the third place, what it says of the same on another tenant.
type TenantRow = (fn(&TenantId) -> Action<'_>, &'static str, &'static str);
/// Actions on a subscription: to all tenants, to acme alone, to another tenant alone.
type SubscriptionRow = (fn(SubscriptionRef<'_>) -> Action<'_>, &'static str, &'static str, &'static str);
/// Actions on what belongs to the whole installation, to acme, to another tenant.
type OptionalRow = (fn(Option<&TenantId>) -> Action<'_>, &'static str, &'static str, &'static str);

const PLAIN: [(Action<'static>, &str); 7] = [
    (Action::CreateTenant, "y........."),
    (Action::ListTenants, "y.y.y...y."),
    (Action::ListReplicas, "y.y.y...y."),
    (Action::ListPresets, "yyyyyyyyyy"),
    (Action::GetPreset, "yyyyyyyyyy"),
    (Action::ListSubscriptions, "yy..yy..yy"),
    (Action::ListGrants, "yyyy......"),
];

const OF_TENANTS: [TenantRow; 21] = [
    (|t| Action::GetTenant(t), "yyyyyy..yy", "y.y.y...y."),
    (|t| Action::UpdateTenant(t), "y.........", "y........."),
    (|t| Action::DeleteTenant(t), "y.........", "y........."),
    (|t| Action::EraseTenant(t), "y.........", "y........."),
    (|t| Action::CreateSource(t), "yy........", "y........."),
    (|t| Action::GetSource(t), "yyyyyy..yy", "y.y.y...y."),
    (|t| Action::ListSources(t), "yyyyyy..yy", "y.y.y...y."),
    (|t| Action::UpdateSource(t), "yy........", "y........."),
    (|t| Action::DeleteSource(t), "yy........", "y........."),
    (|t| Action::CreateSecret(t), "yyyy......", "y.y......."),
    (|t| Action::GetSecret(t), "yyyy....yy", "y.y.....y."),
    (|t| Action::ListSecrets(t), "yyyy....yy", "y.y.....y."),
    (|t| Action::RevealSecret(t), "yyyy......", "y.y......."),
    (|t| Action::RotateSecret(t), "yyyy......", "y.y......."),
    (|t| Action::RetireSecret(t), "yyyy......", "y.y......."),
    (|t| Action::RevokeSecret(t), "yyyy......", "y.y......."),
    (|t| Action::DeleteSecret(t), "yyyy......", "y.y......."),
    (|t| Action::ListRejections(t), "yy..yy..yy", "y...y...y."),
    (|t| Action::GetRejection(t), "yy..yy..yy", "y...y...y."),
    (|t| Action::ExplainRequest(t), "yy..yy....", "y...y....."),
    (|t| Action::GetReceipt(t), "yy..yy..yy", "y...y...y."),
];

const OF_SUBSCRIPTIONS: [SubscriptionRow; 8] = [
    (|s| Action::CreateSubscription(s), "y.........", "yy........", "y........."),
    (|s| Action::GetSubscription(s), "y...y...y.", "yy..yy..yy", "y...y...y."),
    (|s| Action::UpdateSubscription(s), "y.........", "yy........", "y........."),
    (|s| Action::DeleteSubscription(s), "y.........", "yy........", "y........."),
    (|s| Action::ListDeadLetters(s), "y...y.....", "yy..yy....", "y...y....."),
    (|s| Action::ListParkedEntities(s), "y...y.....", "yy..yy....", "y...y....."),
    (|s| Action::RetryParkedEntity(s), "y...y.....", "yy..yy....", "y...y....."),
    (|s| Action::DeadLetterParkedEntity(s), "y...y.....", "yy..yy....", "y...y....."),
];

/// On the subscription "mine"; on every other one nobody may.
const OF_EVENTS: [SubscriptionRow; 2] = [
    (|s| Action::Subscribe(s), "......y...", "......yy..", "......y..."),
    (|s| Action::Settle(s), "......y...", "......yy..", "......y..."),
];

const OF_ALL_OR_TENANTS: [OptionalRow; 4] = [
    (|t| Action::CreateGrant(t), "y.........", "yy........", "y........."),
    (|t| Action::GetGrant(t), "y.y.......", "yyyy......", "y.y......."),
    (|t| Action::DeleteGrant(t), "y.........", "yy........", "y........."),
    (|t| Action::ListAuditEntries(t), "y.y.......", "yyyy......", "y.y......."),
];

/// Every action on every kind of resource, and the cells that it must have.
fn for_each_row(mut check: impl FnMut(Action<'_>, &str)) {
    let (acme, evil) = (tenant("acme"), tenant("evil"));
    for (action, expected) in PLAIN {
        check(action, expected);
    }
    for (action, own, other) in OF_TENANTS {
        check(action(&acme), own);
        check(action(&evil), other);
    }
    let scopes =
        [SubscriptionScope::Platform, SubscriptionScope::Tenant(&acme), SubscriptionScope::Tenant(&evil)];
    let (mine, other) = (subscription("mine"), subscription("other"));
    for (action, all, own, others) in OF_SUBSCRIPTIONS {
        for id in [&mine, &other] {
            for (scope, expected) in scopes.into_iter().zip([all, own, others]) {
                check(action(SubscriptionRef { id, scope }), expected);
            }
        }
    }
    for (action, all, own, others) in OF_EVENTS {
        for (scope, expected) in scopes.into_iter().zip([all, own, others]) {
            check(action(SubscriptionRef { id: &mine, scope }), expected);
            check(action(SubscriptionRef { id: &other, scope }), "..........");
        }
    }
    for (action, all, own, others) in OF_ALL_OR_TENANTS {
        check(action(None), all);
        check(action(Some(&acme)), own);
        check(action(Some(&evil)), others);
    }
}

#[test]
fn every_cell_of_the_table_is_as_written() {
    assert_eq!(HEADER.len(), columns().len());
    for_each_row(|action, expected| {
        assert_eq!(cells(action), expected, "{action:?}\n   columns: {HEADER}");
    });
}

#[test]
fn every_rpc_has_a_row_and_every_row_is_an_rpc() {
    let protos = [
        include_str!("../../../../proto/portero/v1/admin_service.proto"),
        include_str!("../../../../proto/portero/v1/subscriber_service.proto"),
    ];
    let rpcs: BTreeSet<&str> = protos
        .iter()
        .flat_map(|proto| proto.lines())
        .filter_map(|line| line.trim().strip_prefix("rpc "))
        .filter_map(|rest| rest.split('(').next())
        .collect();
    let mut tested = BTreeSet::new();
    for_each_row(|action, _| tested.extend([action.name()]));
    assert_eq!(tested, rpcs);
}

/// How far a role reaches in each call: `all` with a grant of the whole installation, `own` with a tenant's grant within it,
/// `named` for the subscriptions that a consumer's grant names.
fn documented() -> String {
    let roles = Role::ALL.map(Role::name).join(" | ");
    let mut lines = vec![format!("| call | {roles} |"), format!("|---|{}", ":-:|".repeat(Role::ALL.len()))];
    let mut reach: Vec<(&str, String)> = Vec::new();
    for_each_row(|action, expected| match reach.last_mut().filter(|(name, _)| *name == action.name()) {
        Some((_, cells)) => {
            let either = cells.chars().zip(expected.chars()).map(|(a, b)| if a == 'y' { a } else { b });
            *cells = either.collect();
        }
        None => reach.push((action.name(), expected.to_owned())),
    });
    let columns = columns();
    for (name, cells) in reach {
        let cell = |role: Role| {
            let mut reaches = Vec::new();
            for (caller, cell) in columns.iter().zip(cells.chars()) {
                let grant = &caller.grants[0];
                if grant.role == role && cell == 'y' {
                    reaches.push(if grant.tenant.is_none() { "all" } else { "own" });
                }
            }
            let is_named = role == Role::Consumer && matches!(name, "Subscribe" | "Settle");
            if is_named { "named".to_owned() } else { reaches.join(", ") }
        };
        lines.push(format!("| `{name}` | {} |", Role::ALL.map(cell).join(" | ")));
    }
    lines.join("\n")
}

#[test]
fn the_table_in_the_documentation_is_this_one() {
    let page = include_str!("../../../../docs/access.md");
    let table = documented();
    assert!(page.contains(&table), "docs/access.md must hold:\n{table}");
}

#[test]
fn a_caller_without_grants_may_do_nothing_at_all() {
    let nobody = caller(Vec::new());
    for_each_row(|action, _| assert!(!allows(&nobody, action), "{action:?}"));
}

#[test]
fn several_grants_allow_what_each_of_them_allows_and_nothing_beyond() {
    let columns = columns();
    for_each_row(|action, expected| {
        for (i, first) in columns.iter().enumerate() {
            for (j, second) in columns.iter().enumerate() {
                let both = caller([first.grants.clone(), second.grants.clone()].concat());
                let allowed = [i, j].iter().any(|column| expected.as_bytes()[*column] == b'y');
                assert_eq!(allows(&both, action), allowed, "{action:?} by {both:?}");
            }
        }
    });
}

#[test]
fn an_admin_whose_grant_names_subscriptions_still_receives_nothing() {
    let mine = subscription("mine");
    let odd = caller(vec![Grant { subscriptions: vec![mine.clone()], ..Grant::platform_admin() }]);
    let mine = SubscriptionRef { id: &mine, scope: SubscriptionScope::Platform };
    assert!(!allows(&odd, Action::Subscribe(mine)));
}

#[test]
fn a_tenant_admin_without_a_tenant_is_an_admin_of_nothing() {
    let odd = caller(vec![Grant::of(Role::TenantAdmin, None)]);
    for_each_row(|action, _| assert!(!allows(&odd, action), "{action:?}"));
}

#[test]
fn a_refusal_is_for_an_outdated_token_by_what_the_token_and_the_action_name_alone() {
    let (acme, mine, other) = (tenant("acme"), subscription("mine"), subscription("other"));
    let claimed = |grant: Grant| Some(Claimed { grant, issued_at: None });
    let admin = Caller { claimed: claimed(Grant::tenant_admin(acme.clone())), ..caller(Vec::new()) };
    for tenant in [&acme, &tenant("globex"), &tenant("missing")] {
        assert!(is_outdated(&admin, Action::UpdateSource(tenant)), "{tenant}");
    }
    assert!(!is_outdated(&admin, Action::CreateTenant), "no such token would do");
    let current = Caller { grants: vec![Grant::tenant_admin(acme.clone())], ..admin };
    assert!(!is_outdated(&current, Action::UpdateSource(&tenant("globex"))), "all of it counts");
    assert!(!is_outdated(&caller(Vec::new()), Action::UpdateSource(&acme)), "there is no such token");

    let consumer = Caller { claimed: claimed(Grant::consumer(vec![mine.clone()])), ..caller(Vec::new()) };
    for scope in [SubscriptionScope::Platform, SubscriptionScope::Tenant(&acme)] {
        assert!(is_outdated(&consumer, Action::Subscribe(SubscriptionRef { id: &mine, scope })));
        assert!(!is_outdated(&consumer, Action::Subscribe(SubscriptionRef { id: &other, scope })));
    }
}
