//! `portero token`: mint tokens with the local issuer's key, show its public keys.

use std::path::Path;

use portero_auth::{Grant, Issuer, KeyFileError, NewToken, Role};
use portero_types::{Clock as _, InvalidId, SubscriptionId, TenantId};
use serde::Serialize;

use super::exit::Failure;
use super::present::moment;
use crate::cli::{IssuerKey, MintArgs, Output, RoleName, TokenCommand};
use crate::clock::SystemClock;
use crate::{entropy, local_issuer, print};

/// The holder of a token that names nobody.
const SUBJECT: &str = "cli";

/// Prints a token, or the public keys.
pub(crate) fn run(command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Mint(args) => mint(&args),
        TokenCommand::Jwks { key } => print::line(&issuer(&key)?.jwks()),
    }
}

fn mint(args: &MintArgs) -> anyhow::Result<()> {
    let grant = args.role.map(|role| grant(role, args)).transpose();
    let grant = grant.map_err(|error| Failure::usage(error.to_string()))?;
    let issuer = issuer(&args.issuer)?;
    let subject = args.subject.as_deref().unwrap_or(SUBJECT);
    let only_names = grant.is_none();
    let new = NewToken { subject: subject.to_owned(), grant, lifetime: args.ttl };
    let minted = issuer
        .mint(&new, SystemClock::default().now(), entropy::random_u128())
        .map_err(|error| Failure::usage(error.to_string()))?;
    match args.output.output {
        // Alone on standard output, so that `> file` and `$(…)` take it.
        Output::Text => {
            print::line(minted.token.expose_secret())?;
            print::note(&format!(
                "valid until {}; its id in logs is {}",
                moment(minted.expires_at),
                minted.id
            ));
            if only_names {
                print::note(&format!(
                    "it says who its holder is and grants nothing; `portero grant create` with --issuer {} and --subject \
                     {subject} does",
                    local_issuer::NAME
                ));
            }
            Ok(())
        }
        Output::Json => print::json(&Shown {
            token: minted.token.expose_secret(),
            token_id: &minted.id,
            subject,
            expire_time: moment(minted.expires_at),
        }),
    }
}

/// A token as `--output json` promises it.
#[derive(Serialize)]
struct Shown<'a> {
    token: &'a str,
    token_id: &'a str,
    subject: &'a str,
    expire_time: String,
}

fn grant(role: RoleName, args: &MintArgs) -> Result<Grant, InvalidId> {
    let tenant = args.tenant.as_deref().map(TenantId::new).transpose()?;
    let subscriptions = args.subscriptions.iter().map(SubscriptionId::new).collect::<Result<_, _>>()?;
    Ok(Grant { role: role.into(), tenant, subscriptions })
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::PlatformAdmin => Self::PlatformAdmin,
            RoleName::TenantAdmin => Self::TenantAdmin,
            RoleName::Security => Self::Security,
            RoleName::Operator => Self::Operator,
            RoleName::Consumer => Self::Consumer,
            RoleName::Viewer => Self::Viewer,
        }
    }
}

/// Loads the key; makes it when that was asked for and there is none.
fn issuer(IssuerKey { key, create_key }: &IssuerKey) -> Result<Issuer, Failure> {
    let (path, create): (&Path, bool) = (key, *create_key);
    let load = || Issuer::load(path, local_issuer::NAME, local_issuer::AUDIENCE);
    match load() {
        Err(KeyFileError::Missing { .. }) if create => {
            let issuer = Issuer::generate(local_issuer::NAME, local_issuer::AUDIENCE, entropy::random());
            match issuer.create(path) {
                Ok(()) => {
                    print::note(&format!("made the issuer's key {}", path.display()));
                    Ok(issuer)
                }
                // Another process was faster: its key counts.
                Err(KeyFileError::AlreadyExists { .. }) => load().map_err(refused),
                Err(error) => Err(refused(error)),
            }
        }
        Err(error @ KeyFileError::Missing { .. }) => {
            Err(Failure::usage(format!("{error}; name another with --key, or make one with --create-key")))
        }
        loaded => loaded.map_err(refused),
    }
}

fn refused(error: KeyFileError) -> Failure {
    Failure::usage(error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(line: &str) -> MintArgs {
        let parsed = Cli::try_parse_from(line.split_whitespace()).expect("understood");
        let Command::Token(TokenCommand::Mint(args)) = parsed.command else { panic!("token mint") };
        args
    }

    #[test]
    fn grants_follow_the_arguments() {
        let granted = |line: &str| {
            let args = args(&format!("portero token mint {line}"));
            grant(args.role.expect("a role"), &args)
        };
        let acme = TenantId::new("acme").expect("valid");
        assert_eq!(granted("--role tenant-admin --tenant acme"), Ok(Grant::tenant_admin(acme)));
        let names = ["a", "b"].map(|id| SubscriptionId::new(id).expect("valid")).to_vec();
        assert_eq!(granted("--role consumer --subscription a --subscription b"), Ok(Grant::consumer(names)));
        for role in Role::ALL {
            assert_eq!(granted(&format!("--role {role}")).map(|grant| grant.role), Ok(role));
        }
        let bad = granted("--role consumer --subscription A");
        assert!(bad.expect_err("not a slug").to_string().starts_with("a subscription id must be"));
    }

    #[test]
    fn a_missing_key_is_made_only_when_asked_for() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("issuer.pem");
        let issuer_at = |path: &Path, create_key| issuer(&IssuerKey { key: path.to_owned(), create_key });
        let refusal = issuer_at(&path, false).expect_err("none").to_string();
        assert!(refusal.contains("issuer.pem") && refusal.contains("--create-key"), "{refusal}");
        let made = issuer_at(&path, true).expect("made");
        assert_eq!(issuer_at(&path, true).expect("loaded").jwks(), made.jwks(), "the same key");
        let nowhere = folder.path().join("missing").join("issuer.pem");
        assert!(issuer_at(&nowhere, true).expect_err("no folder").to_string().contains("missing"));
    }
}
