//! The binary: command line, configuration, telemetry, and how the parts of a gateway are put together.
//!
//! It alone knows every crate. It holds no rule of its own about events: those are in `recipe`, `ingress` and `engine`.

mod cli;
mod clock;
mod commands;
mod config;
mod dev_file;
mod entropy;
mod file_error;
mod gateway;
mod local_issuer;
mod print;
mod private_file;
mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    // One TLS provider for everything: it is pure Rust and C, and needs no system library. A second call would be an
    // error, and there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::error(&format!("threads cannot be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => commands::report(&error),
    }
}
