//! End-to-end tests: they start the program as an operator does and drive its public surfaces only: HTTP, gRPC, the command
//! line. The services that they need are started by `scripts/test`.

mod harness;

mod at_rest;
mod audit;
mod auth;
mod bad_input;
mod callers;
mod canaries;
mod configuration;
mod crash;
mod database;
mod demo;
mod dev;
mod encryption;
mod explanation;
mod failure_modes;
mod faults;
mod kinds;
mod languages;
mod matrix;
mod names;
mod noisy;
mod operation;
mod operator;
mod outbound;
mod parked;
mod protocol;
mod redis;
mod replicas;
mod revealed;
mod revocation;
mod rotation;
mod runbooks;
mod schema;
mod settings;
mod shutdown;
mod soak;
mod tls;
mod traces;
