//! `portero send`.

use std::path::PathBuf;

use clap::Args;

use super::{GivenSettings, OutputArgs, TlsArgs};

/// Sign a sample or a file as a provider would, and post it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  portero send stripe                            # to the source of `portero dev`
  portero send stripe -n 5                       # the same event five times
  portero send slack --curl                      # print the request as a curl command
  portero send twilio --url https://hooks.example.com/in/0123 --secret-file token

Some providers sign with keys that only they have (PayPal, AWS SNS, Plaid): their requests cannot be made here.")]
pub(crate) struct SendArgs {
    /// A built-in recipe, see `portero provider list`; or the id of a source of `portero dev`.
    pub(crate) preset: String,
    /// The source's URL. Without it, `portero dev`'s source of that preset is used.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The URL as the source's settings have it, where that is another: providers that sign it sign this one.
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    #[command(flatten)]
    pub(crate) settings: GivenSettings,
    /// File with the secret; the private key where the source has a public one. Without it, `portero dev`'s secret of that preset is used.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// A custom recipe in JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) recipe_file: Option<PathBuf>,
    /// The body; '-' is standard input. Without it, a sample is sent.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) body: Option<PathBuf>,
    /// The event's id; default: a fresh one.
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// The sample's entity: events with the same one arrive in order.
    #[arg(long, conflicts_with = "body")]
    pub(crate) entity: Option<String>,
    /// The event's type, where the provider sends it in a header; default: the sample's.
    #[arg(long, value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Send the very same request so many times; above 20, text output sums the answers up.
    #[arg(long, short = 'n', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Sign as if it were so long ago, such as 10m: to see a stale request refused.
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    pub(crate) ago: Option<std::time::Duration>,
    /// Print the signed request as a curl command instead of sending it.
    #[arg(long, conflicts_with = "count")]
    pub(crate) curl: bool,
    /// Folder of `portero dev`'s data.
    #[arg(long, default_value = "./.portero", value_name = "FOLDER")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
