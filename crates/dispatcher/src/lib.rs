//! Drives the delivery engine: reads the log, hands events to consumers' streams, writes progress to the journal.
//!
//! One actor per subscription takes every decision about that subscription's lanes; all IO happens in jobs beside it. One
//! session per process owns the lanes, is renewed while the process lives, and stops by itself before another may take
//! over. This crate knows no wire protocol: `api` translates. It must never acknowledge what is not written.

mod actor;
mod actors;
mod assign;
mod convert;
mod dispatcher;
mod filter;
mod generation;
mod heads;
mod hints;
mod keeping;
pub mod metrics;
mod opening;
mod roll;
mod session;
mod shared;
mod stream;
mod stream_handle;

use std::time::Duration;

pub use dispatcher::{AttachError, Dispatcher, DispatcherConfig, SESSION_TTL, STREAM_AGE, TraceHook};
pub use portero_engine::Token;
pub use stream::{
    Backlog, Delivery, DeliveryToken, DrainReason, EndReason, Ending, Flow, Frame, Outcome, Reason,
    Settlement, Status, StreamSpec,
};
pub use stream_handle::{Settler, StreamHandle};

/// How long a delivery may stay unsettled without a hold.
pub const MAX_HOLD: Duration = Duration::from_secs(300);
