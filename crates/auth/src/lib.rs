//! Who calls, and what they may do.
//!
//! [`Verifier`] turns a bearer token (a JWT, RFC 7519) of a trusted issuer into a [`Caller`] with the grants that the token
//! and the configuration give it; whoever serves calls adds the stored ones. [`allows`] is the one table that says which
//! caller may call which RPC on which resource. [`Issuer`] signs tokens with a local Ed25519 key, for
//! installations without an identity provider and for tests.
//!
//! The algorithms that an issuer may use are pinned by configuration, never taken from the token alone, and symmetric ones
//! do not exist here (RFC 8725 sections 3.1 and 3.2). Time is an argument.
//!
//! This crate must never put a token, or any text from a token that did not verify, into an error, a log, a metric or
//! Debug; never follow a URL named by a token; never grant anything that the table does not name.

mod action;
mod algorithm;
mod cache;
mod caller;
mod claimed;
mod issuer;
mod issuer_file;
mod jwks;
mod metrics;
mod reason;
mod source;
mod table;
mod token;
mod verifier;

pub use action::{Action, SubscriptionRef, SubscriptionScope};
pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use caller::{Caller, Grant, InvalidGrant, Role, SUBSCRIPTIONS_PER_GRANT_MAX, UnknownRole};
pub use claimed::Claimed;
pub use issuer::{Issuer, LIFETIME_MAX, MintError, Minted, NewToken};
pub use issuer_file::KeyFileError;
pub use metrics::describe;
pub use reason::Reason;
pub use source::{JWKS_BYTES_MAX, JwksUrl, KeySource};
pub use table::{allows, is_outdated};
pub use token::TOKEN_BYTES_MAX;
pub use verifier::{InvalidIssuer, LEEWAY, TrustedIssuer, Verifier};
