//! What each command does.

mod admin;
mod completions;
mod config;
mod connection;
mod demo;
mod dev;
mod exit;
mod explanation;
mod input;
mod keyring;
mod migrate;
mod present;
mod provider;
mod recipe_file;
mod request_file;
mod send;
mod serve;
mod settings;
mod stop;
mod tail;
mod token;
mod verify;

use std::path::Path;
use std::process::ExitCode;

use crate::cli::{Command, ConfigArgs};
use crate::config::{Config, Sources};

/// Reads the settings that a command line names.
pub(crate) fn load(args: &ConfigArgs) -> anyhow::Result<Config> {
    let mut sources = Sources::from_process(args.config.as_deref().map(Path::new));
    for flag in &args.set {
        sources.set(flag);
    }
    Ok(Config::load(&sources)?)
}

/// Runs a command to its end.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Dev(args) => Box::pin(dev::run(args)).await,
        Command::Serve(args) => Box::pin(serve::run(args)).await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Demo(args) => Box::pin(demo::run(args)).await,
        Command::Tenant(command) => Box::pin(admin::tenant::run(command)).await,
        Command::Source(command) => Box::pin(admin::source::run(command)).await,
        Command::Secret(command) => Box::pin(admin::secret::run(command)).await,
        Command::Subscription(command) => Box::pin(admin::subscription::run(command)).await,
        Command::Parked(command) => Box::pin(admin::parked::run(command)).await,
        Command::Audit(command) => Box::pin(admin::audit::run(command)).await,
        Command::Replica(command) => Box::pin(admin::replica::run(command)).await,
        Command::Grant(command) => Box::pin(admin::grant::run(command)).await,
        Command::Rejection(command) => Box::pin(admin::rejection::run(command)).await,
        Command::Receipt(command) => Box::pin(admin::receipt::run(command)).await,
        Command::Provider(command) => provider::run(command).await,
        Command::Verify(args) => verify::run(args).await,
        Command::Send(args) => Box::pin(send::run(args)).await,
        Command::Tail(args) => Box::pin(tail::run(args)).await,
        Command::Token(command) => token::run(command),
        Command::Keyring(command) => keyring::run(command).await,
        Command::Config(command) => config::run(command).await,
        Command::Completions { shell } => completions::run(shell).await,
    }
}

/// Tells the user what went wrong; its kind is the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    crate::print::error(&format!("error: {error:#}"));
    ExitCode::from(exit::code(error))
}
