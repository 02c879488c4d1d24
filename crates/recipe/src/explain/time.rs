//! The signed time: as sent, in its unit, against the window.

use portero_types::Timestamp;

use super::steps::Steps;
use crate::schema::TimeCheck;
use crate::window::{Unit, Window};

/// From here on a number is a time in milliseconds rather than in seconds.
const MILLISECONDS_FROM: i64 = 100_000_000_000;
/// Longest text that is shown, bytes.
const SHOWN_MAX: usize = 40;

/// Says what the time is and how far it is off.
pub(super) fn judge(window: &Window, ts: Option<&[u8]>, now: Timestamp, steps: &mut Steps) {
    let Some(ts) = ts else {
        steps.failed("time", format!("missing; expected {}", unit(window.unit)));
        return;
    };
    let sent = shown(ts);
    let Ok(time) = window.read(ts) else {
        let length = ts.len();
        let sent = sent.map_or_else(|| format!("{length} characters that are no time"), str::to_owned);
        steps.failed("time", format!("sent as {sent}, which is not {}", unit(window.unit)));
        return;
    };
    let skew = if time > now {
        format!("{} after now", length(time.since(now)))
    } else {
        format!("{} before now", length(now.since(time)))
    };
    let allowed =
        format!("allowed are {} s before and {} s after", window.past.as_secs(), window.future.as_secs());
    let date = Window { unit: Unit::Rfc3339, source: None, ..window.clone() }.write(time);
    let sent = sent.unwrap_or_default();
    let mut text = format!("sent as {sent}, {date}: {skew}; {allowed}");
    let is_inside =
        Window { check: TimeCheck::Reject, source: None, ..window.clone() }.judge(time, now).is_ok();
    if is_inside {
        steps.passed("time", text);
        return;
    }
    if let Some(hint) = wrong_unit(window.unit, ts) {
        text.push_str(&format!("; {hint}"));
    }
    if window.check == TimeCheck::Record {
        steps.noted("time", format!("{text}; this recipe accepts such requests all the same"));
    } else {
        steps.failed("time", text);
    }
}

/// The time as sent, if it looks like one: nothing else of a request is repeated.
fn shown(ts: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(ts).ok()?;
    let is_date = |byte: u8| byte.is_ascii_digit() || b"-+:.TtZz ".contains(&byte);
    let looks_like_one = (1..=SHOWN_MAX).contains(&text.len()) && text.bytes().all(is_date);
    looks_like_one.then_some(text)
}

const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "whole seconds since 1970",
        Unit::Milliseconds => "whole milliseconds since 1970",
        Unit::Rfc3339 => "a date and time as of RFC 3339",
        Unit::Auto => "whole seconds or milliseconds since 1970",
    }
}

fn wrong_unit(unit: Unit, ts: &[u8]) -> Option<&'static str> {
    let number: i64 = std::str::from_utf8(ts).ok()?.parse().ok()?;
    match unit {
        Unit::Seconds if number >= MILLISECONDS_FROM => {
            Some("it looks like milliseconds, the recipe says seconds")
        }
        Unit::Milliseconds if number < MILLISECONDS_FROM => {
            Some("it looks like seconds, the recipe says milliseconds")
        }
        Unit::Seconds | Unit::Milliseconds | Unit::Rfc3339 | Unit::Auto => None,
    }
}

/// A time's length in seconds, to the millisecond.
fn length(length: std::time::Duration) -> String {
    let millis = length.subsec_millis();
    if millis == 0 {
        format!("{} s", length.as_secs())
    } else {
        format!("{}.{millis:03} s", length.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::explain::Outcome;

    const NOW: Timestamp = Timestamp::from_secs(1_750_000_000);

    fn step(unit: Unit, ts: Option<&str>) -> (Outcome, String) {
        let seconds = Duration::from_secs;
        let window =
            Window { source: None, unit, past: seconds(300), future: seconds(60), check: TimeCheck::Reject };
        let mut steps = Steps::default();
        judge(&window, ts.map(str::as_bytes), NOW, &mut steps);
        let step = steps.finish().remove(0);
        (step.outcome, step.detail)
    }

    #[test]
    fn the_skew_is_told_against_what_is_allowed() {
        let (outcome, text) = step(Unit::Seconds, Some("1749999699"));
        assert_eq!(outcome, Outcome::Failed);
        assert!(text.contains("301 s before now") && text.contains("300 s before and 60 s after"), "{text}");
        assert!(text.contains("2025-06-15T15:01:39"), "{text}");
        assert_eq!(step(Unit::Seconds, Some("1749999700")).0, Outcome::Passed);
    }

    #[test]
    fn a_wrong_unit_is_told() {
        assert!(step(Unit::Seconds, Some("1750000000000")).1.contains("looks like milliseconds"));
        assert!(step(Unit::Milliseconds, Some("1750000000")).1.contains("looks like seconds"));
    }

    #[test]
    fn what_is_no_time_is_not_repeated() {
        let (outcome, text) = step(Unit::Seconds, Some("hush"));
        assert_eq!((outcome, text.contains("hush")), (Outcome::Failed, false), "{text}");
        assert!(step(Unit::Seconds, Some("1e9")).1.contains("no time"));
        assert!(step(Unit::Seconds, None).1.contains("missing"));
    }
}
