//! The store on a real PostgreSQL: the conformance suite, and what only this store can get wrong.

mod durability;
mod harness;
mod isolation;
mod locks;
mod outage;
mod proxy;

portero_store::conformance!(crate::harness::TestDatabase::create);
