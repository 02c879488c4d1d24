//! `replica`: the gateway processes that run.

use clap::Subcommand;

use super::Common;

#[derive(Debug, Subcommand)]
pub(crate) enum ReplicaCommand {
    /// List the gateways that run: how far each has applied the configuration, and how far its clock is off.
    #[command(after_help = "\
A gateway is LIVE when it was seen within a minute. One that is not was killed, paused or cut off: one that stops in order
is not listed any more, and after a day none of them is. BEHIND says by how many changes it lags; more than 0 for longer
than a second or two is a problem.")]
    List {
        #[command(flatten)]
        common: Common,
    },
}
