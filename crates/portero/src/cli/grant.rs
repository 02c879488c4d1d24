//! `grant`: what callers may do beside what their tokens say.

use clap::Subcommand;

use super::{Common, Reason, RoleName};
use crate::local_issuer;

#[derive(Debug, Subcommand)]
pub(crate) enum GrantCommand {
    /// Give callers a role. In effect on every gateway within a second.
    #[command(after_help = "\
Examples:
  portero grant create alice --subject alice --role tenant-admin --tenant acme
  portero grant create billing --role consumer --subscription billing \\
    --issuer https://kubernetes.default.svc.cluster.local --subject system:serviceaccount:shop:billing
  portero grant create shop-viewers --role viewer --tenant acme \\
    --issuer https://kubernetes.default.svc.cluster.local --subject 'system:serviceaccount:shop:*'

A caller is whom its token's 'iss' and 'sub' name. It has all that its token, the gateways' settings and grants give it.
A tenant's admin gives roles within its own tenant only.")]
    Create {
        /// The grant's id: a-z, 0-9 and '-'.
        grant: String,
        /// Who vouches for the caller: the 'iss' of its token.
        #[arg(long, default_value = local_issuer::NAME)]
        issuer: String,
        /// Who the caller is: the 'sub' of its token, or its beginning followed by '*'.
        #[arg(long)]
        subject: String,
        /// What it may do.
        #[arg(long, value_enum)]
        role: RoleName,
        /// Only this tenant. Without it, the whole installation.
        #[arg(long, default_value = "", hide_default_value = true)]
        tenant: String,
        /// Consumers: a subscription. Repeatable.
        #[arg(long = "subscription", value_name = "SUBSCRIPTION")]
        subscriptions: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// List the grants that you may see.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Show a grant.
    #[command(visible_alias = "get")]
    Show {
        /// The grant's id.
        grant: String,
        #[command(flatten)]
        common: Common,
    },
    /// Take a grant back: its callers are refused, and their streams end, within a second or two on every gateway.
    Delete {
        /// The grant's id.
        grant: String,
        #[command(flatten)]
        reason: Reason,
        #[command(flatten)]
        common: Common,
    },
}
