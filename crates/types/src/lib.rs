//! The words of Portero as types: identifiers, positions, limits, time.
//!
//! Everything else depends on this crate; it depends on nothing of ours and does no IO. Two values that could be
//! swapped by mistake are two types. Nothing here may ever read a clock, a file or the environment on its own:
//! [`Clock`] is a trait that the binary implements once.

pub mod clock;
pub mod event;
pub mod id;
pub mod limits;
pub mod position;
pub mod redact;
pub mod subject;
pub mod wrapped_key;

pub use clock::{Clock, ManualClock, Timestamp};
pub use event::{Event, Header, NewEvent};
pub use id::{
    GrantId, GrantNo, IngestKey, InvalidId, ProviderName, ReceiptId, ReplicaId, RequestId, SecretId,
    SecretNo, SessionId, SourceId, SourceNo, SubscriptionId, SubscriptionNo, TenantId, TenantNo,
};
pub use position::{EntityHash, Epoch, Generation, LaneCount, LaneNo, Position, Shard, ShardCount, Slot};
pub use redact::Redacted;
pub use subject::SubjectPattern;
pub use wrapped_key::WrappedKey;
