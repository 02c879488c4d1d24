//! The command line: what can be said, and nothing of how it is done.

mod admin;
mod audit;
mod grant;
mod keyring;
mod limits;
mod parked;
mod provider;
mod replica;
mod secret;
mod send;
mod tail;
mod tls;
mod token;
mod value;
mod verify;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use portero_types::Redacted;

pub(crate) use admin::{
    Common, DeadLetterPolicy, GivenSettings, GivenToSource, Reason, ReceiptCommand, RejectionCommand,
    SourceCommand, StartFrom, SubscriptionCommand, TenantCommand,
};
pub(crate) use audit::AuditCommand;
pub(crate) use grant::GrantCommand;
pub(crate) use keyring::KeyringCommand;
pub(crate) use limits::GivenLimits;
pub(crate) use parked::ParkedCommand;
pub(crate) use provider::ProviderCommand;
pub(crate) use replica::ReplicaCommand;
pub(crate) use secret::{GivenSecret, SecretCommand, SecretName, SourceName};
pub(crate) use send::SendArgs;
pub(crate) use tail::TailArgs;
pub(crate) use tls::TlsArgs;
pub(crate) use token::{IssuerKey, MintArgs, RoleName, TokenCommand};
use value::{moment, setting};
pub(crate) use verify::VerifyArgs;

/// Portero: a gateway for inbound webhooks that money can depend on.
///
/// Verifies each provider's signatures, keeps one receipt per event, and hands events to internal services over gRPC, in
/// order per entity and with acknowledgments.
#[derive(Debug, Parser)]
#[command(name = "portero", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine with an embedded database: the quickest way to see Portero work.
    Dev(DevArgs),
    /// Run a gateway.
    Serve(ServeArgs),
    /// Bring the database's schema up to what this program needs.
    Migrate(ConfigArgs),
    /// Run the payment laboratory: nine deliveries of five orders, a naive receiver and Portero side by side.
    Demo(DemoArgs),
    /// Create, show, list and delete tenants.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Create, show, list and delete sources: a tenant's inbound endpoints.
    #[command(subcommand)]
    Source(SourceCommand),
    /// Add, rotate, retire, revoke, show, list and delete the secrets of a source.
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Create, change, show, list and delete subscriptions.
    #[command(subcommand)]
    Subscription(SubscriptionCommand),
    /// List, retry and give up entities whose events wait.
    #[command(subcommand)]
    Parked(ParkedCommand),
    /// Say what callers may do: create, list, show and delete grants.
    #[command(subcommand)]
    Grant(GrantCommand),
    /// Say who changed what: list, export and verify the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List the gateways that run, how far each has applied the configuration, and its clock.
    #[command(subcommand)]
    Replica(ReplicaCommand),
    /// List, show and explain requests that were refused of late.
    #[command(subcommand)]
    Rejection(RejectionCommand),
    /// Show what became of an event.
    #[command(subcommand)]
    Receipt(ReceiptCommand),
    /// Show the built-in recipes: which providers there are, and what to set up at each.
    #[command(subcommand)]
    Provider(ProviderCommand),
    /// Say step by step how a request is verified, and which step fails. Needs no gateway.
    Verify(VerifyArgs),
    /// Sign a sample or a file as a provider would, and post it.
    Send(SendArgs),
    /// Follow a subscription: print each event and acknowledge it.
    Tail(TailArgs),
    /// Mint tokens with the local issuer's key, and show its public keys.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Make and look after the keyring that encrypts tenants' data keys, and what it holds in the database.
    #[command(subcommand)]
    Keyring(KeyringCommand),
    /// Show and check settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion script of a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// `portero dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Folder of the database, the keyring and the demo secrets.
    #[arg(long, default_value = "./.portero", value_name = "FOLDER")]
    pub(crate) data: PathBuf,
    /// Port for webhooks (on 127.0.0.1); 0 takes a free one.
    #[arg(long, default_value_t = 8080, value_name = "PORT")]
    pub(crate) edge_port: u16,
    /// Port for gRPC (on 127.0.0.1); 0 takes a free one.
    #[arg(long, default_value_t = 50_051, value_name = "PORT")]
    pub(crate) grpc_port: u16,
    /// Port for probes and metrics (on 127.0.0.1); 0 takes a free one.
    #[arg(long, default_value_t = 9090, value_name = "PORT")]
    pub(crate) management_port: u16,
    /// Log level or directives.
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    pub(crate) log_level: String,
    /// Send traces there: OTLP over gRPC.
    #[arg(long, value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
}

/// Where settings come from.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// File with settings; see `portero config default`.
    #[arg(long, short, env = "PORTERO_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One setting, such as `edge.listen=127.0.0.1:8080`; wins over file and environment. Repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// `portero serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Migrate the schema first. For small installations; others run `portero migrate` as a step of its own.
    #[arg(long)]
    pub(crate) migrate: bool,
}

/// `portero demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Show the gateway's log lines too.
    #[arg(long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the commented default file.
    Default,
    /// Say everything that is wrong with the settings, or that nothing is. Connects to nothing.
    Check(ConfigArgs),
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// One JSON value a line.
    Json,
}

/// How to reach a gateway's gRPC port.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The gateway's gRPC address.
    #[arg(long, env = "PORTERO_ENDPOINT", default_value = "http://127.0.0.1:50051", value_name = "URL")]
    pub(crate) endpoint: String,
    /// A token. Prefer `--token-file`: arguments are visible to other users of this machine.
    #[arg(long, env = "PORTERO_TOKEN", hide_env_values = true, value_name = "TOKEN", value_parser = value::hidden)]
    pub(crate) token: Option<Redacted<String>>,
    /// File that holds a token. Without either, the token that `portero dev` left in ./.portero is used.
    #[arg(long, env = "PORTERO_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// The name that the gateway's certificate must bear; default: the endpoint's host. For tunnels.
    #[arg(long, env = "PORTERO_SERVER_NAME", value_name = "NAME", help_heading = "TLS")]
    pub(crate) server_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_the_documentation_says_is_understood() {
        for line in [
            "portero token mint --role platform-admin --key issuer.pem --create-key",
            "portero token mint --role tenant-admin --tenant acme",
            "portero token mint --subject alice",
            "portero token jwks --key issuer.pem",
            "portero tenant create acme --display-name Acme",
            "portero source create acme stripe --preset stripe",
            "portero source create acme own --recipe-file recipe.json --output json",
            "portero source create acme own --preset stripe --public-url https://a/b --public-url https://c/d",
            "portero source update acme own --setting a=b --unset c --secret-window 1h",
            "portero source update acme own --setting-file word=word.txt",
            "portero source show acme own",
            "portero rejection list acme own -o json",
            "portero rejection explain acme own req_1",
            "portero rejection explain acme own --request -",
            "portero secret create acme stripe --value-file -",
            "portero secret add acme stripe --id march --not-before 2026-03-01T12:00:00Z",
            "portero secret rotate acme stripe --overlap 3days --wait",
            "portero secret rotate-all --tenant acme --preset stripe --secret-id march --values-out f --dry-run",
            "portero secret retire acme stripe march --after 2h",
            "portero secret retire acme stripe march --at 2026-03-01T12:00:00Z",
            "portero secret revoke acme stripe march --wait",
            "portero secret show acme stripe march -o json",
            "portero subscription create billing --tenant acme --event-type invoice.* --from earliest",
            "portero subscription create billing --dead-letter-policy park-entity",
            "portero subscription update billing --attempts-max 20 --defer-deadline 2h --dead-letter-policy continue",
            "portero subscription dead-letters billing -o json",
            "portero parked list billing -o json",
            "portero parked retry billing 0a5f3c21d4e8b79606",
            "portero parked retry billing --all",
            "portero parked dead-letter billing 0a5f3c21d4e8b79606",
            "portero grant create alice --subject alice --role tenant-admin --tenant acme",
            "portero grant create b --issuer https://i --subject a:* --role consumer --subscription x --subscription y",
            "portero grant list -o json",
            "portero grant show alice",
            "portero grant delete alice",
            "portero audit list --tenant acme --subject alice --action DeleteSecret -n 5 -o json",
            "portero audit export --file audit.jsonl",
            "portero tenant erase acme --confirm acme",
            "portero audit verify",
            "portero audit verify --file audit.jsonl --expect-seq 7 --expect-hash 00",
            "portero receipt get acme stripe/evt_1 --endpoint http://gateway:50051 --token-file t",
            "portero provider list --category payments",
            "portero provider show stripe --recipe",
            "portero verify --preset stripe --secret-file a --secret-file b --request r.http --at 1750000000",
            "portero verify --recipe own.json --secret-file a --request - --url https://h.example/in/1 --setting a=b",
            "portero send stripe -n 5",
            "portero send github --ago 10m --curl",
            "portero tail demo -n 3 --output json --body",
            "portero keyring rotate keyring.json",
            "portero keyring generate keyring.json --id 2026-03",
            "portero keyring add keyring.json",
            "portero keyring activate keyring.json v2",
            "portero keyring remove keyring.json v1 --config portero.toml",
            "portero keyring remove keyring.json v1 --force",
            "portero keyring status --config portero.toml -o json",
            "portero keyring rewrap --set keyring.path=keyring.json --batch 50",
            "portero keyring rotate-data-keys --before 2026-03-01T12:00:00Z",
            "portero config check --config portero.toml --set edge.listen=127.0.0.1:1",
            "portero completions bash",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err().map(|error| error.kind()));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_at_once() {
        for line in [
            "portero token",
            "portero token mint",
            "portero token mint --role admin",
            "portero token mint --subject alice --tenant acme",
            "portero source create acme own",
            "portero source create acme own --preset stripe --recipe-file recipe.json",
            "portero provider show",
            "portero verify --request r.http",
            "portero verify --preset stripe --recipe own.json --request r.http",
            "portero verify --preset stripe --request r.http --at yesterday",
            "portero verify --preset stripe --request r.http --setting a",
            "portero source update acme own --public-url https://a/b --no-public-urls",
            "portero rejection explain acme own",
            "portero rejection explain acme own req_1 --request r.http",
            "portero subscription update billing --event-type invoice.*",
            "portero subscription create billing --dead-letter-policy stop",
            "portero parked retry billing",
            "portero parked retry billing 0a5f3c21d4e8b79606 --all",
            "portero parked dead-letter billing",
            "portero grant create alice --role viewer",
            "portero grant create alice --subject alice",
            "portero audit list -n 0",
            "portero audit verify --expect-seq 7",
            "portero audit verify --expect-hash 00",
            "portero send stripe -n 0",
            "portero send stripe --curl -n 2",
            "portero tail demo -n 0",
            "portero secret create acme stripe --rotate",
            "portero secret rotate acme stripe --overlap soon",
            "portero secret rotate-all --tenant acme --secret-id march",
            "portero secret retire acme stripe march --after 2h --at 1750000000",
            "portero secret revoke acme stripe",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
