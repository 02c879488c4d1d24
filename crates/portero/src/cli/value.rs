//! Values of arguments that more than one command reads.

use std::time::UNIX_EPOCH;

use portero_types::{Redacted, Timestamp};

/// `name=value`; the value may hold further `=` and be empty.
pub(crate) fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("a setting is written name=value".to_owned()),
    }
}

/// A text that is never shown.
#[expect(clippy::unnecessary_wraps, reason = "the command line wants readers that may fail")]
pub(crate) fn hidden(text: &str) -> Result<Redacted<String>, String> {
    Ok(Redacted::new(text.to_owned()))
}

/// A moment in RFC 3339 (UTC) or in seconds since 1970.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    const EXPECTED: &str =
        "a time is written like 2025-06-15T15:06:40Z, or in seconds since 1970 like 1750000000";
    if !text.is_empty() && text.len() <= 11 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(Timestamp::from_secs).map_err(|_| EXPECTED.to_owned());
    }
    let time = humantime::parse_rfc3339(text).map_err(|_| EXPECTED.to_owned())?;
    let micros = time.duration_since(UNIX_EPOCH).map_err(|_| EXPECTED.to_owned())?.as_micros();
    i64::try_from(micros).map(Timestamp::from_micros).map_err(|_| EXPECTED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_cut_at_its_first_equals_sign() {
        assert_eq!(setting("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(setting("a="), Ok(("a".to_owned(), String::new())));
        for bad in ["", "a", "=b", " =b"] {
            assert!(setting(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_are_read_in_both_forms() {
        let wanted = Timestamp::from_secs(1_750_000_000);
        for text in ["1750000000", "2025-06-15T15:06:40Z"] {
            assert_eq!(moment(text), Ok(wanted), "{text}");
        }
        let half = wanted.plus(std::time::Duration::from_millis(500));
        assert_eq!(moment("2025-06-15T15:06:40.5Z"), Ok(half));
        for bad in ["", "now", "1750000000000", "-5", "2025-06-15", "2025-06-15T15:06:40"] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }
}
