//! The client against real TLS servers, through a real proxy.

mod client;
mod proxy;
mod server;
