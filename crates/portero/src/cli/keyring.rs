//! `keyring`: the keys that encrypt tenants' data keys, and what they hold.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ConfigArgs, OutputArgs};

/// Data keys of one transaction.
const BATCH: u32 = 200;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyringCommand {
    /// Make a keyring with one fresh key. Refuses to overwrite.
    Generate {
        /// The file to make.
        path: PathBuf,
        #[command(flatten)]
        id: KeyIdArg,
    },
    /// Add a fresh key, without using it: first every gateway gets the new keyring, then `activate` it.
    Add {
        /// The keyring file.
        path: PathBuf,
        #[command(flatten)]
        id: KeyIdArg,
    },
    /// Make a key that is there the one that wraps data keys.
    Activate {
        /// The keyring file.
        path: PathBuf,
        /// The key.
        #[arg(value_name = "KEY")]
        id: String,
    },
    /// Add a fresh key and make it the active one, in one step: for an installation with a single gateway.
    Rotate {
        /// The keyring file.
        path: PathBuf,
        #[command(flatten)]
        id: KeyIdArg,
    },
    /// Remove a key from a keyring file. Refused while the database still has data keys under it.
    #[command(after_help = "\
Examples:
  portero keyring remove keyring.json v1 --config portero.toml

The database is the one of the settings. Where it cannot be reached from here, look with `portero keyring status` where it can,
and say --force. A data key whose key is gone is lost, with all that its tenant has stored; keep a copy of the old keyring.")]
    Remove {
        /// The keyring file.
        path: PathBuf,
        /// The key.
        #[arg(value_name = "KEY")]
        id: String,
        /// Do not look into the database.
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Say how many data keys of how many tenants each key holds, and which keys are missing.
    Status {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Wrap every data key under the active key, so that the others can be removed.
    ///
    /// Secrets and events are not touched, and gateways go on meanwhile. It may be interrupted at any moment; run again, it goes on
    /// with what is left.
    #[command(after_help = "\
Examples:
  portero keyring rewrap --config portero.toml
  portero keyring rewrap --set keyring.path=keyring.json --set database.url_file=url

It reads keyring and database from the same settings as `portero serve`. Every gateway needs the active key in its keyring before.
Data keys that nothing encrypts yet are encrypted too, when keyring.unprotected = true is set beside keyring.path.")]
    Rewrap {
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        batch: BatchArg,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Give every tenant a new data key, and seal its secrets with it: after somebody may have seen the old ones.
    ///
    /// What comes in from then on is sealed with the new keys. The old ones stay, for the events that they sealed. It may be
    /// interrupted at any moment; it says how to go on.
    RotateDataKeys {
        /// Only tenants whose newest data key is older than this (RFC 3339): to go on with a run that was interrupted.
        #[arg(long, value_name = "TIME")]
        before: Option<String>,
        #[command(flatten)]
        config: ConfigArgs,
        #[command(flatten)]
        batch: BatchArg,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// The name of a new key.
#[derive(Debug, Args)]
pub(crate) struct KeyIdArg {
    /// Its name, which is never used again; without it `v` and the next number.
    #[arg(long = "id", value_name = "KEY")]
    pub(crate) id: Option<String>,
}

/// How much is done at once.
#[derive(Debug, Args)]
pub(crate) struct BatchArg {
    /// So many in one transaction.
    #[arg(long, default_value_t = BATCH, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "N")]
    pub(crate) batch: u32,
}
