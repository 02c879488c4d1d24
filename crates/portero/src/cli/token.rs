//! `portero token`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::OutputArgs;

/// A role, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    /// Manage everything. Receives no events.
    PlatformAdmin,
    /// Manage one tenant: its sources, secrets, subscriptions, and grants for it. Receives no events.
    TenantAdmin,
    /// Look after secrets; see grants and the audit log. Sees no payloads.
    Security,
    /// Look after dead letters, parked entities, receipts and refused requests.
    Operator,
    /// Receive and settle the events of named subscriptions.
    Consumer,
    /// See what there is, without payloads. Changes nothing.
    Viewer,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Mint a token with the local issuer's key.
    #[command(after_help = "\
Examples:
  portero token mint --role platform-admin --create-key --key issuer.pem > admin.token
  portero token mint --role tenant-admin --tenant acme --ttl 8h
  portero token mint --role consumer --subscription billing --subject billing-service
  portero token mint --subject alice    # what alice may do is said by `portero grant create`

A token cannot be taken back before it ends, so keep it short-lived. One without a role only says who its holder is: what that
may do is said by grants, and is lost with them within a second.")]
    Mint(MintArgs),
    /// Print the local issuer's public keys (JWKS): what a gateway needs that shall believe its tokens and mint none.
    Jwks {
        #[command(flatten)]
        key: IssuerKey,
    },
}

/// The local issuer's key.
#[derive(Debug, Args)]
pub(crate) struct IssuerKey {
    /// The issuer's key file (PKCS#8 in PEM). It is made when it is missing and `--create-key` is given.
    #[arg(long, env = "PORTERO_ISSUER_KEY", default_value = "./.portero/issuer.pem", value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Make the key file when it is missing.
    #[arg(long)]
    pub(crate) create_key: bool,
}

/// `portero token mint`.
#[derive(Debug, Args)]
pub(crate) struct MintArgs {
    /// What the holder may do by this token alone. Without it, `--subject` is needed, and grants say what it may do.
    #[arg(long, value_enum, required_unless_present = "subject")]
    pub(crate) role: Option<RoleName>,
    /// Who the holder is; shown in logs and in the audit log. Default: cli.
    #[arg(long)]
    pub(crate) subject: Option<String>,
    /// Only this tenant. Without it, the whole installation.
    #[arg(long, requires = "role")]
    pub(crate) tenant: Option<String>,
    /// Consumers: a subscription. Repeatable.
    #[arg(long = "subscription", value_name = "SUBSCRIPTION", requires = "role")]
    pub(crate) subscriptions: Vec<String>,
    /// How long it is valid.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1h", value_name = "DURATION")]
    pub(crate) ttl: Duration,
    #[command(flatten)]
    pub(crate) issuer: IssuerKey,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
