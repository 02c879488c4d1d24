//! A lane as its caller sees it: examples as sentences, and generated histories against a simpler reference model.

mod bounds;
mod crowded;
mod deferring;
mod failing;
mod flushing;
mod late;
mod model;
mod order;
mod property;
mod restarts;
mod store;
mod support;
mod world;
