//! `parked`: entities whose events wait, and what can be done for them.

use clap::{ArgGroup, Subcommand};

use super::Common;

#[derive(Debug, Subcommand)]
pub(crate) enum ParkedCommand {
    /// List a subscription's entities whose events wait: since when, behind what, and why.
    #[command(after_help = "\
States:
  retry     its first event failed and is offered again when it is due
  held      its first event takes long
  draining  what waited is being worked off
  blocked   an event of it became a dead letter, and the subscription's policy keeps the others back

Example:
  portero parked list billing --output json")]
    List {
        /// The subscription's id.
        subscription: String,
        #[command(flatten)]
        common: Common,
    },
    /// Offer the event that waits now, whatever its backoff; a blocked entity goes on with the events behind its dead letter.
    ///
    /// The gateway that serves the entity does it within seconds, or as soon as one serves it. An event that a consumer works
    /// on already is left alone.
    #[command(after_help = "\
Examples:
  portero parked retry billing 0a5f3c21d4e8b79606
  portero parked retry billing --all     # once the reason is mended: every one that failed or is blocked")]
    #[command(group = ArgGroup::new("which").args(["entity", "all"]).required(true))]
    #[command(override_usage = "portero parked retry [OPTIONS] <SUBSCRIPTION> <ENTITY|--all>")]
    Retry {
        /// The subscription's id.
        subscription: String,
        /// The entity's id, as `portero parked list` shows it.
        entity: Option<String>,
        /// Every entity that waits for a retry or is blocked.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Give the event that waits up: it becomes a dead letter with the code OPERATOR, and the events behind it go on.
    DeadLetter {
        /// The subscription's id.
        subscription: String,
        /// The entity's id, as `portero parked list` shows it.
        entity: String,
        #[command(flatten)]
        common: Common,
    },
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _, error::ErrorKind};

    use crate::cli::Cli;

    #[test]
    fn a_retry_needs_an_entity_or_all_and_says_so() {
        Cli::command().debug_assert();
        let error =
            Cli::try_parse_from(["portero", "parked", "retry", "billing"]).expect_err("neither is given");
        assert!(error.to_string().contains("retry [OPTIONS] <SUBSCRIPTION> <ENTITY|--all>"), "{error}");
        let both = Cli::try_parse_from(["portero", "parked", "retry", "billing", "0a5f", "--all"]);
        assert_eq!(both.expect_err("both are given").kind(), ErrorKind::ArgumentConflict);
        assert!(Cli::try_parse_from(["portero", "parked", "retry", "billing", "--all"]).is_ok());
        assert!(Cli::try_parse_from(["portero", "parked", "retry", "billing", "0a5f"]).is_ok());
    }
}
