//! The Rust SDK of Portero: consume a subscription's events, and administer a gateway.
//!
//! ```no_run
//! use portero_client::{Client, ClientConfig, Outcome, SubscribeOptions, Token};
//!
//! # async fn example() -> Result<(), portero_client::Error> {
//! let mut config = ClientConfig::new("http://127.0.0.1:50051");
//! config.token = Token::file("/var/run/secrets/portero/token");
//! let client = Client::connect(config).await?;
//! client
//!     .subscribe("billing", SubscribeOptions::default())
//!     .run(|delivery| async move {
//!         match std::str::from_utf8(delivery.body()) {
//!             Ok(_text) => Outcome::Ack,
//!             Err(_) => Outcome::reject("NOT_TEXT", "the body is not UTF-8"),
//!         }
//!     })
//!     .await
//! # }
//! ```
//!
//! [`Subscriber::run`] calls a handler per event: events of different entities at the same time, events of one entity one
//! after the other. It batches settlements, keeps the stream alive, reconnects and goes on with what its handlers still
//! work on, and finishes what it began when it is told to stop. [`Subscriber::open`] gives the same stream without a handler. Delivery is at least once: a consumer whose
//! effects must happen once keeps an inbox in its own database (module `inbox`, features `inbox-postgres` and
//! `inbox-sqlite`).
//!
//! This crate must never hide a lost outcome (every one ends in a status or is reported to the [`Observer`]), never work on
//! two events of one entity at a time, and never show a body or a token in `Debug`, errors or logs.

mod auth;
mod backoff;
mod batch;
mod client;
mod config;
mod delivery;
mod driver;
mod error;
mod held;
#[cfg(any(feature = "inbox-postgres", feature = "inbox-sqlite"))]
pub mod inbox;
mod late;
mod link;
mod live;
mod observer;
mod options;
mod outcome;
mod queue;
mod runner;
mod session;
mod subscription;
mod tls;
mod token;
mod told;

pub use auth::Authenticated;
pub use client::{Admin, Client, Subscriber};
pub use config::{ClientConfig, Transport};
pub use delivery::Delivery;
pub use error::{Error, ErrorKind};
pub use observer::{Disconnect, Observer, Silent};
pub use options::SubscribeOptions;
pub use outcome::{Outcome, SettlementStatus};
pub use portero_proto::v1;
pub use subscription::{Lost, Settler, Settling, Subscription};
pub use tls::{ClientCertificate, Tls, TlsFailure};
pub use token::{Token, TokenError};
/// Stops subscriptions and tells handlers that their work is no longer wanted.
pub use tokio_util::sync::CancellationToken;
