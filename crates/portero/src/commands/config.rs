//! `portero config`: show the default settings, check given ones.

use crate::cli::ConfigCommand;
use crate::config::DEFAULT_FILE;
use crate::print;

/// Runs one of its commands.
pub(crate) async fn run(command: ConfigCommand) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Default => print::raw(DEFAULT_FILE.as_bytes()),
        ConfigCommand::Check(args) => {
            super::load(&args)?;
            print::line("the settings are valid")
        }
    }
}
