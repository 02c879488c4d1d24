//! Signed times: reading them in their unit and judging them against the window.

use std::time::Duration;

use portero_types::Timestamp;

use crate::schema::TimeCheck;
use crate::template::Template;
use crate::{Reason, Rejection};

/// The unit in which a provider writes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Unit {
    /// Seconds since the Unix epoch.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds since the Unix epoch.
    #[serde(rename = "ms")]
    Milliseconds,
    /// A date and time (RFC 3339), any fraction of a second.
    #[serde(rename = "rfc3339")]
    Rfc3339,
    /// Seconds or milliseconds, told apart by size: the provider has been seen to send both.
    #[serde(rename = "auto")]
    Auto,
}

/// From here on a number counts as milliseconds: as seconds it would be the year 5138.
const MILLISECONDS_FROM: i64 = 100_000_000_000;

/// The time that a scheme signs.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Where it is; `None`: in the signature list.
    pub(crate) source: Option<Template>,
    /// Its unit.
    pub(crate) unit: Unit,
    /// How far back it may lie.
    pub(crate) past: Duration,
    /// How far ahead it may lie.
    pub(crate) future: Duration,
    /// What happens outside.
    pub(crate) check: TimeCheck,
}

impl Window {
    /// Reads a time as sent.
    pub(crate) fn read(&self, text: &[u8]) -> Result<Timestamp, Rejection> {
        let parsed = std::str::from_utf8(text).ok().and_then(|text| match self.unit {
            Unit::Seconds => digits(text).map(Timestamp::from_secs),
            Unit::Milliseconds => {
                digits(text).and_then(|ms| ms.checked_mul(1_000)).map(Timestamp::from_micros)
            }
            Unit::Rfc3339 => rfc3339(text),
            Unit::Auto => digits(text).and_then(|n| {
                let micros = if n < MILLISECONDS_FROM { 1_000_000 } else { 1_000 };
                n.checked_mul(micros).map(Timestamp::from_micros)
            }),
        });
        parsed.ok_or_else(|| {
            let unit = match self.unit {
                Unit::Seconds => "whole seconds since 1970",
                Unit::Auto => "whole seconds or milliseconds since 1970",
                Unit::Milliseconds => "whole milliseconds since 1970",
                Unit::Rfc3339 => "a date and time as of RFC 3339",
            };
            Rejection::new(Reason::TimestampMalformed, format!("the signed time is not {unit}"))
        })
    }

    /// Judges a time against the window around `now`; its ends belong to it.
    pub(crate) fn judge(&self, time: Timestamp, now: Timestamp) -> Result<(), Rejection> {
        if self.check == TimeCheck::Record {
            return Ok(());
        }
        if time < now.minus(self.past) {
            return Err(Rejection::new(
                Reason::TimestampTooOld,
                format!("the signed time lies more than {} s in the past", self.past.as_secs()),
            ));
        }
        if time > now.plus(self.future) {
            return Err(Rejection::new(
                Reason::TimestampInFuture,
                format!("the signed time lies more than {} s in the future", self.future.as_secs()),
            ));
        }
        Ok(())
    }

    /// Writes a time, the inverse of [`Window::read`].
    pub(crate) fn write(&self, time: Timestamp) -> String {
        match self.unit {
            Unit::Seconds | Unit::Auto => time.as_secs().to_string(),
            Unit::Milliseconds => time.as_millis().to_string(),
            Unit::Rfc3339 => write_rfc3339(time),
        }
    }
}

/// Up to 16 digits and nothing else.
fn digits(text: &str) -> Option<i64> {
    let plain = (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// `2025-06-15T15:06:40.123456789Z`, or with an offset `+02:00`. A leap second counts as the second after it.
fn rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |at: usize, length: usize| text.get(at..at + length).and_then(digits);
    let shape = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if text.len() > 40 || bytes.len() < 20 || !shape.iter().all(|(at, mark)| bytes[*at] == *mark) {
        return None;
    }
    if !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &text[19..];
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let kept = &fraction[..length.min(6)];
        micros = digits(kept)? * 10_i64.pow(6 - u32::try_from(kept.len()).ok()?);
        rest = &fraction[length..];
    }
    let offset = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let minutes = digits(&rest[1..3])? * 60 + digits(&rest[4..6])?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    let seconds = days_of(year, month, day) * 86_400 + hour * 3_600 + (minute - offset) * 60 + second;
    Some(Timestamp::from_micros(seconds * 1_000_000 + micros))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
const fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that the leap day is a year's last.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// The time as RFC 3339 in UTC, with six digits of a second's fraction.
pub(crate) fn write_rfc3339(time: Timestamp) -> String {
    let (days, rest) = (time.as_secs().div_euclid(86_400), time.as_secs().rem_euclid(86_400));
    let mut year = 1970 + days / 366;
    while days_of(year + 1, 1, 1) <= days {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days_of(year, month + 1, 1) <= days {
        month += 1;
    }
    let day = days - days_of(year, month, 1) + 1;
    let micros = time.as_micros().rem_euclid(1_000_000);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(unit: Unit) -> Window {
        let seconds = Duration::from_secs;
        Window { source: None, unit, past: seconds(300), future: seconds(60), check: TimeCheck::Reject }
    }

    const NOW: i64 = 1_750_000_000;

    #[test]
    fn both_ends_of_the_window_belong_to_it() {
        let judge = |offset: i64| {
            let now = Timestamp::from_secs(NOW);
            window(Unit::Seconds).judge(Timestamp::from_secs(NOW + offset), now).map_err(|r| r.reason())
        };
        assert_eq!(judge(-301), Err(Reason::TimestampTooOld));
        assert_eq!(judge(-300), Ok(()));
        assert_eq!(judge(1), Ok(()), "a clock that runs a little ahead");
        assert_eq!(judge(60), Ok(()));
        assert_eq!(judge(61), Err(Reason::TimestampInFuture));
    }

    #[test]
    fn a_time_in_the_wrong_unit_is_never_near_now() {
        let now = Timestamp::from_secs(NOW);
        let seconds = window(Unit::Seconds);
        let read = seconds.read(b"1750000000000").expect("digits");
        assert_eq!(seconds.judge(read, now).map_err(|r| r.reason()), Err(Reason::TimestampInFuture));
        let millis = window(Unit::Milliseconds);
        let read = millis.read(b"1750000000").expect("digits");
        assert_eq!(millis.judge(read, now).map_err(|r| r.reason()), Err(Reason::TimestampTooOld));
    }

    #[test]
    fn a_provider_that_sends_both_units_is_read_by_size() {
        let read = |text: &[u8]| window(Unit::Auto).read(text).map(Timestamp::as_secs);
        assert_eq!((read(b"1750000000"), read(b"1750000000000")), (Ok(NOW), Ok(NOW)));
    }

    #[test]
    fn only_plain_digits_are_a_number_of_seconds() {
        for bad in ["", "-1", "+1", " 1", "1 ", "1.0", "1e9", "٣", "17500000000000000"] {
            assert!(window(Unit::Seconds).read(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(window(Unit::Seconds).read(b"\xFF").is_err());
    }

    #[test]
    fn dates_are_read_with_fractions_and_offsets() {
        let read = |text: &str| window(Unit::Rfc3339).read(text.as_bytes()).map(Timestamp::as_micros);
        let base = NOW * 1_000_000;
        assert_eq!(read("2025-06-15T15:06:40Z"), Ok(base));
        assert_eq!(read("2025-06-15T15:06:40.123456789Z"), Ok(base + 123_456));
        assert_eq!(read("2025-06-15T17:06:40.5+02:00"), Ok(base + 500_000));
        assert_eq!(read("1969-12-31T23:59:59Z"), Ok(-1_000_000));
        for bad in [
            "2025-06-15",
            "2025-13-15T15:06:40Z",
            "2025-06-15T15:06:40",
            "2025-06-15T15:06:40.Z",
            "2025-06-15T15:06:4éZ",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_written_time_reads_back(micros in 0_i64..4_000_000_000_000_000) {
            let time = Timestamp::from_micros(micros);
            let window = window(Unit::Rfc3339);
            prop_assert_eq!(window.read(window.write(time).as_bytes()), Ok(time));
        }

        #[test]
        fn no_input_makes_the_reader_panic(text in "[0-9TZ:.+ é-]{0,40}") {
            for unit in [Unit::Seconds, Unit::Milliseconds, Unit::Rfc3339, Unit::Auto] {
                let _ = window(unit).read(text.as_bytes());
            }
        }
    }
}
