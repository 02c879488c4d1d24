//! `portero token`: mint a token with the local issuer's key, or show its public keys.

use std::path::Path;

use portero_auth::{Grant, Issuer, KeyFileError, NewToken, Role};
use portero_types::{Clock as _, InvalidId, SubscriptionId, TenantId};
use serde::Serialize;

use super::exit::Failure;
use super::present::moment;
use crate::cli::{Output, TokenArgs, TokenRole};
use crate::clock::SystemClock;
use crate::{entropy, local_issuer, print};

/// Prints a token, or the public keys.
pub(crate) async fn run(args: TokenArgs) -> anyhow::Result<()> {
    let Some(role) = args.role.filter(|_| !args.jwks) else {
        return print::line(&issuer(&args.key, args.create_key)?.jwks());
    };
    let grant = grant(role, &args).map_err(|error| Failure::usage(error.to_string()))?;
    let issuer = issuer(&args.key, args.create_key)?;
    let new = NewToken { subject: args.subject.clone(), grant, lifetime: args.ttl };
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
            Ok(())
        }
        Output::Json => print::json(&Shown {
            token: minted.token.expose_secret(),
            token_id: &minted.id,
            subject: &args.subject,
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

fn grant(role: TokenRole, args: &TokenArgs) -> Result<Grant, InvalidId> {
    let tenant = args.tenant.as_deref().map(TenantId::new).transpose()?;
    let subscriptions = args.subscriptions.iter().map(SubscriptionId::new).collect::<Result<_, _>>()?;
    let role = match role {
        TokenRole::Admin => Role::Admin,
        TokenRole::Consumer => Role::Consumer,
    };
    Ok(Grant { role, tenant, subscriptions })
}

/// Loads the key; makes it when that was asked for and there is none.
fn issuer(path: &Path, create: bool) -> Result<Issuer, Failure> {
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

    fn args(line: &str) -> TokenArgs {
        let Command::Token(args) = Cli::try_parse_from(line.split_whitespace()).expect("understood").command
        else {
            panic!("token")
        };
        args
    }

    #[test]
    fn grants_follow_the_arguments() {
        let admin = args("portero token --role admin --tenant acme");
        let acme = TenantId::new("acme").expect("valid");
        assert_eq!(grant(TokenRole::Admin, &admin), Ok(Grant::tenant_admin(acme)));
        let consumer = args("portero token --role consumer --subscription a --subscription b");
        let names = ["a", "b"].map(|id| SubscriptionId::new(id).expect("valid")).to_vec();
        assert_eq!(grant(TokenRole::Consumer, &consumer), Ok(Grant::consumer(names)));
        let bad = grant(TokenRole::Consumer, &args("portero token --role consumer --subscription A"));
        assert!(bad.expect_err("not a slug").to_string().starts_with("a subscription id must be"));
    }

    #[test]
    fn a_missing_key_is_made_only_when_asked_for() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("issuer.pem");
        let refusal = issuer(&path, false).expect_err("none").to_string();
        assert!(refusal.contains("issuer.pem") && refusal.contains("--create-key"), "{refusal}");
        let made = issuer(&path, true).expect("made");
        assert_eq!(issuer(&path, true).expect("loaded").jwks(), made.jwks(), "the same key");
        let nowhere = folder.path().join("missing").join("issuer.pem");
        assert!(issuer(&nowhere, true).expect_err("no folder").to_string().contains("missing"));
    }
}
