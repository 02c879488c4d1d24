//! How often secrets verify, and which end soon although they do.

use portero_types::{SecretNo, Timestamp};

use super::Database;
use super::fixture::{DAY_SECS, Fixture, NOW, new_secret, secret_id, source_id, tenant_id, tester};
use crate::{Day, NewSecret, RetiringInUse, SecretUsage, SecretUse};

fn secs(seconds: i64) -> Timestamp {
    Timestamp::from_secs(NOW.as_secs() + seconds)
}

fn used(secret_no: SecretNo, uses: u64, first: i64, last: i64) -> SecretUse {
    SecretUse { secret_no, day: Day::of(secs(first)), uses, first_at: secs(first), last_at: secs(last) }
}

pub async fn uses_are_added_up_by_day_and_secret(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let (one, two) = (SecretNo(1), SecretNo(2));
    assert_eq!(store.secret_usage(&[one, two]).await.expect("read"), []);
    store.record_secret_uses(&[]).await.expect("nothing to record");
    let before = store.revision().await.expect("revision");
    store.record_secret_uses(&[used(two, 5, 0, 9), used(one, 2, 4, 6)]).await.expect("recorded");
    store
        .record_secret_uses(&[used(one, 3, 2, 3), used(one, 1, DAY_SECS, DAY_SECS)])
        .await
        .expect("recorded");
    let today = Day::of(NOW);
    let wanted = SecretUsage {
        secret_no: one,
        first_used_at: secs(2),
        last_used_at: secs(DAY_SECS),
        uses: 6,
        days: vec![(today, 5), (Day(today.0 + 1), 1)],
    };
    assert_eq!(store.secret_usage(&[two, one, SecretNo(9)]).await.expect("read")[0], wanted);
    let both = store.secret_usage(&[two, one]).await.expect("read");
    assert_eq!(
        both.iter().map(|usage| (usage.secret_no, usage.uses)).collect::<Vec<_>>(),
        [(one, 6), (two, 5)]
    );
    assert_eq!(store.revision().await.expect("revision"), before, "uses are no configuration");
}

pub async fn old_days_of_use_are_forgotten_and_the_sum_is_not(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let (kept, gone) = (SecretNo(1), SecretNo(2));
    let uses = [used(kept, 1, 0, 0), used(gone, 1, 0, 0), used(kept, 1, 2 * DAY_SECS, 2 * DAY_SECS)];
    store.record_secret_uses(&uses).await.expect("recorded");
    let day = Day(Day::of(NOW).0 + 1);
    store.sweep_secret_uses(day).await.expect("swept");
    let left = store.secret_usage(&[kept, gone]).await.expect("read");
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].uses, left[0].first_used_at, left[0].days.len()), (2, secs(0), 1));
}

pub async fn a_secret_that_ends_soon_and_is_in_use_is_found(database: &dyn Database) {
    let fixture = Fixture::new(database).await;
    let store = &fixture.store;
    let mut numbers = Vec::new();
    for (id, end) in [
        ("busy", Some(600)),
        ("quiet", Some(600)),
        ("later", Some(9_000)),
        ("active", None),
        ("revoked", Some(600)),
    ] {
        let added = store.add_secret(NewSecret { ..new_secret(id) }, &tester()).await.expect("added");
        let (acme, stripe, id) = (tenant_id("acme"), source_id("stripe-eu"), secret_id(id));
        if let Some(end) = end {
            store.retire_secret(&acme, &stripe, &id, secs(end), &tester()).await.expect("retired");
        }
        numbers.push(added.no);
    }
    let (acme, stripe) = (tenant_id("acme"), source_id("stripe-eu"));
    store.revoke_secret(&acme, &stripe, &secret_id("revoked"), &tester()).await.expect("revoked");
    let uses: Vec<_> =
        (numbers.iter().zip([50, 5, 50, 50, 50])).map(|(no, at)| used(*no, 1, at, at)).collect();
    store.record_secret_uses(&uses).await.expect("recorded");
    let found = store.retiring_in_use(secs(60), secs(3_600), secs(10), 9).await.expect("read");
    let busy = RetiringInUse {
        tenant: acme,
        source: stripe,
        secret: secret_id("busy"),
        not_after: secs(600),
        last_used_at: secs(50),
    };
    assert_eq!(found, [busy]);
    assert_eq!(
        store.retiring_in_use(secs(600), secs(3_600), secs(10), 9).await.expect("read"),
        [],
        "it has ended"
    );
    let both = store.retiring_in_use(secs(60), secs(9_999), secs(0), 2).await.expect("read");
    assert_eq!(both.iter().map(|found| found.secret.as_str()).collect::<Vec<_>>(), ["busy", "quiet"]);
}
