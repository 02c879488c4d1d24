//! Where a secret stands in its life.
//!
//! ```text
//!   planned ──not_before──▶ active ──retire──▶ retiring ──not_after──▶ retired
//!      │                      │                   │                       │
//!      └──────────────────────┴──── revoke ───────┴───────────────────────┘
//!                                     ▼
//!                                  revoked
//! ```
//!
//! Time alone moves it along the first line, except that `retire` sets the end; nothing moves it back.

use std::time::Duration;

use portero_types::Timestamp;

use crate::Secret;

/// How much earlier a secret begins that is to verify at once: gateways' clocks differ, and the provider may sign with it, and
/// reach one whose clock is behind, as soon as it has it.
pub const BEGINS_EARLIER: Duration = Duration::from_mins(1);

/// Where a secret stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretState {
    /// Its time has not come.
    Planned,
    /// It verifies, without an end.
    Active,
    /// It verifies until its end.
    Retiring,
    /// Its end has passed.
    Retired,
    /// It was revoked, whatever its times say.
    Revoked,
}

impl Secret {
    /// Where it stands.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> SecretState {
        match self.not_after {
            _ if self.revoked_at.is_some() => SecretState::Revoked,
            // Also of one that ends before it begins.
            Some(end) if end <= now => SecretState::Retired,
            _ if now < self.not_before => SecretState::Planned,
            Some(_) => SecretState::Retiring,
            None => SecretState::Active,
        }
    }

    /// Whether it verifies.
    #[must_use]
    pub fn is_active(&self, now: Timestamp) -> bool {
        matches!(self.state(now), SecretState::Active | SecretState::Retiring)
    }
}
