//! How to verify and read webhooks, as data.
//!
//! A [`Recipe`] says where a provider puts its signature, what it signs and how, and where the event's id, type, entity
//! and account are found. [`verify()`] and [`extract()`] are two steps, and only the first one makes a [`Verified`], so that
//! nothing unverified is ever read; [`handshake()`] comes before both; [`sign()`] is the inverse.
//!
//! This crate is pure: no IO, no clock, no randomness. It never compares signatures other than in constant time, never
//! re-encodes what it verifies, and never puts a secret, a signature or a payload into an error or Debug output.
//!

#![doc = include_str!("../LANGUAGE.md")]

mod algorithm;
mod certificate;
mod clean;
mod compile;
mod context;
mod encoding;
mod explain;
mod extract;
mod form;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz_entry;
mod handshake;
mod info;
mod json;
mod path;
mod recipe;
mod rejection;
mod request;
mod sample;
mod schema;
mod scheme;
mod secret;
mod sign;
mod signature_list;
mod template;
pub mod told;
mod url_form;
mod verifier;
mod verify;
mod window;
mod xml;

pub use clean::clean_secret;
pub use explain::{Explanation, Outcome, Step, Verdict, explain};
pub use extract::{Anomaly, Extracted, extract};
pub use handshake::{HandshakeAnswer, handshake};
pub use info::{
    Category, Compressed, Info, InvalidSetting, SECRET_SETTING_BYTES_MIN, SETTING_BYTES_MAX, Setting,
};
pub use recipe::{IdScope, InvalidRecipe, Preset, RECIPE_BYTES_MAX, Recipe};
pub use rejection::{Reason, Rejection};
pub use request::{Fetch, Reply, Request};
pub use sample::{Sample, sample};
pub use schema::Strength;
pub use secret::{InvalidSecret, SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secret, generate_secret};
pub use sign::{SignError, SignOptions, SignedRequest, sign};
pub use verify::{Verified, fetch_needed, follow_up, verify};
