//! `secret`: what can be said about a source's secrets.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use portero_types::Timestamp;

use super::{Common, ConnectArgs, OutputArgs, Reason};

/// A source.
#[derive(Debug, Args)]
pub(crate) struct SourceName {
    /// The tenant's id.
    pub(crate) tenant: String,
    /// The source's id.
    pub(crate) source: String,
}

/// A secret.
#[derive(Debug, Args)]
pub(crate) struct SecretName {
    /// The tenant's id.
    pub(crate) tenant: String,
    /// The source's id.
    pub(crate) source: String,
    /// The secret's id.
    pub(crate) secret: String,
}

/// What a new secret is.
#[derive(Debug, Args)]
pub(crate) struct GivenSecret {
    /// The secret's id; default: one made from the date.
    #[arg(long, default_value = "")]
    pub(crate) id: String,
    /// File with the value as the provider shows it; '-' is standard input. Without it, a value is generated.
    #[arg(long, value_name = "FILE")]
    pub(crate) value_file: Option<PathBuf>,
    /// When it begins to verify, such as 2026-03-01T12:00:00Z; default: now.
    #[arg(long, value_parser = super::moment, value_name = "TIME")]
    pub(crate) not_before: Option<Timestamp>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Add a secret and leave the others alone. Its value is read from a file or standard input, or generated and shown once.
    #[command(visible_alias = "add")]
    Create {
        #[command(flatten)]
        source: SourceName,
        #[command(flatten)]
        given: GivenSecret,
        #[command(flatten)]
        common: Common,
    },
    /// Add a secret and let the others end when nothing signed with them can come any more.
    #[command(after_help = "\
Examples:
  portero secret rotate acme payments --id march --value-file - --wait
  portero secret rotate acme payments --overlap 24h

Both verify in the overlap, so the provider may be switched over at any moment in it, and what it has signed before and
sends again is still taken. `portero secret show` says when an old one is safe to retire sooner.")]
    Rotate {
        #[command(flatten)]
        source: SourceName,
        #[command(flatten)]
        given: GivenSecret,
        /// How long the others go on after it begins, such as 3days; default: as long as the provider sends an event again,
        /// by the preset, and at least a day; 3 days where that is unknown.
        #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
        overlap: Option<Duration>,
        /// Return only when every gateway takes the new one: only then switch the provider over.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
    /// Add a secret to many sources, one after the other, and let their others end. The values go to a file.
    #[command(after_help = "\
Examples:
  portero secret rotate-all --tenant acme --secret-id march --values-out march.jsonl --dry-run
  portero secret rotate-all --tenant acme --preset stripe --secret-id march --values-out march.jsonl

The file gets mode 0600 and one line of JSON for each source: {\"source\": …, \"secret\": …, \"value\": …}. A value is on the disk
before its source is told, so the command may be interrupted at any moment: run it again with the same --secret-id and file,
and it goes on where it stopped.")]
    RotateAll {
        /// The tenant's id.
        #[arg(long)]
        tenant: String,
        /// Only sources whose ids begin so.
        #[arg(long, default_value = "", value_name = "PREFIX")]
        source_prefix: String,
        /// Only sources with this preset.
        #[arg(long, value_name = "NAME")]
        preset: Option<String>,
        /// The new secrets' id, the same at each source.
        #[arg(long, value_name = "ID")]
        secret_id: String,
        /// Where the values go; lines are appended.
        #[arg(long, value_name = "FILE")]
        values_out: PathBuf,
        /// How long the others go on, such as 3days; default: as `portero secret rotate` has it.
        #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
        overlap: Option<Duration>,
        #[command(flatten)]
        reason: Reason,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        connect: ConnectArgs,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Set when a secret ceases to verify: now, unless said otherwise.
    #[command(group = ArgGroup::new("end").args(["after", "at"]))]
    Retire {
        #[command(flatten)]
        secret: SecretName,
        /// So long from now, such as 2h.
        #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
        after: Option<Duration>,
        /// At this time, such as 2026-03-01T12:00:00Z.
        #[arg(long, value_parser = super::moment, value_name = "TIME")]
        at: Option<Timestamp>,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
    /// Revoke a leaked secret, for ever: from now on the database refuses whatever it signs.
    #[command(after_help = "\
Nothing else verifies unless the source has another secret: add it first (`portero secret create`) where the provider can be
switched over at once. With --wait the command returns when every gateway has applied it, and fails naming those that have
not; what these try to accept is refused by the database all the same.")]
    Revoke {
        #[command(flatten)]
        secret: SecretName,
        /// Return only when nothing that it signed can be accepted any more and every gateway knows it.
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
    /// Show a secret's state and uses, and whether it is safe to retire. Never its value.
    #[command(visible_alias = "show")]
    Get {
        #[command(flatten)]
        secret: SecretName,
        #[command(flatten)]
        common: Common,
    },
    /// List a source's secrets. Never their values.
    List {
        #[command(flatten)]
        source: SourceName,
        #[command(flatten)]
        common: Common,
    },
    /// Show the value of a secret that a handshake brought, once, for a provider that wants it repeated.
    Reveal {
        #[command(flatten)]
        secret: SecretName,
        #[command(flatten)]
        common: Common,
    },
    /// Delete a secret that is planned, retired or revoked. Keep revoked ones: once one is deleted, its value is not known as
    /// leaked any more, and would be taken again.
    Delete {
        #[command(flatten)]
        secret: SecretName,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
}
