//! Whether a secret may end, and what is to be done before it does. Pure.

use std::time::Duration;

use portero_directory::SecretFault;
use portero_proto::v1;
use portero_store::{Secret, SecretState, SecretUsage};
use portero_types::Timestamp;

/// A secret ends soon when it does so within this time.
const SOON: Duration = Duration::from_hours(24);
/// So long a secret must have been quiet at least, however soon the provider gives up: who uses it may do so once a day.
const QUIET_MIN: Duration = Duration::from_hours(24);
/// A secret is in use when it verified something within this time.
const IN_USE: Duration = Duration::from_hours(1);

/// A secret and how it was used.
pub(super) struct Used<'a> {
    pub(super) secret: &'a Secret,
    pub(super) usage: Option<&'a SecretUsage>,
    /// Why it cannot be read.
    pub(super) fault: Option<SecretFault>,
}

impl Used<'_> {
    fn last(&self) -> Option<Timestamp> {
        self.usage.map(|usage| usage.last_used_at)
    }

    fn verifies(&self, at: Timestamp) -> bool {
        self.fault.is_none() && self.secret.is_active(at)
    }
}

/// Whether its end would cost anything. `redelivery` is how long the provider sends an event again, perhaps with the signature
/// of its first time.
pub(super) fn safe_to_retire(
    of: &Used<'_>,
    others: &[Used<'_>],
    redelivery: Duration,
    now: Timestamp,
) -> v1::SafeToRetire {
    let (safe, reason) = judge(of, others, redelivery, now);
    v1::SafeToRetire { safe, reason }
}

fn judge(of: &Used<'_>, others: &[Used<'_>], redelivery: Duration, now: Timestamp) -> (bool, String) {
    match of.secret.state(now) {
        SecretState::Planned => return (true, "its time has not come: it verifies nothing yet".to_owned()),
        SecretState::Retired | SecretState::Revoked => {
            return (true, "it verifies nothing any more".to_owned());
        }
        SecretState::Active | SecretState::Retiring if of.fault.is_some() => {
            return (
                false,
                "it cannot be read, so nobody knows whether the provider signs with it".to_owned(),
            );
        }
        SecretState::Active | SecretState::Retiring => {}
    }
    let Some(other) = others
        .iter()
        .filter(|other| other.verifies(now))
        .max_by_key(|other| (other.last(), other.secret.not_before))
    else {
        return (false, "no other secret of the source verifies: every request would be refused".to_owned());
    };
    let (quiet_since, what) = match of.last() {
        Some(last) => (last, "not used"),
        // It may have been told to begin before it was there.
        None => (of.secret.not_before.max(of.secret.created_at), "never used"),
    };
    let quiet = now.since(quiet_since);
    let again = if redelivery < QUIET_MIN {
        format!("the {} after which a secret counts as unused", span(QUIET_MIN))
    } else {
        format!("the {} within which the provider sends again", span(redelivery))
    };
    if quiet <= redelivery.max(QUIET_MIN) {
        return (false, format!("{what} for {}, which is less than {again}", span(quiet)));
    }
    match other.usage.filter(|usage| usage.last_used_at > quiet_since) {
        Some(usage) => {
            let (id, uses) = (&other.secret.id, thousands(usage.uses));
            (
                true,
                format!(
                    "{what} for {}, longer than {again}, while '{id}' verified {uses} requests",
                    span(quiet)
                ),
            )
        }
        None => (
            false,
            format!(
                "{what} for {}, but no other secret verified anything since: the provider is silent",
                span(quiet)
            ),
        ),
    }
}

/// What its owner should do before it ends.
pub(super) fn warnings(of: &Used<'_>, others: &[Used<'_>], now: Timestamp) -> Vec<String> {
    let state = of.secret.state(now);
    let mut warnings = Vec::new();
    if let Some(fault) = of.fault
        && !matches!(state, SecretState::Retired | SecretState::Revoked)
    {
        warnings.push(format!(
            "'{}' cannot be read and verifies nothing: {fault}. While it counts, what no other secret verifies is answered 503: add \
             another one, switch the provider over, and revoke this one",
            of.secret.id
        ));
    }
    let Some(end) = of.secret.not_after.filter(|_| state == SecretState::Retiring) else {
        return warnings;
    };
    let left = end.since(now);
    if left <= SOON && of.last().is_some_and(|last| now.since(last) <= IN_USE) {
        warnings.push(format!(
            "'{}' ends in {} and the provider still signs with it: switch the provider over, or let it end later",
            of.secret.id,
            span(left)
        ));
    }
    if !others.iter().any(|other| other.verifies(end)) {
        warnings.push(format!(
            "nothing verifies when '{}' ends in {}: every request will be refused",
            of.secret.id,
            span(left)
        ));
    }
    warnings
}

/// A duration for people: whole days from three on, else hours, minutes, seconds.
fn span(duration: Duration) -> String {
    let secs = duration.as_secs();
    let (count, unit) = match secs {
        0..120 => (secs, "second"),
        120..7_200 => (secs / 60, "minute"),
        7_200..864_000 => (secs / 3_600, "hour"),
        _ => (secs / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use portero_store::Sealed;
    use portero_types::{SecretId, SecretNo, SourceNo};

    use super::*;

    const HOUR: i64 = 3_600;
    const NOW: i64 = 1_000 * HOUR;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn secret(no: i64, from: i64, to: Option<i64>) -> Secret {
        Secret {
            no: SecretNo(no),
            source_no: SourceNo(1),
            id: SecretId::new(format!("s{no}")).expect("valid"),
            sealed: Sealed(vec![1]),
            not_before: at(from),
            not_after: to.map(at),
            revoked_at: None,
            unseen: false,
            created_at: at(from),
        }
    }

    fn usage(no: i64, last: i64, uses: u64) -> SecretUsage {
        SecretUsage {
            secret_no: SecretNo(no),
            first_used_at: at(0),
            last_used_at: at(last),
            uses,
            days: Vec::new(),
        }
    }

    fn judged(
        old: (&Secret, Option<&SecretUsage>),
        new: &[(&Secret, Option<&SecretUsage>)],
    ) -> (bool, String) {
        let used = |pair: &(_, _)| Used { secret: pair.0, usage: pair.1, fault: None };
        let others: Vec<Used<'_>> =
            new.iter().map(|pair| Used { secret: pair.0, usage: pair.1, fault: None }).collect();
        judge(&used(&old), &others, Duration::from_hours(72), at(NOW))
    }

    #[test]
    fn a_quiet_secret_is_safe_once_the_provider_signs_with_another_one() {
        let (old, new) = (secret(1, 0, None), secret(2, NOW - 90 * HOUR, None));
        let (quiet, busy) = (usage(1, NOW - 74 * HOUR, 9_000), usage(2, NOW - 1, 1_204));
        assert_eq!(
            judged((&old, Some(&quiet)), &[(&new, Some(&busy))]),
            (
                true,
                "not used for 74 hours, longer than the 72 hours within which the provider sends again, while 's2' verified \
                 1,204 requests"
                    .to_owned()
            )
        );
        let never = judged((&old, None), &[(&new, Some(&busy))]);
        assert!(never.0 && never.1.starts_with("never used for 41 days"), "{never:?}");
    }

    #[test]
    fn a_secret_is_not_safe_while_its_signatures_may_come_again() {
        let (old, new) = (secret(1, 0, None), secret(2, NOW - 90 * HOUR, None));
        let (recent, busy) = (usage(1, NOW - 71 * HOUR, 9), usage(2, NOW - 1, 4));
        let (safe, reason) = judged((&old, Some(&recent)), &[(&new, Some(&busy))]);
        assert!(
            !safe && reason.starts_with("not used for 71 hours, which is less than the 72 hours"),
            "{reason}"
        );
    }

    #[test]
    fn a_secret_that_was_just_added_or_is_used_now_and_then_is_not_safe() {
        let busy = usage(2, NOW - 1, 1_204);
        let new = secret(2, 0, None);
        let old = Secret { created_at: at(NOW - 5), ..secret(1, 0, None) };
        let (safe, reason) = judged((&old, None), &[(&new, Some(&busy))]);
        assert!(!safe && reason.starts_with("never used for 5 seconds"), "{reason}");
        let quiet = |since: i64| {
            let usage = usage(1, NOW - since, 9);
            let (old, others) =
                (secret(1, 0, None), [Used { secret: &new, usage: Some(&busy), fault: None }]);
            judge(
                &Used { secret: &old, usage: Some(&usage), fault: None },
                &others,
                Duration::from_secs(90),
                at(NOW),
            )
        };
        let (safe, reason) = quiet(HOUR);
        assert!(!safe && reason.contains("the 24 hours after which a secret counts as unused"), "{reason}");
        assert!(quiet(25 * HOUR).0);
    }

    #[test]
    fn silence_of_all_secrets_proves_nothing() {
        let (old, new) = (secret(1, 0, None), secret(2, NOW - 90 * HOUR, None));
        let (quiet, before) = (usage(1, NOW - 80 * HOUR, 9), usage(2, NOW - 81 * HOUR, 4));
        for other in [None, Some(&before)] {
            let (safe, reason) = judged((&old, Some(&quiet)), &[(&new, other)]);
            assert!(!safe && reason.ends_with("the provider is silent"), "{reason}");
        }
    }

    #[test]
    fn the_last_secret_is_never_safe_and_one_that_verifies_nothing_always_is() {
        let old = secret(1, 0, None);
        let planned = secret(2, NOW + 1, None);
        let quiet = usage(1, 0, 9);
        assert!(!judged((&old, Some(&quiet)), &[]).0);
        assert!(!judged((&old, Some(&quiet)), &[(&planned, None)]).0, "another one does not verify yet");
        assert!(judged((&planned, None), &[]).0);
        assert!(judged((&secret(1, 0, Some(NOW)), Some(&quiet)), &[]).0);
        let revoked = Secret { revoked_at: Some(at(5)), ..secret(1, 0, None) };
        assert!(judged((&revoked, Some(&quiet)), &[]).0);
    }

    fn unreadable(secret: &Secret) -> Used<'_> {
        Used { secret, usage: None, fault: Some(SecretFault::Sealed) }
    }

    #[test]
    fn a_secret_that_cannot_be_read_is_told_until_it_counts_no_more_and_replaces_no_other() {
        let (old, lost) = (secret(1, 0, None), secret(2, 0, None));
        let quiet = usage(1, NOW - 90 * HOUR, 9);
        let readable = Used { secret: &old, usage: Some(&quiet), fault: None };
        let safe = |of: &Used<'_>, others: &[Used<'_>]| judge(of, others, Duration::from_hours(72), at(NOW));
        let (is_safe, reason) = safe(&readable, &[unreadable(&lost)]);
        assert!(!is_safe && reason.starts_with("no other secret"), "{reason}");
        let (is_safe, reason) = safe(&unreadable(&lost), &[readable]);
        assert!(!is_safe && reason.starts_with("it cannot be read"), "{reason}");
        let told = |secret: &Secret| warnings(&unreadable(secret), &[], at(NOW));
        let warned = told(&lost);
        assert!(matches!(&warned[..], [one] if one.starts_with("'s2' cannot be read")), "{warned:?}");
        let revoked = Secret { revoked_at: Some(at(5)), ..lost };
        assert_eq!((told(&revoked), told(&secret(2, 0, Some(NOW)))), (vec![], vec![]));
    }

    #[test]
    fn a_secret_that_is_in_use_near_its_end_warns() {
        let (old, new) = (secret(1, 0, Some(NOW + 23 * HOUR)), secret(2, 0, None));
        let told = |old: &Secret, last: i64, others: &[&Secret]| {
            let usage = usage(1, last, 1);
            let others: Vec<Used<'_>> =
                others.iter().map(|secret| Used { secret, usage: None, fault: None }).collect();
            warnings(&Used { secret: old, usage: Some(&usage), fault: None }, &others, at(NOW))
        };
        let warned = told(&old, NOW - 5, &[&new]);
        assert!(matches!(&warned[..], [one] if one.contains("'s1' ends in 23 hours")), "{warned:?}");
        assert_eq!(told(&old, NOW - HOUR - 1, &[&new]), Vec::<String>::new(), "quiet for an hour");
        assert_eq!(
            told(&secret(1, 0, Some(NOW + 25 * HOUR)), NOW, &[&new]),
            Vec::<String>::new(),
            "not soon"
        );
        let alone = told(&old, NOW - 2 * HOUR, &[&secret(3, 0, Some(NOW + 23 * HOUR))]);
        assert!(
            matches!(&alone[..], [one] if one.starts_with("nothing verifies when 's1' ends")),
            "{alone:?}"
        );
        assert_eq!(told(&secret(1, 0, None), NOW, &[]), Vec::<String>::new(), "it has no end");
    }
}
