//! The gRPC face: `SubscriberService` and `AdminService`, health and reflection.
//!
//! It translates between the protocol and the inner crates, checks who calls, and maps errors by one table. It decides
//! nothing about delivery and nothing about storage. A token, a secret or a driver's words may never be in a status.

mod admin;
mod authenticate;
mod connection;
mod entrance;
mod error;
mod idempotency;
mod listener;
pub mod metrics;
mod name;
mod open_door;
mod page;
mod server;
mod subscriber;
mod time;
mod turns;
mod unproven;

use std::sync::Arc;

pub use listener::Listener;
pub use server::{Api, ApiConfig, Services};

/// A source of unpredictable bytes: the operating system's, or a fixed one in tests.
pub type Entropy = Arc<dyn Fn() -> [u8; 32] + Send + Sync>;
