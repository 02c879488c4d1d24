//! A value that must not be shown.

use std::fmt;

use zeroize::Zeroize;

/// Holds a secret: Debug shows nothing of it, there is no Display, no equality and no serialisation, and its memory is
/// wiped when it is dropped.
#[derive(Clone)]
pub struct Redacted<T: Zeroize>(T);

impl<T: Zeroize> Redacted<T> {
    /// Wraps a secret.
    pub const fn new(secret: T) -> Self {
        Self(secret)
    }

    /// The secret itself. The name is long so that each use is seen in review.
    pub const fn expose_secret(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<T: Zeroize> Drop for Redacted<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Redacted::new("hunter2".to_owned())), "[redacted]");
    }
}
