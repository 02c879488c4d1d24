//! What the limits add up to, on virtual time.

use portero_store::Limits;
use tokio::time::advance;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn config() -> LimitsConfig {
    LimitsConfig {
        tenant: SendingLimits { events_per_second: 10, burst: 20, bytes_per_second: 1_000 },
        source: SendingLimits { events_per_second: 5, burst: 10, bytes_per_second: 0 },
        unverified_source: UnverifiedLimits { per_second: 1, burst: 3 },
        unverified_address: UnverifiedLimits { per_second: 2, burst: 5 },
        ..LimitsConfig::default()
    }
}

fn address(last: u8) -> Client {
    Client::of([192, 0, 2, last].into())
}

/// A request of tenant 1 to a source of its.
fn who(source: i64, client: Client) -> Who {
    let none = Limits::default();
    Who {
        tenant: TenantNo(1),
        source: SourceNo(source),
        client,
        tenant_rates: Rates::of(&none, &config().tenant, 1),
        source_rates: Rates::of(&none, &config().source, 1),
    }
}

/// What becomes of a request that verifies.
fn send(limiter: &Arc<Limiter>, who: Who, events: usize, bytes: usize) -> Result<(), Limited> {
    let admission = limiter.admit(who)?;
    admission.verified();
    admission.count(events, bytes)
}

/// What becomes of a forged one.
fn forge(limiter: &Arc<Limiter>, who: Who) -> Result<(), Limited> {
    limiter.admit(who).map(|admission| admission.failed())
}

fn count(mut tries: usize, mut one: impl FnMut() -> Result<(), Limited>) -> usize {
    let all = tries;
    while tries > 0 && one().is_ok() {
        tries -= 1;
    }
    all - tries
}

#[tokio::test(start_paused = true)]
async fn a_source_and_its_tenant_have_limits_of_their_own() {
    let limiter = Limiter::new(config());
    let sent = |source| count(100, || send(&limiter, who(source, address(1)), 1, 1));
    assert_eq!((sent(1), sent(2), sent(3)), (10, 10, 0), "two sources use up what the tenant has");
    let limited = limiter.admit(who(3, address(1))).expect_err("limited");
    assert_eq!((limited.limit, limited.after), (Limit::Tenant, SECOND / 10));
    let other = Who { tenant: TenantNo(2), ..who(4, address(1)) };
    assert_eq!(count(100, || send(&limiter, other, 1, 1)), 10, "another tenant knows nothing of it");
    advance(SECOND).await;
    assert_eq!(sent(1), 5);
    assert_eq!(limiter.admit(who(1, address(1))).expect_err("limited").limit, Limit::Source);
}

#[tokio::test(start_paused = true)]
async fn what_one_request_brings_too_much_is_paid_for_before_the_next_body_is_read() {
    let limiter = Limiter::new(config());
    send(&limiter, who(1, address(1)), 60, 1).expect("there was room for one");
    let limited = limiter.admit(who(1, address(1))).expect_err("in debt");
    assert_eq!((limited.limit, limited.after), (Limit::Tenant, SECOND * 41 / 10));
    advance(limited.after).await;
    let limited = limiter.admit(who(1, address(1))).expect_err("the source is in debt for longer");
    assert_eq!((limited.limit, limited.after), (Limit::Source, SECOND * 61 / 10));
    advance(limited.after).await;
    send(&limiter, who(1, address(1)), 1, 1).expect("it kept its word");
}

#[tokio::test(start_paused = true)]
async fn bytes_count_apart_from_events() {
    let limiter = Limiter::new(config());
    send(&limiter, who(1, address(1)), 1, 12_000).expect("there was room for one byte");
    let limited = limiter.admit(who(2, address(1))).expect_err("in debt");
    assert_eq!((limited.limit, limited.after), (Limit::Tenant, Duration::from_millis(2_001)));
}

#[tokio::test(start_paused = true)]
async fn many_at_once_do_not_slip_through_together() {
    let limiter = Limiter::new(config());
    let admissions: Vec<_> = (0..100)
        .filter_map(|_| {
            let admission = limiter.admit(who(1, address(1))).ok()?;
            admission.verified();
            Some(admission)
        })
        .collect();
    let counted = admissions.iter().filter(|admission| admission.count(1, 1).is_ok()).count();
    assert_eq!((admissions.len(), counted), (100, 10));
}

#[tokio::test(start_paused = true)]
async fn strangers_spend_nothing_of_what_a_source_may_send() {
    let limiter = Limiter::new(config());
    assert_eq!(count(100, || forge(&limiter, who(1, address(66)))), 2, "it leaves half to others");
    forge(&limiter, who(1, address(67))).expect("examined");
    let limited = limiter.admit(who(1, address(68))).expect_err("limited");
    assert_eq!((limited.limit, limited.after), (Limit::UnverifiedSource, SECOND));
    advance(SECOND).await;
    assert_eq!(count(100, || send(&limiter, who(1, address(1)), 1, 1)), 10, "all of its burst");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_verified_is_examined_through_any_flood_and_for_an_hour() {
    let limiter = Limiter::new(config());
    send(&limiter, who(1, address(1)), 1, 1).expect("verified");
    assert_eq!(count(100, || forge(&limiter, who(1, address(66)))), 2);
    assert_eq!(count(100, || forge(&limiter, who(2, address(66)))), 2);
    assert_eq!(count(100, || forge(&limiter, who(3, address(66)))), 1, "the address has had enough");
    for _ in 0..50 {
        forge(&limiter, who(1, address(1))).expect("known here: always examined");
    }
    send(&limiter, who(1, address(1)), 1, 1).expect("verified again");
    assert!(limiter.admit(who(1, address(2))).is_err(), "others trickle in");
    advance(SECOND * 3_599).await;
    assert_eq!(count(9, || forge(&limiter, who(1, address(2)))), 2);
    forge(&limiter, who(1, address(1))).expect("still known");
    advance(SECOND * 2).await;
    assert_eq!(count(9, || forge(&limiter, who(1, address(1)))), 1, "no longer known: one has trickled in");
}

#[tokio::test(start_paused = true)]
async fn an_address_that_fails_at_many_sources_is_refused_at_the_next_and_others_are_not() {
    let limiter = Limiter::new(config());
    let failed: usize = (1..10).map(|source| count(2, || forge(&limiter, who(source, address(66))))).sum();
    assert_eq!(failed, 5);
    assert_eq!(limiter.admit(who(20, address(66))).expect_err("limited").limit, Limit::UnverifiedAddress);
    send(&limiter, who(20, address(1)), 1, 1).expect("another address");
    let of_source = count(9, || forge(&limiter, who(20, address(2))));
    assert_eq!(of_source, 2, "what an address is refused for takes nothing of the source");
}

#[tokio::test(start_paused = true)]
async fn one_address_that_goes_on_failing_leaves_room_to_a_providers_new_address() {
    let limiter = Limiter::new(config());
    for n in 0..100 {
        let _ = forge(&limiter, who(1, address(66)));
        send(&limiter, who(1, address(100 + n)), 1, 1).expect("examined, and known from now on");
        advance(SECOND / 2).await;
    }
}

/// A provider calls all tenants from the same addresses, and behind a proxy that nobody told us of everybody does.
#[tokio::test(start_paused = true)]
async fn what_an_address_fails_at_one_tenants_sources_counts_at_no_other_tenants() {
    let limiter = Limiter::new(config());
    let failed: usize = (1..10).map(|source| count(2, || forge(&limiter, who(source, address(66))))).sum();
    assert_eq!(failed, 5);
    let other = Who { tenant: TenantNo(2), ..who(20, address(66)) };
    send(&limiter, other, 1, 1).expect("examined: it never failed here");
    assert_eq!(limiter.admit(who(21, address(66))).expect_err("limited").limit, Limit::UnverifiedAddress);
}

#[tokio::test(start_paused = true)]
async fn strangers_that_verify_or_fail_through_no_fault_of_theirs_get_their_tokens_back() {
    let limiter = Limiter::new(LimitsConfig { tenant: LimitsConfig::none().tenant, ..config() });
    for n in 0..10 {
        send(&limiter, who(1, address(n)), 1, 1).expect("each is new and verifies");
        advance(SECOND).await;
    }
    for n in 10..40 {
        limiter.admit(who(1, address(n))).expect("admitted").undecided();
    }
    let admission = limiter.admit(who(1, address(50))).expect("admitted");
    admission.failed();
    admission.undecided();
    admission.verified();
    drop(limiter.admit(who(1, address(51))).expect("admitted"));
    assert_eq!(count(9, || forge(&limiter, who(1, address(52)))), 1, "one failed, one was dropped unsaid");
}

#[tokio::test(start_paused = true)]
async fn limits_that_change_hold_at_once() {
    let limiter = Limiter::new(config());
    let with = |events: u32| {
        let own = Limits { events_per_second: Some(events), burst: Some(2), ..Limits::default() };
        Who { source_rates: Rates::of(&own, &config().source, 1), ..who(1, address(1)) }
    };
    assert_eq!(count(100, || send(&limiter, with(1), 1, 1)), 2);
    assert_eq!(count(18, || send(&limiter, with(0), 1, 1)), 18, "no limit of its own: the tenant's holds");
    assert_eq!(limiter.admit(with(0)).expect_err("limited").limit, Limit::Tenant);
}

#[test]
fn nothing_is_limited_where_nothing_is_to_be() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let _entered = runtime.enter();
    let limiter = Limiter::new(LimitsConfig::none());
    let none = LimitsConfig::none();
    let rates = Rates::of(&Limits::default(), &none.tenant, 1);
    let who = Who { tenant_rates: rates, source_rates: rates, ..who(1, address(1)) };
    assert_eq!(count(5_000, || forge(&limiter, who)), 5_000);
    assert_eq!(count(5_000, || send(&limiter, who, 9, 1 << 20)), 5_000);
}
