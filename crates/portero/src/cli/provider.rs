//! `portero provider`.

use clap::Subcommand;

use super::OutputArgs;

/// The built-in recipes.
#[derive(Debug, Subcommand)]
pub(crate) enum ProviderCommand {
    /// List the providers that have a built-in recipe.
    #[command(after_help = "\
Examples:
  portero provider list
  portero provider list --category payments
  portero provider list --output json | jq -r .name

PROVES says what a good signature means: 'body' (all of it is as sent), 'fields' (only some of it),
'token' (the sender knows a secret; the body may be anybody's), 'none'.")]
    List {
        /// Only this category: payments, developer, messaging, commerce or cloud.
        #[arg(long, value_name = "CATEGORY")]
        category: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show what to set up at a provider, and how its requests are verified and read.
    #[command(after_help = "\
Examples:
  portero provider show stripe
  portero provider show stripe --recipe > own.json    # to start a recipe of your own
  portero source create acme own --recipe-file own.json")]
    Show {
        /// The provider, as `portero provider list` names it.
        preset: String,
        /// Print the recipe itself, in JSON.
        #[arg(long)]
        recipe: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}
