//! `portero verify`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{GivenSettings, OutputArgs};

/// Say step by step how a request is verified, and which step fails.
///
/// Nothing is sent and no gateway is needed. Neither secrets nor signatures nor the body are shown. Ends with 0 when the
/// request is accepted or is a handshake, with 1 when it is refused, with 64 when the arguments or files are wrong.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which_recipe").required(true).args(["preset", "recipe"]))]
#[command(after_help = "\
The request is raw HTTP (request line, headers, an empty line, then the body to the end of the file):
  POST /in/0123?tag=a HTTP/1.1
  Stripe-Signature: t=1750000000,v1=…

  {\"id\":\"evt_1\"}
or JSON, {\"method\", \"url\", \"headers\": {name: value}, \"body\" or \"body_base64\"}.

Examples:
  portero verify --preset stripe --secret-file secret --request request.http
  portero verify --preset twilio --secret-file token --request request.json --url https://hooks.example.com/in/0123
  portero verify --recipe-file own.json --secret-file old --secret-file new --request - --at 2025-06-15T15:06:40Z")]
pub(crate) struct VerifyArgs {
    /// A built-in recipe; see `portero provider list`.
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// A file with a custom recipe in JSON.
    #[arg(long = "recipe-file", visible_alias = "recipe", value_name = "FILE")]
    pub(crate) recipe: Option<PathBuf>,
    /// File with the source's secrets: one a line, or keys and certificates in PEM. Repeatable.
    #[arg(long = "secret-file", value_name = "FILE")]
    pub(crate) secret_files: Vec<PathBuf>,
    /// File with the request; '-' is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) request: PathBuf,
    /// The URL as configured at the provider, for providers that sign it. Repeatable: each is tried.
    #[arg(long = "url", value_name = "URL")]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: GivenSettings,
    /// When the request came, in RFC 3339 (UTC) or seconds since 1970; default: now.
    #[arg(long, value_name = "TIME", value_parser = super::moment)]
    pub(crate) at: Option<portero_types::Timestamp>,
    /// File with what the recipe fetches, such as the provider's certificate or public key.
    #[arg(long, value_name = "FILE")]
    pub(crate) fetched: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
