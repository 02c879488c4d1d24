//! The store on a real PostgreSQL: the conformance suite, and what only this store can get wrong.

mod durability;
mod frozen;
mod harness;
mod isolation;
mod listening;
mod locks;
mod migrating;
mod outage;
mod proxy;
mod server;
mod standby;
mod tls;

portero_store::conformance!(crate::harness::TestDatabase::create);
