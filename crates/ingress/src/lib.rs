//! The HTTP edge: where providers deliver, and where an event becomes durable before it is answered.
//!
//! ```text
//! connection ─ head ─ source? ─ method? ─ body within bounds ─┬─ handshake ─ verify ─ extract ─ pre-filter ─ accept
//!                                                             └─ (a task of its own: the client may leave)
//! ```
//!
//! - [`Edge`] answers one request; [`serve`] runs it on a listener, within bounds, and closes gracefully.
//! - [`accept`] turns many requests into few commits.
//! - Every answer carries [`REQUEST_ID_HEADER`]. A 2xx for an event is given only after its commit.
//!
//! This crate must never answer 2xx for an event that is not committed, redirect, look into a body that did not verify
//! (except where the signature itself lives in it), or put a secret, a signature or a payload into an answer or a log.

pub mod accept;
mod answer;
mod body;
mod config;
mod edge;
mod event;
pub mod metrics;
mod process;
mod refusal;
mod server;
mod sniff;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use accept::{AcceptConfig, AcceptHandle, Hint, Queues};
pub use answer::{AnswerBody, REQUEST_ID_HEADER};
pub use config::EdgeConfig;
pub use edge::{Edge, Parts, Random, TraceParent};
pub use server::serve;
