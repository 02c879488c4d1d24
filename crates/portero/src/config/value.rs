//! Reading one value: durations, sizes, addresses. A text is accepted for every kind, because the environment has only text.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Value;

/// A kind of setting.
pub(crate) trait Setting: Sized {
    /// Reads it, or says what it must be (the end of "it must be …").
    fn read(value: &Value) -> Result<Self, &'static str>;
}

impl Setting for String {
    fn read(value: &Value) -> Result<Self, &'static str> {
        value.as_str().map(str::to_owned).ok_or("a text in quotes")
    }
}

impl Setting for bool {
    fn read(value: &Value) -> Result<Self, &'static str> {
        match (value.as_bool(), value.as_str()) {
            (Some(flag), _) => Ok(flag),
            (None, Some("true")) => Ok(true),
            (None, Some("false")) => Ok(false),
            (None, _) => Err("true or false"),
        }
    }
}

impl Setting for u32 {
    fn read(value: &Value) -> Result<Self, &'static str> {
        let rule = "a whole number from 0 to 4294967295";
        match (value.as_integer(), value.as_str()) {
            (Some(number), _) => Self::try_from(number).map_err(|_| rule),
            (None, Some(text)) => text.parse().map_err(|_| rule),
            (None, None) => Err(rule),
        }
    }
}

impl Setting for f64 {
    fn read(value: &Value) -> Result<Self, &'static str> {
        let rule = "a number";
        match (value.as_float(), value.as_integer(), value.as_str()) {
            (Some(number), _, _) => Ok(number),
            (None, Some(number), _) => i32::try_from(number).map(Self::from).map_err(|_| rule),
            (None, None, Some(text)) => text.parse().map_err(|_| rule),
            (None, None, None) => Err(rule),
        }
    }
}

impl Setting for SocketAddr {
    fn read(value: &Value) -> Result<Self, &'static str> {
        value
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or("an address and a port, such as \"0.0.0.0:8080\" or \"[::1]:8080\"")
    }
}

impl Setting for Duration {
    fn read(value: &Value) -> Result<Self, &'static str> {
        value
            .as_str()
            .and_then(|text| humantime::parse_duration(text).ok())
            .ok_or("a duration with its unit, such as \"500ms\", \"30s\" or \"5m\"")
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) usize);

impl Setting for Bytes {
    fn read(value: &Value) -> Result<Self, &'static str> {
        let rule = "a size with its unit, such as \"512KiB\", \"1MiB\" or \"2GiB\"";
        let text = value.as_str().ok_or(rule)?;
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let factor: usize = match text[digits.len()..].trim() {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(rule),
        };
        digits.parse::<usize>().ok().and_then(|n| n.checked_mul(factor)).map(Self).ok_or(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(Bytes::read(&text("1MiB")), Ok(Bytes(1 << 20)));
        assert_eq!(Bytes::read(&text("12 KiB")), Ok(Bytes(12 << 10)));
        for bad in ["1", "MiB", "-1MiB", "1MB", "99999999999999999999GiB", ""] {
            assert!(Bytes::read(&text(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_and_flags_read_from_text_too() {
        assert_eq!(u32::read(&text("7")), Ok(7));
        assert_eq!(bool::read(&text("true")), Ok(true));
        assert!(u32::read(&Value::Integer(-1)).is_err());
        assert!(bool::read(&text("yes")).is_err());
    }
}
