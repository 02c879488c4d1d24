//! `portero token`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::OutputArgs;

/// What the holder may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenRole {
    /// Manage tenants, sources, secrets and subscriptions.
    Admin,
    /// Consume named subscriptions.
    Consumer,
}

/// Mint a token with the local issuer's key.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// What the holder may do.
    #[arg(long, value_enum, required_unless_present = "jwks")]
    pub(crate) role: Option<TokenRole>,
    /// Who the holder is; shown in logs.
    #[arg(long, default_value = "cli")]
    pub(crate) subject: String,
    /// Only this tenant. Without it, the whole platform.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Consumers: a subscription. Repeatable.
    #[arg(long = "subscription", value_name = "SUBSCRIPTION")]
    pub(crate) subscriptions: Vec<String>,
    /// How long it is valid.
    #[arg(long, value_parser = humantime::parse_duration, default_value = "1h", value_name = "DURATION")]
    pub(crate) ttl: Duration,
    /// The issuer's key file (PKCS#8 in PEM). It is made when it is missing and `--create-key` is given.
    #[arg(long, env = "PORTERO_ISSUER_KEY", default_value = "./.portero/issuer.pem", value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Make the key file when it is missing.
    #[arg(long)]
    pub(crate) create_key: bool,
    /// Print the issuer's public keys (JWKS) instead of a token.
    #[arg(long)]
    pub(crate) jwks: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
