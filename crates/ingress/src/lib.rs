//! The HTTP edge: where providers deliver, and where an event becomes durable before it is answered.
//!
//! ```text
//! connection ─ head ─ source? ─ method? ─ limits? ─ encoding? ─ body within bounds ─┐
//!   ┌───────────────────────────────────────────────────────────────────────────────┘  (a task of its own: the client may leave)
//!   └ inflate ─ fetch what verification needs ─ handshake ─ verify ─ extract ─ limits? ─ confirm ─ pre-filter ─ accept
//! ```
//!
//! - [`Edge`] answers one request; [`serve`] runs it on a listener, within bounds, and closes gracefully.
//! - [`accept`] turns many requests into few commits.
//! - [`RejectionQueue`] remembers refused requests for a while, without delaying anything.
//! - [`SecretWriter`] takes the secret that a handshake may bring, before it is answered.
//! - Every answer carries [`REQUEST_ID_HEADER`]. A 2xx for an event is given only after its commit.
//!
//! This crate must never answer 2xx for an event that is not committed, redirect, look into a body that did not verify
//! (except where the signature itself lives in it), or put a secret, a signature or a payload into an answer or a log.

pub mod accept;
mod answer;
mod body;
mod config;
mod edge;
mod encoding;
mod event;
mod examine;
pub mod forwarded;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_entry;
mod handshake;
mod limits;
pub mod metrics;
mod outgoing;
mod process;
mod refusal;
mod rejections;
mod secret_uses;
mod server;
mod sniff;
mod submit;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use accept::{AcceptConfig, AcceptHandle, Hint, Queues};
pub use answer::{AnswerBody, REQUEST_ID_HEADER};
pub use config::EdgeConfig;
pub use edge::{Edge, Parts, Random, TraceParent};
pub use handshake::{NoSecrets, SecretNotWritten, SecretWriter};
pub use limits::{LimitsConfig, SendingLimits, UnverifiedLimits};
pub use rejections::{RejectionQueue, RejectionWriter, SealCapture, sweep as sweep_rejections};
pub use secret_uses::SecretUses;
pub use server::serve;
