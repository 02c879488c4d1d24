//! Amounts.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// An amount in cents of a dollar; negative when more went out than came in. Sums saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cents(pub i64);

impl Cents {
    /// Whole dollars; saturates.
    #[must_use]
    pub const fn dollars(dollars: i64) -> Self {
        Self(dollars.saturating_mul(100))
    }
}

impl Add for Cents {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Cents {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Cents {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), Add::add)
    }
}

/// `$25,000`, `-$0.05`: dollars with separators, cents only when there are some.
impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dollars, cents) = (self.0.unsigned_abs() / 100, self.0.unsigned_abs() % 100);
        let digits = dollars.to_string();
        let mut text = String::from(if self.0 < 0 { "-$" } else { "$" });
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        if cents > 0 {
            text.push_str(&format!(".{cents:02}"));
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_like_money() {
        let shown = [0, 5, -5, 100, 99_999, 2_500_000, 11_550_000, 123_456_789, -11_550_000]
            .map(|n| Cents(n).to_string());
        let expected =
            ["$0", "$0.05", "-$0.05", "$1", "$999.99", "$25,000", "$115,500", "$1,234,567.89", "-$115,500"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn sums_saturate() {
        assert_eq!(Cents(i64::MAX) + Cents(1), Cents(i64::MAX));
        assert_eq!(Cents(i64::MIN) - Cents(1), Cents(i64::MIN));
    }
}
