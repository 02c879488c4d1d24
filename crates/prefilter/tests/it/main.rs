//! The pre-filter against a real Redis: absent, empty, flushed, stale, slow, damaged, killed.
//!
//! `PORTERO_TEST_REDIS_URL` names a server that tests may share. Tests that stop or flush one start their own.
#![allow(clippy::unwrap_used, reason = "tests")]
#![cfg(unix)]

mod server;
mod tls;
mod trouble;
mod usual;
