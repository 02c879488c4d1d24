//! The services over a real gateway, as a client sees them that speaks the protocol by hand.

mod client;
mod elsewhere;
mod expiry;
mod frames;
#[expect(dead_code, reason = "the consumers' library is tested with it too")]
mod gateway;
mod hello;
mod open_door;
mod standing;
