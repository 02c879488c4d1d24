//! The delivery engine: decides, for one lane of one subscription, which event is offered next, to whom, and what its
//! outcome means.
//!
//! It does no IO. Inputs are `handle_*` methods that carry the present moment, outputs are `poll_*` methods that the
//! caller asks after each input. Nothing here may ever read a clock, start a task, open a socket or make its own
//! randomness, and nothing here knows a store, a wire format or a payload.
//!
//! What a lane promises (with window 1 per entity):
//!
//! - **Order.** Deliveries of an entity start in position order, and the next one starts only after the settlement of
//!   the one before is durable. Only `Defer`, the consumer's own word, lets an event step aside.
//! - **No redelivery after `Durable`.** A settlement is answered only once a flush that contains it was written.
//! - **Nothing lost.** Each event that was read ends acked, dead-lettered with a reason, or counted as expired.
//! - **Nobody is blamed for others.** Attempts are the failed event's own; a consumer that goes away counts apart, and an
//!   event that is suspected of it is delivered alone; while nearly everything fails ([`Circuit`]), no attempt counts.
//! - **A failing entity delays only itself**, until the lane's bound on waiting positions is reached.
//! - **Bounded.** Every queue has a limit that [`LaneConfig`] names.
//!
//! Start at [`Lane`], whose documentation gives the legal calling order.

mod batch;
mod circuit;
mod config;
mod delivery;
mod detour;
mod entity;
mod error;
mod flush;
mod journal;
mod lane;
mod phase;
mod settlement;
mod timers;
mod turns;

pub use circuit::{Circuit, CircuitConfig, Gate};
pub use config::{Backoff, DeadLetterPolicy, LaneConfig};
pub use delivery::{Delivery, Entry, Revoke, RevokeReason, Room, SideRead, SideScope, StreamId, Token, Want};
pub use error::{Error, ErrorKind};
pub use flush::{
    DeadLetter, Deferred, Detour, Flush, FlushResult, Overflow, ParkedEntity, ParkedState, Restored,
};
pub use lane::{Action, Lane, Requested, Stats};
pub use settlement::{Ending, Outcome, Reason, Settled, Settlement, Status, Tag, Undeliverable, reason};
