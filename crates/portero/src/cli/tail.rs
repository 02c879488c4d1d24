//! `portero tail`.

use clap::Args;

use super::{ConnectArgs, OutputArgs};

/// Follow a subscription: print each event and acknowledge it.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// The subscription's id.
    pub(crate) subscription: String,
    /// Stop after so many events, once the gateway has recorded what became of them.
    #[arg(long, short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Print headers and bodies too: bodies as text when they are UTF-8, else in base64.
    #[arg(long)]
    pub(crate) body: bool,
    /// Only look: release the events at the end instead of acknowledging them. They will be delivered again. Of one
    /// entity only the first event is seen, because the next one waits for it.
    #[arg(long)]
    pub(crate) no_ack: bool,
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
