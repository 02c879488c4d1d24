//! The edge as providers meet it: over TCP, into a real store.

mod receiving;
mod samples;
mod sqlite;
mod support;
