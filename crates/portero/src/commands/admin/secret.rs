//! `portero secret`.

mod record;
mod rotate_all;
mod values_file;

use std::path::Path;

use portero_client::v1;
use portero_client::v1::retire_secret_request::End;
use portero_types::Timestamp;
use serde::Serialize;

use self::record::Secret;
use super::{list, name};
use crate::cli::{Common, GivenSecret, Output, SecretCommand, SecretName, SourceName};
use crate::commands::connection::AdminApi;
use crate::commands::present;
use crate::commands::{exit::Failure, input};
use crate::print;

/// Secrets on a page.
const PAGE: i32 = 1_000;

/// Runs one of its commands.
pub(crate) async fn run(command: SecretCommand) -> anyhow::Result<()> {
    match command {
        SecretCommand::Create { source, given, common } => create(&source, given, &common).await,
        SecretCommand::Rotate { source, given, overlap, wait, reason, common } => {
            let wanted = v1::RotateSecretRequest {
                parent: name::source(&source.tenant, &source.source),
                overlap: overlap.map(present::duration),
                wait,
                reason: reason.reason,
                ..v1::RotateSecretRequest::default()
            };
            rotate(wanted, given, &common).await
        }
        SecretCommand::RotateAll {
            tenant,
            source_prefix,
            preset,
            secret_id,
            values_out,
            overlap,
            reason,
            dry_run,
            connect,
            output,
        } => {
            let reason = reason.reason;
            let wanted = rotate_all::Wanted {
                tenant,
                source_prefix,
                preset,
                secret_id,
                values_out,
                overlap,
                reason,
                dry_run,
            };
            rotate_all::run(wanted, &connect, output.output).await
        }
        SecretCommand::Retire { secret, after, at, reason, common } => {
            let end = after.map(|after| End::After(present::duration(after)));
            let end = end.or_else(|| at.map(|at| End::At(proto_time(at))));
            let name = full_name(&secret);
            retire(v1::RetireSecretRequest { name, end, reason: reason.reason }, &common).await
        }
        SecretCommand::Revoke { secret, wait, reason, common } => {
            let name = full_name(&secret);
            revoke(v1::RevokeSecretRequest { name, wait, reason: reason.reason }, &common).await
        }
        SecretCommand::Get { secret, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let request = v1::GetSecretRequest { name: full_name(&secret) };
            let found = api.ask(api.calls().get_secret(request)).await?;
            show(common.output.output, found)
        }
        SecretCommand::List { source, common } => {
            let api = AdminApi::open(&common.connect).await?;
            let parent = name::source(&source.tenant, &source.source);
            list::show::<_, Secret>(&api, common.output.output, async |mut calls, page_token| {
                let parent = parent.clone();
                calls.list_secrets(v1::ListSecretsRequest { parent, page_size: PAGE, page_token }).await
            })
            .await
        }
        SecretCommand::Reveal { secret, common } => reveal(full_name(&secret), &common).await,
        SecretCommand::Delete { secret, reason, common } => {
            delete(full_name(&secret), reason.reason, &common).await
        }
    }
}

async fn retire(request: v1::RetireSecretRequest, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let name = request.name.clone();
    let retired = api.ask(api.calls().retire_secret(request)).await.map_err(|error| error.about(&name))?;
    show(common.output.output, retired)
}

async fn reveal(name: String, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let revealed = api.ask(api.calls().reveal_secret(v1::RevealSecretRequest { name })).await?;
    once(common.output.output, revealed)
}

async fn delete(name: String, reason: String, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let request = v1::DeleteSecretRequest { name: name.clone(), reason };
    api.ask(api.calls().delete_secret(request)).await.map_err(|error| error.about(&name))?;
    present::deleted(common.output.output, &name)
}

async fn create(source: &SourceName, given: GivenSecret, common: &Common) -> anyhow::Result<()> {
    let value = value_of(given.value_file.as_deref())?;
    let is_generated = value.is_empty();
    let api = AdminApi::open(&common.connect).await?;
    let parent = name::source(&source.tenant, &source.source);
    let request = v1::CreateSecretRequest {
        parent: parent.clone(),
        secret_id: given.id,
        value,
        not_before: given.not_before.map(proto_time),
    };
    let created = api.ask(api.calls().create_secret(request)).await.map_err(|error| error.about(&parent))?;
    added(common.output.output, created, is_generated)
}

async fn rotate(wanted: v1::RotateSecretRequest, given: GivenSecret, common: &Common) -> anyhow::Result<()> {
    let value = value_of(given.value_file.as_deref())?;
    let is_generated = value.is_empty();
    let api = AdminApi::open(&common.connect).await?;
    let parent = wanted.parent.clone();
    let request = v1::RotateSecretRequest {
        secret_id: given.id,
        value,
        not_before: given.not_before.map(proto_time),
        ..wanted
    };
    let answer = api.ask(api.calls().rotate_secret(request)).await.map_err(|error| error.about(&parent))?;
    added(common.output.output, answer.secret.unwrap_or_default(), is_generated)?;
    for retiring in answer.retiring {
        let retiring = Secret::from(retiring);
        print::note(&format!("'{}' verifies until {}", retiring.id(), retiring.end()));
    }
    confirmed(
        &answer.unconfirmed_replicas,
        "they may refuse what is signed with the new secret until they do",
    )
}

/// What `--output json` shows of a revocation.
#[derive(Serialize)]
struct Revocation {
    #[serde(flatten)]
    secret: Secret,
    unconfirmed_replicas: Vec<String>,
    revision: i64,
}

async fn revoke(request: v1::RevokeSecretRequest, common: &Common) -> anyhow::Result<()> {
    let api = AdminApi::open(&common.connect).await?;
    let name = request.name.clone();
    let answer = api.ask(api.calls().revoke_secret(request)).await.map_err(|error| error.about(&name))?;
    let unconfirmed = answer.unconfirmed_replicas;
    let secret = Secret::from(answer.secret.unwrap_or_default());
    match common.output.output {
        Output::Json => print::json(&Revocation {
            secret,
            unconfirmed_replicas: unconfirmed.clone(),
            revision: answer.revision,
        })?,
        Output::Text => present::one(Output::Text, &secret)?,
    }
    confirmed(&unconfirmed, "whatever they would accept with the secret, the database refuses")
}

/// Fails when gateways have not said that they have applied a change; `consequence` says what that means.
fn confirmed(unconfirmed: &[String], consequence: &str) -> anyhow::Result<()> {
    if unconfirmed.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = unconfirmed.iter().map(|name| present::clean(name)).collect();
    let message = format!(
        "the change is made, but these gateways have not said within 10 seconds that they have applied it: {}; \
         {consequence}",
        names.join(", ")
    );
    Err(Failure::unavailable(message).into())
}

fn full_name(secret: &SecretName) -> String {
    name::secret(&secret.tenant, &secret.source, &secret.secret)
}

fn proto_time(at: Timestamp) -> prost_types::Timestamp {
    let nanos = i32::try_from(at.as_micros().rem_euclid(1_000_000) * 1_000).unwrap_or(0);
    prost_types::Timestamp { seconds: at.as_secs(), nanos }
}

/// The value in the file; empty without a file, which asks for a generated one.
fn value_of(file: Option<&Path>) -> Result<String, Failure> {
    file.map(|file| input::secret(file, "the secret").map(|value| value.expose_secret().clone()))
        .transpose()
        .map(Option::unwrap_or_default)
}

/// Shows a generated value, this once. A given one is known to whoever gave it, and is not repeated into logs.
fn added(output: Output, created: v1::Secret, is_generated: bool) -> anyhow::Result<()> {
    if is_generated { once(output, created) } else { show(output, created) }
}

fn show(output: Output, secret: v1::Secret) -> anyhow::Result<()> {
    let secret = Secret::from(secret);
    present::one(output, &secret)?;
    if output == Output::Text {
        secret
            .warnings()
            .iter()
            .for_each(|warning| print::note(&format!("warning: {}", present::clean(warning))));
    }
    Ok(())
}

/// Shows a secret with its value.
fn once(output: Output, answer: v1::Secret) -> anyhow::Result<()> {
    present::one(output, &Secret::with_value(answer))?;
    print::note("The value is shown only now: give it to the provider, it cannot be read again.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_does_not_ask_for_a_generated_value() {
        let file = tempfile::NamedTempFile::new().expect("file");
        assert!(value_of(Some(file.path())).is_err());
        assert_eq!(value_of(None), Ok(String::new()));
    }

    #[test]
    fn a_gateway_that_has_not_applied_a_change_fails_the_command_by_its_name() {
        assert!(confirmed(&[], "").is_ok());
        let failed = confirmed(&["gateway-2".to_owned()], "the database refuses").expect_err("failed");
        assert_eq!(crate::commands::exit::code(&failed), 69);
        let message = failed.to_string();
        assert!(message.contains("gateway-2; the database refuses"), "{message}");
    }
}
