//! The client against a real gateway: what its handlers see while connections are cut and gateways come and go.

#[expect(dead_code, reason = "the services are tested with it too")]
#[path = "../../../api/tests/it/gateway.rs"]
mod gateway;
mod proxy;
mod resuming;
mod work;
mod working;
