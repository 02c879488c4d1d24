//! `tenant`, `source`, `subscription`, `receipt`: what can be said to the admin API.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::{ConnectArgs, GivenLimits, OutputArgs};

/// What every admin command takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Why something is done.
#[derive(Debug, Args)]
pub(crate) struct Reason {
    /// Why, for the audit log: one line, at most 512 bytes. Never the secret itself.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant.
    Create {
        /// Its id: a-z, 0-9 and '-'.
        tenant: String,
        /// Its name for people.
        #[arg(long, default_value = "")]
        display_name: String,
        #[command(flatten)]
        limits: GivenLimits,
        #[command(flatten)]
        common: Common,
    },
    /// Change a tenant. What is not named stays as it is.
    #[command(after_help = "\
Examples:
  portero tenant update acme --display-name 'Acme Ltd'
  portero tenant update acme --events-per-second 200 --burst 2000
  portero tenant update acme --default-limits    # as the gateways' settings say")]
    Update {
        /// Its id.
        tenant: String,
        /// Its name for people.
        #[arg(long)]
        display_name: Option<String>,
        #[command(flatten)]
        limits: GivenLimits,
        /// Take its own limits away: those of the gateways' settings hold.
        #[arg(long, conflicts_with_all = ["events_per_second", "burst", "bytes_per_second"])]
        default_limits: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Show a tenant.
    Get {
        /// Its id.
        tenant: String,
        #[command(flatten)]
        common: Common,
    },
    /// List all tenants.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Delete a tenant that has no sources.
    Delete {
        /// Its id.
        tenant: String,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
    /// Destroy a tenant's data keys, and with them all secrets and events that it has stored. Nothing brings them back.
    #[command(after_help = "\
Examples:
  portero tenant erase acme --confirm acme

Its sources, grants and the subscriptions that name it are deleted with it. Receipts stay: that something came, and when. Where no
tenant of this name is left, those that were deleted before are erased.")]
    Erase {
        /// Its id.
        tenant: String,
        /// Its id once more.
        #[arg(long, value_name = "TENANT")]
        confirm: String,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
}

/// A source's settings.
#[derive(Debug, Default, Args)]
pub(crate) struct GivenSettings {
    /// What the recipe wants to know beside the secret, see `portero provider show`. Repeatable.
    #[arg(long = "setting", value_name = "NAME=VALUE", value_parser = super::setting)]
    pub(crate) plain: Vec<(String, String)>,
    /// The same from a file, for what is kept as a secret; '-' is standard input. Repeatable.
    #[arg(long = "setting-file", value_name = "NAME=FILE", value_parser = super::setting)]
    pub(crate) files: Vec<(String, String)>,
}

/// What a source is told beside its recipe and its secrets.
#[derive(Debug, Args)]
pub(crate) struct GivenToSource {
    /// The URL as configured at the provider, for providers that sign it. Repeatable: while a source moves, each counts.
    #[arg(long = "public-url", value_name = "URL")]
    pub(crate) public_urls: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: GivenSettings,
    /// How long the provider may bring the source's secret by a handshake, such as 1h (which a new source waits where its
    /// provider does that); 0s ends that.
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
    pub(crate) secret_window: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SourceCommand {
    /// Create a source and print its path, to be appended to the gateway's public address.
    #[command(group = ArgGroup::new("which_recipe").required(true).args(["preset", "recipe_file"]))]
    #[command(after_help = "\
Examples:
  portero source create acme payments --preset stripe
  portero source create acme calls --preset twilio --public-url https://hooks.example.com/in/0123
  portero source create acme tasks --preset asana    # the provider brings the secret, within an hour
  portero source create acme own --recipe-file own.json

Where the provider itself brings the secret in its first request (asana, notion), a new source waits one hour for it
unless --secret-window says otherwise. A secret added by hand ends the waiting.

`portero provider show PRESET` says what a preset needs. Warnings go to standard error.")]
    Create {
        /// The tenant's id.
        tenant: String,
        /// The source's id: a-z, 0-9 and '-'.
        source: String,
        /// A built-in recipe, such as stripe, github, slack, shopify, adyen, standard-webhooks.
        #[arg(long, value_name = "NAME")]
        preset: Option<String>,
        /// A file with a custom recipe in JSON.
        #[arg(long, value_name = "FILE")]
        recipe_file: Option<PathBuf>,
        /// What scopes event ids; default: the preset, or the source's id.
        #[arg(long, default_value = "")]
        provider: String,
        #[command(flatten)]
        given: GivenToSource,
        #[command(flatten)]
        limits: GivenLimits,
        #[command(flatten)]
        common: Common,
    },
    /// Change a source. What is not named stays as it is.
    #[command(after_help = "\
Examples:
  portero source update acme calls --public-url https://hooks.example.com/in/0123
  portero source update acme calls --public-url https://old.example/in/1 --public-url https://new.example/in/1
  portero source update acme pay --setting webhook_id=WH-1
  portero source update acme chat --setting-file verify_token=token.txt
  portero source update acme tasks --secret-window 1h
  portero source update acme pay --events-per-second 50 --burst 500")]
    Update {
        /// The tenant's id.
        tenant: String,
        /// The source's id.
        source: String,
        /// Another built-in recipe. The secrets must fit it.
        #[arg(long, conflicts_with = "recipe_file")]
        preset: Option<String>,
        /// A file with another custom recipe in JSON.
        #[arg(long, value_name = "FILE")]
        recipe_file: Option<PathBuf>,
        #[command(flatten)]
        given: GivenToSource,
        /// Take a setting away. Repeatable.
        #[arg(long = "unset", value_name = "NAME")]
        unset: Vec<String>,
        /// Take all public URLs away.
        #[arg(long, conflicts_with = "public_urls")]
        no_public_urls: bool,
        #[command(flatten)]
        limits: GivenLimits,
        /// Take its own limits away: those of the gateways' settings hold.
        #[arg(long, conflicts_with_all = ["events_per_second", "burst", "bytes_per_second"])]
        default_limits: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Show a source.
    #[command(visible_alias = "show")]
    Get {
        /// The tenant's id.
        tenant: String,
        /// The source's id.
        source: String,
        #[command(flatten)]
        common: Common,
    },
    /// List a tenant's sources.
    List {
        /// The tenant's id.
        tenant: String,
        #[command(flatten)]
        common: Common,
    },
    /// Delete a source and its secrets: its URL answers 404 from then on.
    Delete {
        /// The tenant's id.
        tenant: String,
        /// The source's id.
        source: String,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
}

/// Where a new subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StartFrom {
    /// With events accepted after its creation.
    Latest,
    /// With the oldest event kept.
    Earliest,
}

/// What becomes of an entity when one of its events becomes a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeadLetterPolicy {
    /// Its later events go on without it.
    Continue,
    /// Its later events wait for `portero parked retry`.
    ParkEntity,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SubscriptionCommand {
    /// Create a subscription.
    Create {
        /// Its id: a-z, 0-9 and '-'.
        subscription: String,
        /// Only this tenant's events.
        #[arg(long, default_value = "", value_name = "TENANT")]
        tenant: String,
        /// Only events of this source. Repeatable.
        #[arg(long = "source", value_name = "SOURCE")]
        sources: Vec<String>,
        /// Only events of this type; `invoice.*` matches everything below. Repeatable.
        #[arg(long = "event-type", value_name = "TYPE")]
        event_types: Vec<String>,
        /// How many streams can share it: a power of two from 4 to 256.
        #[arg(long, default_value_t = 16)]
        lanes: u32,
        /// Attempts before an event becomes a dead letter.
        #[arg(long, default_value_t = 16)]
        attempts_max: u32,
        /// How long a deferred event waits.
        #[arg(long, value_parser = humantime::parse_duration, default_value = "24h", value_name = "DURATION")]
        defer_deadline: Duration,
        /// What becomes of an entity when one of its events becomes a dead letter.
        #[arg(long, value_enum, default_value_t = DeadLetterPolicy::Continue, value_name = "POLICY")]
        dead_letter_policy: DeadLetterPolicy,
        /// Where it begins.
        #[arg(long, value_enum, default_value_t = StartFrom::Latest)]
        from: StartFrom,
        #[command(flatten)]
        common: Common,
    },
    /// Change a subscription. What is not named stays as it is.
    ///
    /// Which events it carries, its lanes and where it began are fixed: for others, create another subscription.
    #[command(after_help = "\
Examples:
  portero subscription update billing --attempts-max 30
  portero subscription update billing --dead-letter-policy park-entity")]
    Update {
        /// Its id.
        subscription: String,
        /// Attempts before an event becomes a dead letter.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000), value_name = "COUNT")]
        attempts_max: Option<u32>,
        /// How long a deferred event waits; events that are deferred already keep their deadlines.
        #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION")]
        defer_deadline: Option<Duration>,
        /// What becomes of an entity when one of its events becomes a dead letter. Entities that are blocked already stay so
        /// until `portero parked retry`.
        #[arg(long, value_enum, value_name = "POLICY")]
        dead_letter_policy: Option<DeadLetterPolicy>,
        #[command(flatten)]
        common: Common,
    },
    /// Show a subscription.
    Get {
        /// Its id.
        subscription: String,
        #[command(flatten)]
        common: Common,
    },
    /// List subscriptions.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Delete a subscription with its progress and dead letters.
    Delete {
        /// Its id.
        subscription: String,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
    /// List a subscription's dead letters.
    DeadLetters {
        /// Its id.
        subscription: String,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptCommand {
    /// Show the receipt of an event: by receipt id, or by provider and event id.
    Get {
        /// The tenant's id.
        tenant: String,
        /// `rcpt_…`, or `provider/event-id`.
        key: String,
        #[command(flatten)]
        common: Common,
    },
}

/// Requests that were refused of late.
#[derive(Debug, Subcommand)]
pub(crate) enum RejectionCommand {
    /// List a source's refused requests, the newest first.
    List {
        /// The tenant's id.
        tenant: String,
        /// The source's id.
        source: String,
        #[command(flatten)]
        common: Common,
    },
    /// Show a refused request: when it came and why it was refused, never what it held.
    #[command(alias = "get")]
    Show {
        /// The tenant's id.
        tenant: String,
        /// The source's id.
        source: String,
        /// Its request id, `req_…`, as the answer to the provider said.
        request: String,
        #[command(flatten)]
        common: Common,
    },
    /// Say step by step why a refused request, or one in a file, is refused by the source as it is now.
    ///
    /// Ends with 0 when the request would be accepted now, with 1 when it would be refused.
    #[command(after_help = "\
Examples:
  portero rejection explain acme payments req_0123
  portero rejection explain acme payments --request request.http    # in a form of `portero verify`")]
    Explain {
        /// The tenant's id.
        tenant: String,
        /// The source's id.
        source: String,
        /// The request id of a refused request.
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        request: Option<String>,
        /// File with a request; '-' is standard input. It is sent to the gateway, which keeps nothing of it.
        #[arg(long = "request", value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        common: Common,
    },
}
