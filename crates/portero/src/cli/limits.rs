//! How much a tenant or a source may send, as arguments.

use clap::Args;

/// Own limits; each for the whole installation.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct GivenLimits {
    /// Most events a second that are accepted, over all gateways; 0 means no limit. Further ones are answered 429, and the
    /// provider sends them again. Default: as the gateways' settings say.
    #[arg(long, value_name = "N")]
    pub(crate) events_per_second: Option<u32>,
    /// Most events at once. Default: ten seconds' worth.
    #[arg(long, value_name = "N")]
    pub(crate) burst: Option<u32>,
    /// Most bytes of bodies a second, such as 512KiB or 8MiB; 0 means no limit.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub(crate) bytes_per_second: Option<u64>,
}

impl GivenLimits {
    /// Whether any is named.
    pub(crate) const fn is_given(&self) -> bool {
        self.events_per_second.is_some() || self.burst.is_some() || self.bytes_per_second.is_some()
    }
}

/// A number of bytes, with a unit or without.
fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "a size is written like 1048576, 512KiB, 8MiB or 1GiB".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_or_none() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("3KiB"), Ok(3_072));
        assert_eq!(bytes("1GiB"), Ok(1 << 30));
        for wrong in ["", "KiB", "1KB", "-1", "1.5MiB", "99999999999999999999", "18446744073709551615GiB"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
