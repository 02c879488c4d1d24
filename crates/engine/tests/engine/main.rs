//! A lane as its caller sees it: examples as sentences, and generated histories against a simpler reference model.

mod adopting;
mod blocking;
mod bounds;
mod circuit;
mod crowded;
mod deferring;
mod failing;
mod failure_modes;
mod flushing;
mod isolating;
mod late;
mod model;
mod order;
mod overflowing;
mod property;
mod restarts;
mod store;
mod support;
mod world;
