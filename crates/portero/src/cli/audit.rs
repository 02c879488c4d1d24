//! `audit`: who changed what.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Common, ConnectArgs, OutputArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List what was changed, by whom and by which request, newest first.
    #[command(after_help = "\
Examples:
  portero audit list -n 20
  portero audit list --tenant acme --action DeleteSecret
  portero audit list --subject alice --output json     # all that a leaked token's owner did

A change is named as the RPC that does it. With `--output json`, 'before' and 'after' hold the resource.")]
    List {
        /// Only this tenant's entries. Whoever may see one tenant only must give it.
        #[arg(long)]
        tenant: Option<String>,
        /// Only what this subject did.
        #[arg(long)]
        subject: Option<String>,
        /// Only this action, such as CreateSource.
        #[arg(long)]
        action: Option<String>,
        /// At most so many.
        #[arg(long, short = 'n', default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
        limit: u32,
        #[command(flatten)]
        common: Common,
    },
    /// Write the whole audit log, oldest first, as JSON lines: one entry a line, as `portero audit verify` reads it.
    #[command(after_help = "\
Examples:
  portero audit export --file audit-2026-03.jsonl
  portero audit export | gzip > audit.jsonl.gz

Needs a role of the whole installation. At the end it says the last entry's number and hash: keep them elsewhere. With them
`portero audit verify --expect-seq N --expect-hash HASH` notices that the log's end was cut off later.")]
    Export {
        /// A new file; it is not overwritten. Without it, standard output.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Compute the chain of the audit log again, here: each entry's hash, and that it seals the one before.
    ///
    /// Names the first entry that was altered, removed or put in, and ends with exit code 1 then. Of a gateway's log it needs a
    /// role of the whole installation; of an exported file neither a gateway nor a token.
    #[command(after_help = "\
Examples:
  portero audit verify
  portero audit verify --file audit.jsonl
  portero audit verify --expect-seq 4711 --expect-hash 5f3c…

What is removed from the end leaves a shorter chain that holds. The gateways with the role \"admin\" therefore write the last
entry's number and hash to their log whenever they moved, and `portero audit export` says them: give one of these.")]
    Verify {
        /// An exported file; '-' is standard input. Without it, the log of the gateway at --endpoint.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The number of an entry that is known to have been there.
        #[arg(long, requires = "expect_hash", value_name = "N")]
        expect_seq: Option<u64>,
        /// That entry's hash.
        #[arg(long, requires = "expect_seq", value_name = "HASH")]
        expect_hash: Option<String>,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}
