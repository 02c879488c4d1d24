//! The example as a service.

use clap::Parser as _;
use portero_example_consumer::{Arguments, run};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(std::io::stderr).init();
    run(Arguments::parse()).await
}
