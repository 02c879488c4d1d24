//! The configuration in memory: what the edge and the dispatcher look things up in, so that neither waits for a database.
//!
//! A [`Directory`] holds the latest [`Snapshot`] and follows the store: every half second, and at once when it hears of a
//! change, it reports what it has applied, is told the present revision, and loads what changed. It says of itself whether
//! it is fresh, by two clocks. A gateway whose directory is not fresh must not accept: a secret may have been revoked since.
//!
//! One source that cannot be used (its recipe no longer compiles, a secret setting or its tenant's data key cannot be opened) is
//! disabled with a [`Fault`]; it never disturbs another one. Nor does a secret that cannot be read disturb the source's others.
//! Nothing here may ever show a secret, in text or in Debug.

mod build;
mod clocks;
mod confirm;
mod follow;
mod grants;
mod keys;
mod map;
pub mod metrics;
mod report;
mod secrets;
mod settings;
mod snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use follow::{Directory, DirectoryConfig, Error, Follower};
pub use keys::open_tenant_keys;
pub use report::Reporting;
pub use secrets::{SecretFault, Unreadable, open_secret};
pub use settings::{Settings, open_setting};
pub use snapshot::{Fault, Snapshot, Source, Verification};
