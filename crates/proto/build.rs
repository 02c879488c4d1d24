//! Compiles `proto/` without an external compiler.

use std::error::Error;
use std::path::PathBuf;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../../proto");
    let descriptors = protox::compile(
        ["portero/v1/subscriber_service.proto", "portero/v1/admin_service.proto"],
        ["../../proto"],
    )?;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".portero.v1.Event.body")
        .bytes(".portero.v1.Delivery.token")
        .bytes(".portero.v1.Settlement.token")
        .bytes(".portero.v1.SettlementResult.token")
        .bytes(".portero.v1.Hello.unsettled_tokens")
        .bytes(".portero.v1.Welcome.resumed_tokens")
        .bytes(".portero.v1.Hold.token")
        .bytes(".portero.v1.Revoke.tokens")
        .compile_fds(descriptors)?;
    Ok(())
}
