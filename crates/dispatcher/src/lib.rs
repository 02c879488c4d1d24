//! Drives the delivery engine: reads the log, hands events to consumers' streams, writes progress to the journal.
//!
//! One actor per subscription takes every decision about that subscription's lanes; all IO happens in jobs beside it. One
//! session per process owns the lanes, is renewed while the process lives, and stops by itself before another may take
//! over. This crate knows no wire protocol: `api` translates. It must never acknowledge what is not written.

mod actor;
mod assign;
mod convert;
mod dispatcher;
mod filter;
mod heads;
pub mod metrics;
mod session;
mod stream;

use std::time::Duration;

pub use dispatcher::{AttachError, Dispatcher, DispatcherConfig, Settler, StreamHandle, TraceHook};
pub use portero_engine::Token;
pub use stream::{
    Backlog, Delivery, DeliveryToken, EndReason, Ending, Flow, Frame, Outcome, Reason, Settlement, Status,
    StreamSpec,
};

/// How long a delivery may stay unsettled without a hold.
pub const MAX_HOLD: Duration = Duration::from_secs(300);
