//! Whom a grant is for.

use std::fmt;

use crate::InvalidId;
use crate::limits::SUBJECT_BYTES_MAX;

/// The subjects of an issuer that a grant is for: one, written out, or all that begin with a prefix, written with one `*` at
/// the end. The prefix is never empty: a grant to everybody whom an issuer knows is a mistake more often than a wish.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubjectPattern(Box<str>);

impl SubjectPattern {
    /// Checks and wraps a pattern: 1 to [`SUBJECT_BYTES_MAX`] bytes without control characters, `*` at the end only and
    /// behind something.
    ///
    /// # Errors
    /// [`InvalidId`] when the text breaks that rule.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
        let text = text.into();
        let literal = text.strip_suffix('*').unwrap_or(&text);
        let is_good = !literal.is_empty()
            && text.len() <= SUBJECT_BYTES_MAX
            && !literal.contains('*')
            && !text.chars().any(char::is_control);
        if is_good {
            Ok(Self(text.into_boxed_str()))
        } else {
            Err(InvalidId {
                what: "a subject",
                rule: "1 to 256 bytes without control characters, or such a prefix followed by one '*'",
            })
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What all its subjects begin with, when it is not for a single one.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.0.strip_suffix('*')
    }

    /// Whether this subject is meant. Bytes are compared as they are.
    #[must_use]
    pub fn matches(&self, subject: &str) -> bool {
        match self.prefix() {
            Some(prefix) => subject.starts_with(prefix),
            None => *self.0 == *subject,
        }
    }
}

impl fmt::Display for SubjectPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> SubjectPattern {
        SubjectPattern::new(text).expect("valid")
    }

    #[test]
    fn a_pattern_is_one_subject_or_a_prefix() {
        let one = pattern("system:serviceaccount:shop:billing");
        assert!(one.matches("system:serviceaccount:shop:billing"));
        assert!(!one.matches("system:serviceaccount:shop:billing2") && !one.matches("system"));
        let all = pattern("system:serviceaccount:shop:*");
        assert!(all.matches("system:serviceaccount:shop:billing"));
        assert!(!all.matches("system:serviceaccount:shop-2:billing"));
        assert_eq!((one.prefix(), all.prefix()), (None, Some("system:serviceaccount:shop:")));
    }

    #[test]
    fn a_star_stands_at_the_end_behind_something() {
        for bad in ["", "*", "**", "a*b", "a**", "*a", "a\nb", &"a".repeat(257)] {
            assert!(SubjectPattern::new(bad).is_err(), "{bad:?}");
        }
        assert!(SubjectPattern::new("a".repeat(256)).is_ok());
    }
}
