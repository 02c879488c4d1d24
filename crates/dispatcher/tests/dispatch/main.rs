//! The dispatcher over real stores: what consumers get, what a restart keeps, what limits hold, who has which lanes.

#![allow(unreachable_pub, reason = "modules of one test binary")]

mod delivering;
mod draining;
mod failing;
mod faulty;
mod filtering;
mod generation;
mod guarding;
mod hints;
#[path = "../../../store-postgres/tests/it/harness.rs"]
mod postgres;
mod rolling;
mod sealed;
mod sharing;
mod support;
mod suspended;
