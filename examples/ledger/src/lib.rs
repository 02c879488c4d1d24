//! A payment ledger on the receiving side of Portero: an example of a consumer whose effects must happen once, in order.
//!
//! The fictional payment provider *Pagora* tells a shop what happens to its orders ([`PaymentEvent`]). The [`Ledger`]
//! applies each event in one SQLite transaction with an inbox, along the table of [`transition`]: what is too early is
//! deferred, what can never be right is rejected. The [`NaiveReceiver`] is the usual endpoint without a gateway: it applies
//! whatever arrives, in the order in which it arrives. [`reconcile`] compares either with the provider's own books, and
//! [`scenario`] holds nine deliveries for five orders that show the difference.
//!
//! Only [`Ledger`] does IO; nothing here may ever apply an event outside of its inbox's transaction.

mod account;
mod event;
mod ledger;
mod money;
mod naive;
mod reconcile;
pub mod scenario;
mod transition;

pub use account::{Account, Accounts, Book};
pub use event::{EventKind, Malformed, OrderId, PaymentEvent};
pub use ledger::{Applied, Error, Ledger};
pub use money::Cents;
pub use naive::NaiveReceiver;
pub use reconcile::{Reconciliation, Row, reconcile};
pub use transition::{Refusal, State, transition};

/// How the provider signs: a recipe in JSON for a source of its own.
pub const RECIPE: &str = include_str!("../pagora.recipe.json");
