//! Why a command failed, as its exit code says it (the numbers of BSD's `sysexits.h`).

use crate::config::Problems;

/// The kinds of failure that scripts can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The arguments, a file or the settings are wrong: the same again fails again. 64.
    Usage,
    /// What was named does not exist. 66.
    NotFound,
    /// Nobody answers, or the gateway cannot help now: worth another try. 69.
    Unavailable,
    /// The token is missing, not accepted, or does not allow it. 77.
    NoPermission,
    /// Everything else. 1.
    Failed,
}

impl Kind {
    /// The process's exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::NotFound => 66,
            Self::Unavailable => 69,
            Self::NoPermission => 77,
            Self::Failed => 1,
        }
    }
}

/// A failure in words for people: what is wrong, where, and what to do. Never holds a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// What kind it is.
    pub(crate) kind: Kind,
    message: String,
}

impl Failure {
    /// A failure of a kind.
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The arguments or a file are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Nobody answers.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, message)
    }

    /// Says what it is about, unless its words do already.
    pub(crate) fn about(self, name: &str) -> Self {
        if self.message.contains(name) {
            self
        } else {
            Self::new(self.kind, format!("{name}: {}", self.message))
        }
    }

    /// Any other failure.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, message)
    }
}

/// The exit code of a failed command.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.kind.code();
    }
    let kind = if error.downcast_ref::<Problems>().is_some() { Kind::Usage } else { Kind::Failed };
    kind.code()
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;
    use crate::config::{Config, Sources};

    #[test]
    fn scripts_can_tell_the_kinds_apart() {
        let kinds = [Kind::Usage, Kind::NotFound, Kind::Unavailable, Kind::NoPermission, Kind::Failed];
        assert_eq!(kinds.map(Kind::code), [64, 66, 69, 77, 1]);
    }

    #[test]
    fn the_kind_survives_context() {
        let failure: anyhow::Result<()> = Err(Failure::unavailable("nobody answers").into());
        assert_eq!(code(&failure.context("while listing").expect_err("failed")), 69);
        assert_eq!(code(&anyhow::anyhow!("something else")), 1);
    }

    #[test]
    fn a_failure_names_what_it_is_about_once() {
        let exists = Failure::failed("it exists").about("tenants/acme");
        assert_eq!(exists.to_string(), "tenants/acme: it exists");
        assert_eq!(exists.about("tenants/acme").to_string(), "tenants/acme: it exists");
    }

    #[test]
    fn wrong_settings_are_wrong_usage() {
        let problems = Config::load(&Sources::for_test("colour = 1", &[])).expect_err("unknown key");
        assert_eq!(code(&problems.into()), 64);
    }
}
