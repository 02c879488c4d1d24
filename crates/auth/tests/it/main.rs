//! Tokens of every kind against the verifier, keys from files and real HTTP servers, key files on disk.
#![allow(clippy::unwrap_used, reason = "tests")]

mod forge;
mod key_file;
mod keys;
mod refusals;
mod strict;
